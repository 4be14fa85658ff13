"""How long a job still takes: what its log, `shortgop status` and `shortgop report` say of it. Pure.

Frames differ by more than twenty times in what they cost. So the estimate counts work, in the seconds that one core is
expected to take for it. These are wrong as well, but by about the same factor for all sources.
"""

from __future__ import annotations

from typing import NamedTuple

from ...wording import duration

# Workers begin one after the other, and report twice a second: what is encoded in less time says little of the rest.
_ENOUGH_SECONDS = 10.0


class Amount(NamedTuple):
    """How much is done of what is expected of all sources, and how much was done in a second of encoding lately; 0 if
    nothing was encoded lately. In frames or in seconds of work."""

    done: float
    expected: float
    recent_per_second: float


class Pending(NamedTuple):
    """What is known of a job. `lists_more`: more sources are still being found. `seconds` is the time since it began.
    `encoding_seconds` is the time in which units were encoded, None where that is not known.
    `recent_frames_per_second` is the rate over the last minute, pauses included."""

    is_running: bool
    lists_more: bool
    seconds: float
    encoding_seconds: float | None
    recent_frames_per_second: float
    frames: Amount
    work: Amount

    @property
    def is_early(self) -> bool:
        """Whether too little is encoded to say from it how fast the job is."""
        return self.encoding_seconds is not None and self.encoding_seconds < _ENOUGH_SECONDS


def of_all(planned: float, sources_planned: int, sources_total: int) -> float:
    """The frames or the work of all sources, in proportion to those of the sources that are planned."""
    if not 0 < sources_planned < sources_total:
        return planned
    return planned * sources_total / sources_planned


def mean_per_second(done: float, found: Pending) -> float:
    """How much was done in a second while units were encoded; in the whole job if that was for less than a second, or
    is not known."""
    encoding = found.encoding_seconds or 0.0
    return done / (encoding if encoding >= 1 else max(found.seconds, 1e-3))


def seconds_left(found: Pending) -> float | None:
    """How long the job still takes, from what is left and the rate of the last minute; None if too little is known."""
    amount = _counted_by(found)
    if not found.is_running or found.lists_more or found.is_early or amount.done <= 0:
        return None
    rate = amount.recent_per_second or mean_per_second(amount.done, found)
    return max(0.0, amount.expected - amount.done) / rate


def time_left(found: Pending) -> str:
    """What there is to say of it: ", about 5 min left" or that it is too early; nothing of a job that is over, that
    still finds sources, or that knows of nothing that is left."""
    amount = _counted_by(found)
    if not found.is_running or found.lists_more or amount.done >= amount.expected:
        return ""
    left = seconds_left(found)
    return ", too early to say how long it takes" if left is None else f", about {duration(left)} left"


def speed(found: Pending) -> str:
    """How fast a job encodes, and how long it still takes: "30 frames/s while encoding (28 in the last minute), about
    5 min left"."""
    rate = f"{mean_per_second(found.frames.done, found):.0f} frames/s while encoding"
    if found.is_running and not found.is_early:
        rate += f" ({found.recent_frames_per_second:.0f} in the last minute)"
    return rate + time_left(found)


def _counted_by(found: Pending) -> Amount:
    # Statuses of earlier versions have no work.
    return found.work if found.work.expected > 0 else found.frames
