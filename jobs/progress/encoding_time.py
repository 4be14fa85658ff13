"""For how long a job has encoded, without the start of Ray and the looks at sources before the first unit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

# On Ray, the driver hears of the next unit up to so long after the one before it.
_BETWEEN_UNITS_SECONDS = 2.0
RECENT_SECONDS = 60.0
"""Rates are those of so long, because machines come and go."""


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


@dataclass(frozen=True)
class Pace:
    """How fast a job encodes, at some moment.

    `encoding_seconds` is the time in which units were encoded; `is_encoding`: one is being encoded. The others are of
    the last minute or so: how long it was, by the clock and of encoding, and what was done in it. Work is in the
    seconds that one core was expected to take for it.
    """

    encoding_seconds: float = 0.0
    is_encoding: bool = False
    recent_seconds: float = 0.0
    recent_encoding_seconds: float = 0.0
    recent_frames: int = 0
    recent_work_seconds: float = 0.0

    def after(self, seconds: float) -> Pace:
        """The same after so many seconds in which nothing more was heard of the job."""
        more = seconds if self.is_encoding else 0.0
        return replace(
            self,
            encoding_seconds=self.encoding_seconds + more,
            recent_seconds=self.recent_seconds + seconds,
            recent_encoding_seconds=self.recent_encoding_seconds + more,
        )

    @property
    def frames_per_second_by_the_clock(self) -> float:
        """Frames/s lately, pauses included."""
        return max(0, self.recent_frames) / max(self.recent_seconds, 1e-3)

    @property
    def frames_per_second(self) -> float:
        """Frames/s lately, without pauses; 0 if nothing was encoded lately."""
        return self._per_second(self.recent_frames)

    @property
    def work_per_second(self) -> float:
        """Seconds of work that were done in a second lately, without pauses; 0 if nothing was encoded lately."""
        return self._per_second(self.recent_work_seconds)

    def _per_second(self, amount: float) -> float:
        seconds = self.recent_encoding_seconds
        return max(0, amount) / seconds if seconds >= 1 else 0.0


NO_PACE = Pace()
"""That of a job that has not begun to encode."""


class EncodingRates:
    """What was encoded in the last `over_seconds`, and the time in which it was."""

    def __init__(self, over_seconds: float) -> None:
        self._over_seconds = over_seconds
        # The time, the seconds of encoding until then, the frames, and the seconds of work.
        self._samples: deque[tuple[float, float, int, float]] = deque()

    def note(self, now: float, encoding_seconds: float, frames: int, work_seconds: float) -> None:
        """At the time `now` so much was encoded in all, in so many seconds."""
        self._samples.append((now, encoding_seconds, frames, work_seconds))
        while len(self._samples) > 2 and self._samples[1][0] < now - self._over_seconds:
            self._samples.popleft()

    def pace(self, *, is_encoding: bool) -> Pace:
        """The pace when something was last noted."""
        if not self._samples:
            return NO_PACE
        since, before, frames_before, work_before = self._samples[0]
        now, seconds, frames, work = self._samples[-1]
        return Pace(seconds, is_encoding, now - since, seconds - before, frames - frames_before, work - work_before)
