"""The attempts at steps that run, and which steps are attempted a second time meanwhile. Knows nothing of Ray.

A machine that is slow, or has lost its network unnoticed, would hold up the end of a job. So steps that take far longer
than others are begun once more, and where machines have nothing left to do, those that take much longer. The attempt
that ends first counts: what MapReduce calls backup tasks (Dean and Ghemawat 2004, section 3.6). Both attempts write the
same, and whatever is written first stays.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from .gpu_slots import Place, Slots, next_place
from .order import Order
from .steps import Join, Look, OneSection, Step
from .waiting import seconds_of

# How many times as long as usual counts as far longer, and as much longer. Machines of one cluster, and the times of
# sources and their estimates, mostly differ by less than the first factor.
_FAR_LONGER, _MUCH_LONGER = 3.0, 1.5
# A step that takes less than this is not worth a second attempt.
_LEAST_SECONDS = 10.0
# The usual time is the median over the last steps, of which there have to be at least `_ENOUGH_STEPS`.
_LAST_STEPS, _ENOUGH_STEPS = 101, 3
# A step that took a smaller part of its expected time was done before, or its source is no video.
_LEAST_RATIO = 0.05
# After so many failed attempts, one last attempt decides, without another one beside it.
_MAX_FAILED = 2
_LOOK_EVERY_SECONDS = 2.0

_Kind = Literal["gpu", "cpu", "look", "join"]
"""What the same is usual for: steps that encode in a place, and looks and joins, wherever they are."""

# What a look and a join take of what their whole video takes, until that was measured. A look reads all packets once. A
# join reads a small file for each minute of encoding.
_SHARES: dict[_Kind, float] = {"look": 0.05, "join": 0.01}

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

    def kind(self, attempt: Attempt) -> _Kind:
        """Of which kind an attempt is. A look that encodes frames has found that the video cannot be cut, and then
        encodes it whole."""
        match attempt.step:
            case Look() if not self.frames:
                return "look"
            case Join():
                return "join"
            case _:
                return attempt.place


class Attempts:
    """The attempts that run. `start` returns new ones; `ended` is to be called for each that ends."""

    def __init__(self, order: Order) -> None:
        self._order = order
        # How many run in each place, wanted or not.
        self._running: Counter[Place] = Counter()
        self._looked = -math.inf
        self._wanted: dict[Key, _Tried] = {}
        # Of steps that were attempted twice, the frames of the attempt that is further, also when that has ended.
        self._most_frames: dict[Key, int] = {}
        # How many times as long as expected the last steps of each kind took.
        self._ratios: defaultdict[_Kind, deque[float]] = defaultdict(partial(deque, maxlen=_LAST_STEPS))

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
        """A worker has done this number of frames of a step. Returns whether that counts: of two attempts at a step
        only the one that is further does."""
        tried = self._wanted.get(key)
        if tried is None and key[1] is None and key in self._most_frames:
            # The other attempt at a look goes on, while the sections that the first one found are encoded.
            return False
        if tried is not None:
            tried.begun = now if tried.begun is None else tried.begun
            if any(isinstance(attempt.step, Join) for attempt in tried.attempts):
                # It has no frames of its own: those of the sections stay.
                return False
            tried.frames = max(frames, tried.frames)
        if frames < self._most_frames.get(key, 0):
            return False
        if key in self._most_frames:
            self._most_frames[key] = frames
        return True

    def again(self, attempt: Attempt, slots: Slots) -> Attempt | None:
        """The attempt to begin in place of one that no machine can do any more; None if its outcome is not wanted."""
        self._running[attempt.place] -= 1
        key = key_of(attempt.step)
        tried = self._wanted.get(key)
        if tried is None or attempt not in tried.attempts:
            return None
        place: Place = "gpu" if attempt.place == "gpu" and slots.on_gpus else "cpu"
        # Added before the other one is removed: should that begin after all, only the one that is further counts.
        new = self._add(Attempt(attempt.step, place))
        tried.attempts.remove(attempt)
        if len(tried.attempts) == 1:
            tried.begun = None
        return new

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
        expected, kind = seconds_of(attempt.step), tried.kind(attempt)
        if seconds is not None and expected:
            ratio = seconds / expected
            if ratio >= _LEAST_RATIO or kind in _SHARES:
                self._ratios[kind].append(ratio)
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
        measured = {kind: some for kind, some in self._ratios.items() if len(some) >= _ENOUGH_STEPS}
        usual = _SHARES | {kind: statistics.median(some) for kind, some in measured.items()}
        slow = []
        for tried in self._wanted.values():
            first, expected = tried.attempts[0], seconds_of(tried.attempts[0].step)
            kind = tried.kind(first)
            is_alone = len(tried.attempts) == 1 and tried.failed < _MAX_FAILED
            if is_alone and expected and kind in usual and tried.begun is not None:
                seconds = now - tried.begun
                times = seconds / (usual[kind] * expected)
                if times > _MUCH_LONGER and seconds > _LEAST_SECONDS:
                    slow.append((times, first))
        return sorted(slow, key=lambda each: -each[0])
