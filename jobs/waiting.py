"""The steps that wait: the longest first, and the longest that fits into a time."""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Iterable
from math import inf

from .steps import Join, Look, OneSection, Step, Whole

# Joining copies no video. A look reads the packets of a source, which takes a small part of encoding it.
_JOIN_SECONDS = 1.0
_LOOK_PART = 0.02
# How many steps are looked at to find one whose memory fits.
_MEMORY_TRIES = 16
_LENGTHS = 20


def seconds_of(step: Step) -> float:
    """How long one core is expected to take for a step."""
    match step:
        case Look():
            return step.unit.expected_seconds * _LOOK_PART
        case OneSection():
            return step.unit.expected_seconds / max(1, step.cut.sections)
        case Join():
            return _JOIN_SECONDS
        case Whole():
            return step.unit.expected_seconds


def work_of(step: Step) -> float:
    """How long one core is expected to take for a step and, where it is a look, for what follows from it."""
    return step.unit.expected_seconds if isinstance(step, Look) else seconds_of(step)


def _rank(step: Step) -> int:
    """Steps of a higher rank come first, whatever time they take: other steps wait for a look, and a job for joins."""
    return {Join: 2, Look: 1, OneSection: 0, Whole: 0}[type(step)]


_RANKS = (2, 1, 0)


# How long a step takes and its number. Of steps that take as long the earliest has the greatest number.
_Entry = tuple[float, int]


class Waiting:
    """Steps that wait. `additions` counts how often steps were added."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._ranks: dict[int, list[_Entry]] = {rank: [] for rank in _RANKS}
        self._steps: dict[int, Step] = {}
        self._numbers = itertools.count(0, -1)
        self._first = itertools.count(1)
        self.work_seconds = 0.0
        self.additions = 0
        self.add(steps)

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def shortest_seconds(self) -> float:
        """How long one core takes for the shortest step that is no look and no join."""
        return self._ranks[0][0][0] if self._ranks[0] else 0.0

    def at_least(self) -> list[tuple[float, float]]:
        """(seconds, how long one core takes for all steps that take as long or longer), for some lengths of steps:
        those of the shortest and the longest, and some in between. Looks and joins are not among them."""
        entries = self._ranks[0]
        sums = list(itertools.accumulate(seconds for seconds, _ in reversed(entries)))
        numbers = {round(part / _LENGTHS * (len(entries) - 1)) for part in range(_LENGTHS + 1)} if entries else set()
        return [(entries[number][0], sums[len(entries) - 1 - number]) for number in sorted(numbers)]

    def add(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._put(step, next(self._numbers))

    def add_first(self, steps: Iterable[Step]) -> None:
        """Add steps that come before others of their rank that take as long."""
        for step in reversed(list(steps)):
            self._put(step, next(self._first))

    def next_seconds(self, within_seconds: float = inf) -> float:
        """How long one core takes for the step that `take` would return; 0 if there is none."""
        found = self._find(within_seconds, inf)
        return 0.0 if found is None else self._ranks[found[0]][found[1]][0]

    def take(self, within_seconds: float = inf, memory_bytes: float = inf) -> Step | None:
        """Remove and return the first step that one core does within this time, and that needs no more memory."""
        found = self._find(within_seconds, memory_bytes)
        if found is None:
            return None
        rank, index = found
        step = self._steps.pop(self._ranks[rank].pop(index)[1])
        self.work_seconds -= work_of(step)
        return step

    def _find(self, within_seconds: float, memory_bytes: float) -> tuple[int, int] | None:
        """The rank of a step and its place there."""
        for rank in _RANKS:
            entries = self._ranks[rank]
            last = bisect_right(entries, (within_seconds, inf)) - 1
            for index in range(last, max(-1, last - _MEMORY_TRIES), -1):
                if self._steps[entries[index][1]].unit.memory_bytes <= memory_bytes:
                    return rank, index
        return None

    def leave_out(self, unit_id: str) -> int:
        """Remove the steps of a unit. Returns how many there were."""
        before = len(self._steps)
        left = {number: step for number, step in self._steps.items() if step.unit.id != unit_id}
        if len(left) < before:
            self._steps = left
            for rank, entries in self._ranks.items():
                self._ranks[rank] = [entry for entry in entries if entry[1] in left]
            self.work_seconds = sum(map(work_of, left.values()))
        return before - len(left)

    def _put(self, step: Step, number: int) -> None:
        insort(self._ranks[_rank(step)], (seconds_of(step), number))
        self._steps[number] = step
        self.work_seconds += work_of(step)
        self.additions += 1
