"""The attempts at steps that run, and which steps are attempted a second time meanwhile. Knows nothing of Ray.

A machine that is slow, or has lost its network unnoticed, would hold up the end of a job. So steps that take far longer
than others are begun once more, and where machines have nothing left to do, those that take much longer. The attempt
that ends first counts: what MapReduce calls backup tasks (Dean and Ghemawat 2004, section 3.6). Both attempts write the
same, and whatever is written first stays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from ..units_of_work.costs import CostClass, Measured, class_of, seconds_of
from ..units_of_work.gpu_slots import Place, Slots, free_places
from ..units_of_work.order import Order
from ..units_of_work.steps import GpuUse, Join, Look, OneSection, Step, gpu_use

# How many times as long as usual counts as far longer, and as much longer. Machines of one cluster, and the times of
# sources and their estimates, mostly differ by less than the first factor.
_FAR_LONGER, _MUCH_LONGER = 3.0, 1.5
# A step that takes less than this is not worth a second attempt.
_LEAST_SECONDS = 10.0
# Where nothing says how long a step may take, so long without a frame counts as far longer than usual. Reading a long
# source before its first frame takes minutes.
_SILENT_SECONDS = 1800.0
# So many attempts at a step run at a time.
_MOST_ATTEMPTS = 3
# Where a machine is lost, Ray mostly says so at once of the attempts that it had, and otherwise after minutes.
_FOR_WORD_SECONDS = 10.0
# A step of which so many attempts failed has failed, also if another one goes on: that one may hang.
_MOST_FAILED = 3
_LOOK_EVERY_SECONDS = 2.0

# What a place takes, the first of these that waits. A look rarely encodes, and a section uses a GPU less than a unit
# that is encoded whole, so they use one where nothing else does.
_TAKES: dict[Place, tuple[frozenset[GpuUse], ...]] = {
    "gpu": (frozenset({"needs", "uses"}), frozenset({"may use"})),
    "cpu": (frozenset({"uses", "may use", "leaves"}),),
}

Key = tuple[str, int | None]
"""The id of a unit, and the number of a section of it or None."""


def key_of(step: Step) -> Key:
    """The key of a step. Steps of a unit that follow one another may share it."""
    return step.unit.id, step.number if isinstance(step, OneSection) else None


@dataclass(frozen=True, eq=False)
class Attempt:
    """An attempt at a step, in a place, and not on the `avoided` machines, which have attempted it already. `spread`:
    on another machine than Ray chooses by itself, if possible. `is_last`: it is not handed back for lack of room.
    `alone`: nothing else runs on its machine."""

    step: Step
    place: Place
    avoided: frozenset[str] = frozenset()
    spread: bool = False
    is_last: bool = False
    alone: bool = False


@dataclass
class _Tried:
    """A step whose outcome is wanted, and what is known of the attempts at it."""

    step: Step
    own_class: CostClass
    expected_seconds: float
    # Those that run.
    attempts: list[Attempt] = field(default_factory=list)
    # When the first one began. None until one was heard of.
    begun: float | None = None
    # The most frames that any of them has done, and when these became more.
    frames: int = 0
    moved: float = 0.0
    # How many have failed.
    failed: int = 0
    # The ids of the machines that have attempted it, and of those that have told of an attempt since one failed.
    machines: set[str] = field(default_factory=set)
    heard: set[str] = field(default_factory=set)
    # Since when all are on machines that are gone.
    lost: float | None = None
    # Whether a machine had no room for one.
    handed_back: bool = False

    @property
    def cost_class(self) -> CostClass:
        """A look that has encoded frames has found that the video cannot be cut."""
        return class_of(self.step, encodes=True) if self.frames and isinstance(self.step, Look) else self.own_class


class Attempts:
    """The attempts that run. `start` returns new ones; `ended` is to be called for each that ends."""

    def __init__(self, order: Order, encoder: str = "auto") -> None:
        """`encoder` is that of the profile."""
        self._order = order
        self._encoder = encoder
        # How many run in each place, wanted or not.
        self._running: Counter[Place] = Counter()
        self._looked = -math.inf
        self._wanted: dict[Key, _Tried] = {}
        # Of steps that were attempted twice, the frames of the attempt that is further, also when that has ended.
        self._most_frames: dict[Key, int] = {}
        self._measured = Measured()

    def __bool__(self) -> bool:
        """Whether the outcome of any attempt is still wanted."""
        return bool(self._wanted)

    def start(self, slots: Slots, now: float, *, new: bool = True) -> Iterator[Attempt]:
        """The attempts to begin now: at slow steps, and with `new` at steps that wait. `now` is in seconds."""
        if now - self._looked >= _LOOK_EVERY_SECONDS:
            self._looked = now
            # Two attempts are given to each place, so that less than one leaves places with nothing to do.
            idle = 0 if self._order else max(0, slots.at_a_time - self._running.total())
            for number, (times, tried) in enumerate(self._slow(slots, now)):
                if times > _FAR_LONGER or number < idle:
                    yield self._another(tried, slots)
        while new and (attempt := self._next(slots)) is not None:
            yield self.add(attempt)

    def has_free(self, place: Place, slots: Slots) -> bool:
        """Whether an attempt may begin in a place."""
        return place in free_places(slots, self._running)

    def add(self, attempt: Attempt) -> Attempt:
        """Count an attempt that is begun, or is to be. Returns it."""
        self._running[attempt.place] += 1
        key = key_of(attempt.step)
        tried = self._wanted.get(key)
        if tried is None:
            step = attempt.step
            tried = self._wanted[key] = _Tried(step, class_of(step), seconds_of(step), machines=set(attempt.avoided))
            self._measured.began(tried.own_class)
            self._most_frames.pop(key, None)
        else:
            self._most_frames[key] = tried.frames
        tried.attempts.append(attempt)
        return attempt

    def unheard(self) -> list[Attempt]:
        """The last attempt at each step of which nothing was heard, and which may be attempted once more."""
        return [
            tried.attempts[-1]
            for tried in self._wanted.values()
            if tried.begun is None and len(tried.attempts) < _MOST_ATTEMPTS
        ]

    def another(self, attempt: Attempt, slots: Slots) -> Attempt:
        """One more attempt at the step of one that `unheard` returned."""
        return self._another(self._wanted[key_of(attempt.step)], slots, spread=True)

    def progressed(self, key: Key, frames: int, now: float, machine: str = "") -> bool:
        """A worker of a machine has done this number of frames of a step. Returns whether that counts: of several
        attempts at a step only the one that is furthest does."""
        tried = self._wanted.get(key)
        if tried is None and key[1] is None and key in self._most_frames:
            # The other attempt at a look goes on, while the sections that the first one found are encoded.
            return False
        if tried is not None:
            if tried.begun is None:
                tried.begun = tried.moved = now
            if machine:
                tried.machines.add(machine)
                tried.heard.add(machine)
            if any(isinstance(attempt.step, Join) for attempt in tried.attempts):
                # It has no frames of its own: those of the sections stay.
                return False
            if frames > tried.frames:
                tried.frames, tried.moved = frames, now
        if frames < self._most_frames.get(key, 0):
            return False
        if key in self._most_frames:
            self._most_frames[key] = frames
        return True

    def again(self, attempt: Attempt, slots: Slots) -> Attempt | None:
        """The attempt to begin in place of one that no machine can do any more; None if its outcome is not wanted."""
        tried = self._taken_out(attempt)
        if tried is None:
            return None
        place: Place = "gpu" if attempt.place == "gpu" and slots.on_gpus else "cpu"
        # Should the other one begin after all, only the one that is further counts.
        new = self.add(replace(attempt, place=place))
        if len(tried.attempts) == 1:
            tried.begun = None
            tried.heard.clear()
        return new

    def ended(self, attempt: Attempt, seconds: float | None) -> bool:
        """Whether the outcome of an attempt that ended counts. `seconds` are what the worker took; None if it failed,
        which counts only if there is no other attempt, or if several failed."""
        tried = self._taken_out(attempt)
        if tried is None:
            return False
        tried.failed += seconds is None
        if seconds is None and tried.attempts and tried.failed < _MOST_FAILED:
            # Which of the machines had this one is not known.
            tried.heard.clear()
            return False
        del self._wanted[key_of(attempt.step)]
        if seconds is not None and tried.expected_seconds:
            self._measured.took(tried.cost_class, attempt.place, seconds / tried.expected_seconds)
        return True

    def handed_back(self, attempt: Attempt, machine: str) -> bool:
        """Whether to begin an attempt anew for which a machine had no room: not if its outcome is not wanted, or if
        there is another one at its step."""
        tried = self._taken_out(attempt)
        if tried is None:
            return False
        tried.machines.add(machine)
        tried.handed_back = True
        if tried.attempts:
            return False
        del self._wanted[key_of(attempt.step)]
        return True

    def _taken_out(self, attempt: Attempt) -> _Tried | None:
        """Count an attempt out. Returns its step, None if its outcome is not wanted."""
        self._running[attempt.place] -= 1
        tried = self._wanted.get(key_of(attempt.step))
        if tried is None or attempt not in tried.attempts:
            return None
        tried.attempts.remove(attempt)
        return tried

    def _next(self, slots: Slots) -> Attempt | None:
        """The first attempt at the first step that waits and has a free place."""
        for place in free_places(slots, self._running):
            for uses in _TAKES[place]:
                step = self._order.next_fitting(partial(self._is_among, uses), self._measured.correction)
                if step is not None:
                    return Attempt(step, place)
        return None

    def _is_among(self, uses: frozenset[GpuUse], kind: type[Step]) -> bool:
        return gpu_use(kind, self._encoder) in uses

    def _another(self, tried: _Tried, slots: Slots, *, spread: bool = False) -> Attempt:
        place = self._place_for(tried.attempts[0], slots)
        return self.add(Attempt(tried.step, place, frozenset(tried.machines), spread))

    def _place_for(self, first: Attempt, slots: Slots) -> Place:
        """The place for another attempt, that of the first one if none is free."""
        kind = type(first.step)
        fitting = (
            place
            for place in free_places(slots, self._running)
            if any(self._is_among(uses, kind) for uses in _TAKES[place])
        )
        return next(fitting, first.place)

    def _slow(self, slots: Slots, now: float) -> list[tuple[float, _Tried]]:
        """The steps that take much longer than usual, with how many times; the longest first. Those of lost machines
        take infinitely long."""
        slow = []
        there = {each.id for each in slots.machines}
        for tried in self._wanted.values():
            if tried.begun is None or not _may_have_another(tried, slots):
                continue
            if _is_lost(tried, there, now):
                slow.append((math.inf, tried))
                continue
            seconds = now - tried.begun
            if seconds > _LEAST_SECONDS:
                # The second attempt is given time as well.
                times = self._times(tried, seconds, now) / _FAR_LONGER ** (len(tried.attempts) - 1)
                if times > _MUCH_LONGER:
                    slow.append((times, tried))
        return sorted(slow, key=lambda each: -each[0])

    def _times(self, tried: _Tried, seconds: float, now: float) -> float:
        """How many times as long as usual a step takes that has taken `seconds`."""
        usual = self._measured.most_usual(tried.cost_class, tried.attempts[0].place)
        if usual is None or not tried.expected_seconds:
            return _FAR_LONGER * (now - tried.moved) / _SILENT_SECONDS
        return seconds / (usual * tried.expected_seconds)


def _is_lost(tried: _Tried, there: Collection[str], now: float) -> bool:
    """Whether all attempts at a step have been on machines that are not `there` any more for longer than Ray takes to
    say so. Where there is no machine, they may come again."""
    is_lost = bool(there) and len(tried.heard.difference(there)) >= len(tried.attempts)
    tried.lost = (now if tried.lost is None else tried.lost) if is_lost else None
    return tried.lost is not None and now - tried.lost > _FOR_WORD_SECONDS


def _may_have_another(tried: _Tried, slots: Slots) -> bool:
    """Whether a step may be attempted once more. A third attempt needs a machine that has not attempted it, since the
    second one may hang as the first one does. So does each further attempt once a machine had no room for one."""
    if len(tried.attempts) == 1 and not tried.handed_back:
        return True
    return len(tried.attempts) < _MOST_ATTEMPTS and any(each.id not in tried.machines for each in slots.machines)
