"""The attempts at steps that run, and which steps are attempted a second time meanwhile. Knows nothing of Ray.

A machine that is slow, or lost its network without a word, would hold up the end of a job. So steps that take far
longer than others are begun once more, and where machines have nothing left to do, those that take much longer. The
attempt that ends first counts: what MapReduce calls backup tasks (Dean and Ghemawat 2004, section 3.6). Both attempts
write the same, and whatever is written first stays.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from .gpu_slots import Place, Slots, next_place
from .order import Order
from .steps import OneSection, Step, Whole
from .waiting import seconds_of

# So many times as long as usual is far longer, or much longer. Machines of one cluster, and sources beside what is
# expected of them, mostly differ by less than the first.
_FAR_LONGER, _MUCH_LONGER = 3.0, 1.5
# What is over after so long is not worth a second attempt.
_LEAST_SECONDS = 10.0
# What is usual is the median of the last steps, of so many at least.
_LAST_STEPS, _ENOUGH_STEPS = 101, 3
# What took less of what was expected was found done, or is no video.
_LEAST_RATIO = 0.05
# After so many that failed there is no other attempt beside the last one, which decides.
_MAX_FAILED = 2
_LOOK_EVERY_SECONDS = 2.0

Key = tuple[str, int | None]
"""The id of a unit, and the number of a section of it or None."""


def key_of(step: Step) -> Key:
    """The key of a step. Steps of a unit that follow one another may share it."""
    return step.unit.id, step.number if isinstance(step, OneSection) else None


@dataclass(frozen=True, eq=False)
class Attempt:
    """An attempt at a step, in a place."""

    step: Step
    place: Place


@dataclass
class _Tried:
    """A step whose outcome is wanted: its attempts, when the first one began, the most frames that any of them has
    done, and how many failed while there was another one."""

    attempts: list[Attempt] = field(default_factory=list)
    begun: float | None = None
    frames: int = 0
    failed: int = 0


class Attempts:
    """Those that run. `start` gives new ones, and `ended` is told of each that ends."""

    def __init__(self, order: Order) -> None:
        self._order = order
        # How many run in each place, wanted or not.
        self._running: Counter[Place] = Counter()
        self._looked = -math.inf
        self._wanted: dict[Key, _Tried] = {}
        # Of steps that were attempted twice, the frames of the attempt that is further, also when that has ended.
        self._most_frames: dict[Key, int] = {}
        # How many times as long as expected the last steps took in each place.
        self._ratios: dict[Place, deque[float]] = {
            "cpu": deque(maxlen=_LAST_STEPS),
            "gpu": deque(maxlen=_LAST_STEPS),
        }

    def __bool__(self) -> bool:
        """Whether the outcome of any attempt is still wanted."""
        return bool(self._wanted)

    def start(self, slots: Slots, now: float) -> Iterator[Attempt]:
        """The attempts to begin now: at slow steps, and at steps that wait. `now` is in seconds."""
        if now - self._looked >= _LOOK_EVERY_SECONDS:
            self._looked = now
            # Two attempts are given to each place, so that less than one leaves places with nothing to do.
            idle = 0 if self._order else max(0, slots.at_a_time - self._running.total())
            for number, (times, first) in enumerate(self._slow(now)):
                if times > _FAR_LONGER or number < idle:
                    yield self._add(Attempt(first.step, self._place(slots) or first.place))
        while self._order and (place := self._place(slots)) is not None:
            yield self._add(Attempt(self._order.next(), place))

    def progressed(self, key: Key, frames: int, now: float) -> bool:
        """A worker has done so many frames of a step. Returns whether that counts: of two attempts at a step only the
        one that is further does."""
        tried = self._wanted.get(key)
        if tried is not None:
            tried.begun = now if tried.begun is None else tried.begun
            tried.frames = max(frames, tried.frames)
        if frames < self._most_frames.get(key, 0):
            return False
        if key in self._most_frames:
            self._most_frames[key] = frames
        return True

    def ended(self, attempt: Attempt, seconds: float | None) -> bool:
        """Whether the outcome of an attempt that ended counts. `seconds` are what the worker took; None if it failed,
        which counts only if there is no other attempt."""
        self._running[attempt.place] -= 1
        key = key_of(attempt.step)
        tried = self._wanted.get(key)
        if tried is None or attempt not in tried.attempts:
            return False
        tried.attempts.remove(attempt)
        if seconds is None and tried.attempts:
            tried.failed += 1
            return False
        del self._wanted[key]
        expected = seconds_of(attempt.step)
        if seconds is not None and expected and isinstance(attempt.step, Whole | OneSection):
            ratio = seconds / expected
            if ratio >= _LEAST_RATIO:
                self._ratios[attempt.place].append(ratio)
        return True

    def _add(self, attempt: Attempt) -> Attempt:
        self._running[attempt.place] += 1
        key = key_of(attempt.step)
        tried = self._wanted.setdefault(key, _Tried())
        if tried.attempts:
            self._most_frames[key] = tried.frames
        else:
            self._most_frames.pop(key, None)
        tried.attempts.append(attempt)
        return attempt

    def _place(self, slots: Slots) -> Place | None:
        return next_place(slots, self._running)

    def _slow(self, now: float) -> list[tuple[float, Attempt]]:
        """The only attempts at steps that take much longer than usual, with how many times; the longest first."""
        usual = {
            place: statistics.median(ratios) for place, ratios in self._ratios.items() if len(ratios) >= _ENOUGH_STEPS
        }
        slow = []
        for tried in self._wanted.values():
            first, expected = tried.attempts[0], seconds_of(tried.attempts[0].step)
            is_alone = len(tried.attempts) == 1 and tried.failed < _MAX_FAILED
            can_be_late = expected and isinstance(first.step, Whole | OneSection) and first.place in usual
            if is_alone and can_be_late and tried.begun is not None:
                seconds = now - tried.begun
                times = seconds / (usual[first.place] * expected)
                if times > _MUCH_LONGER and seconds > _LEAST_SECONDS:
                    slow.append((times, first))
        return sorted(slow, key=lambda each: -each[0])
