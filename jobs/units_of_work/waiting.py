"""The steps that wait: looks and joins first, then the longest."""

from __future__ import annotations

import itertools
import math
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable

from .costs import CostClass, class_of, seconds_of
from .steps import Join, Look, OneSection, Step, Whole

# Other steps wait for a look, and a job for its joins: they come first, whatever time they take.
_RANKS: dict[type[Step], int] = {OneSection: 0, Whole: 0, Look: 1, Join: 2}


def _as_expected(_cost_class: CostClass) -> float:
    return 1.0


def _any(_kind: type[Step]) -> bool:
    return True


class Waiting:
    """Steps that wait. Of those that take as long the first one that was added is taken first."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        # By class, how long each step is expected to take, and its number. The greatest is taken first. How long it
        # will take is the expected time by a factor of its class, which changes while the steps wait.
        self._orders: defaultdict[CostClass, list[tuple[float, int]]] = defaultdict(list)
        self._steps: dict[int, Step] = {}
        self._last, self._first = itertools.count(0, -1), itertools.count(1)
        self._sources = 0
        self._seconds = 0.0
        self.add(steps)

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def sources(self) -> int:
        """How many sources the steps are about; each section of a source counts."""
        return self._sources

    @property
    def seconds(self) -> float:
        """How long one core is expected to take for the steps, without those of which nothing is known."""
        return self._seconds

    def add(self, steps: Iterable[Step]) -> None:
        """Add steps that come after others of their kind that take as long."""
        for step in steps:
            self._put(step, next(self._last))

    def add_first(self, steps: Iterable[Step]) -> None:
        """Add steps that come before others of their kind that take as long."""
        for step in reversed(list(steps)):
            self._put(step, next(self._first))

    def take(
        self,
        *,
        fits: Callable[[type[Step]], bool] = _any,
        correction: Callable[[CostClass], float] = _as_expected,
    ) -> Step | None:
        """Remove and return the first step of a kind that `fits`; None if there is none. `correction` is the factor by
        which steps of a class take longer than expected; infinite for those that come before others."""

        def urgency(cost_class: CostClass) -> tuple[int, float, int]:
            seconds, number = self._orders[cost_class][-1]
            return _RANKS[cost_class.kind], seconds * correction(cost_class) if seconds else 0.0, number

        first = max((each for each in self._orders if fits(each.kind)), key=urgency, default=None)
        if first is None:
            return None
        order = self._orders[first]
        # One that takes neither very long nor next to nothing soon says how long the others take.
        is_trial = math.isinf(correction(first))
        _, number = order.pop(len(order) // 2 if is_trial else -1)
        if not order:
            del self._orders[first]
        step = self._steps.pop(number)
        self._count(step, -1)
        return step

    def leave_out(self, unit_id: str) -> int:
        """Remove the steps of a unit. Returns how many there were."""
        gone = {number: step for number, step in self._steps.items() if step.unit.id == unit_id}
        for number, step in gone.items():
            self._count(step, -1)
            del self._steps[number]
        for cost_class in set(map(class_of, gone.values())):
            left = [entry for entry in self._orders.pop(cost_class) if entry[1] not in gone]
            if left:
                self._orders[cost_class] = left
        return len(gone)

    def _put(self, step: Step, number: int) -> None:
        insort(self._orders[class_of(step)], (seconds_of(step), number))
        self._steps[number] = step
        self._count(step, 1)

    def _count(self, step: Step, times: int) -> None:
        self._sources += times * len(step.unit.items)
        self._seconds = self._seconds + times * seconds_of(step) if self._steps else 0.0
