"""For how long a job has encoded, without the start of Ray and the looks at sources before the first unit."""

from __future__ import annotations

from collections import deque

# On Ray, the driver hears of the next unit up to so long after the one before it.
_BETWEEN_UNITS_SECONDS = 2.0


class EncodingTime:
    """The time in which units were encoded. It stands still where none runs, as while a job waits for a machine."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._noted: float | None = None
        self._runs = False

    @property
    def has_begun(self) -> bool:
        """Whether any unit was heard of."""
        return self._noted is not None

    def note(self, now: float, *, runs: bool) -> None:
        """A unit was heard of at the time `now` in seconds. `runs`: after that, at least one runs."""
        if self._noted is not None:
            is_short = now - self._noted <= _BETWEEN_UNITS_SECONDS
            self._seconds += max(0.0, now - self._noted) if self._runs or is_short else 0.0
        self._noted, self._runs = now, runs

    def seconds(self, now: float) -> float:
        """The seconds until the time `now`."""
        since = now - self._noted if self._noted is not None and self._runs else 0.0
        return self._seconds + max(0.0, since)


class EncodingRates:
    """The frames that were encoded in the last `over_seconds`, and the time in which they were."""

    def __init__(self, over_seconds: float) -> None:
        self._over_seconds = over_seconds
        # The time, the seconds of encoding until then, and the frames.
        self._samples: deque[tuple[float, float, int]] = deque()

    def note(self, now: float, encoding_seconds: float, frames: int) -> None:
        """At the time `now` so many frames were encoded in all, in so many seconds."""
        self._samples.append((now, encoding_seconds, frames))
        while len(self._samples) > 2 and self._samples[1][0] < now - self._over_seconds:
            self._samples.popleft()

    def by_the_clock(self, now: float) -> float:
        """Frames/s until the time `now`, pauses included."""
        if not self._samples:
            return 0.0
        since, _, frames = self._samples[0]
        return max(0, self._samples[-1][2] - frames) / max(now - since, 1e-3)

    def while_encoding(self, encoding_seconds: float) -> float:
        """Frames/s without pauses, until so many seconds of encoding have passed in all; 0 if none of them have passed
        lately."""
        if not self._samples:
            return 0.0
        _, before, frames = self._samples[0]
        seconds = encoding_seconds - before
        return max(0, self._samples[-1][2] - frames) / seconds if seconds >= 1 else 0.0
