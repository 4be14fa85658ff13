"""The steps that wait: looks and joins first, then the longest."""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Iterable

from .steps import Join, Look, OneSection, Step, Whole

# Other steps wait for a look, and a job for its joins: they come first, whatever time they take.
_RANKS = {OneSection: 0, Whole: 0, Look: 1, Join: 2}


def seconds_of(step: Step) -> float:
    """How long one core is expected to take for a step, of a look or a join for all of their unit."""
    return step.unit.expected_seconds / (step.cut.sections if isinstance(step, OneSection) else 1)


class Waiting:
    """Steps that wait. Of those that take as long the first one that was added is taken first."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        # The rank of each, how long it takes, and its number. The greatest is taken first.
        self._order: list[tuple[int, float, int]] = []
        self._steps: dict[int, Step] = {}
        self._last, self._first = itertools.count(0, -1), itertools.count(1)
        self._sources = 0
        self.add(steps)

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def sources(self) -> int:
        """How many sources the steps are about; each section of a source counts."""
        return self._sources

    def add(self, steps: Iterable[Step]) -> None:
        """Add steps that come after others of their kind that take as long."""
        for step in steps:
            self._put(step, next(self._last))

    def add_first(self, steps: Iterable[Step]) -> None:
        """Add steps that come before others of their kind that take as long."""
        for step in reversed(list(steps)):
            self._put(step, next(self._first))

    def take(self) -> Step:
        """Remove and return the first step. IndexError if there is none."""
        step = self._steps.pop(self._order.pop()[2])
        self._sources -= len(step.unit.items)
        return step

    def leave_out(self, unit_id: str) -> int:
        """Remove the steps of a unit. Returns how many there were."""
        gone = {number for number, step in self._steps.items() if step.unit.id == unit_id}
        if gone:
            self._sources -= sum(len(self._steps[number].unit.items) for number in gone)
            self._steps = {number: step for number, step in self._steps.items() if number not in gone}
            self._order = [entry for entry in self._order if entry[2] not in gone]
        return len(gone)

    def _put(self, step: Step, number: int) -> None:
        insort(self._order, (_RANKS[type(step)], seconds_of(step), number))
        self._steps[number] = step
        self._sources += len(step.unit.items)
