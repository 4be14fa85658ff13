"""In which order the steps of a job are run, and what follows from each outcome. Knows nothing of where they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from .costs import CostClass
from .steps import Join, Look, MoreMemory, OneSection, Outcome, Refused, SectionDone, Sections, Step, Whole
from .unit_results import UnitResult
from .units import Unit
from .waiting import Waiting
from .windows import WINDOW_SOURCES

# Returns more units: an empty sequence if the next ones are not planned yet, None if there are no more. With True it
# waits for planned ones.
More = Callable[[bool], Sequence[Unit] | None]


AHEAD_SECONDS = 480.0
"""So much work for each core waits, if memory allows, because what is planned last may take long: four times as long as
a section or a unit is expected to take at most. With less the others would be done long before (jobs.md)."""
_MOST_WINDOWS = 30


def no_more(_wait: bool) -> None:
    """A More that has no units."""


class Order:
    """The steps that wait. `next` and `next_fitting` give one, the longest first, and `done` takes its outcome.

    Units that come later are taken from `more` as soon as fewer than `few_sources` wait, or little work for a large
    cluster: enough to keep every core busy with the longest steps first, and, as thirty times as many sources are most,
    few enough for memory.
    """

    def __init__(
        self,
        units: Iterable[Unit] = (),
        more: More = no_more,
        *,
        few_sources: int = WINDOW_SOURCES,
    ) -> None:
        self._waiting = Waiting()
        self._more: More | None = more
        self._few_sources = few_sources
        self._most_sources = _MOST_WINDOWS * few_sources
        self._add(units)
        # By unit: how many of its sections are not done, and whether it has to be encoded whole.
        self._sections_left: dict[str, int] = {}
        self._refused: set[str] = set()

    def __bool__(self) -> bool:
        return len(self._waiting) > 0

    def fill(self, *, wait: bool, cores: int = 0) -> bool:
        """Take more units while few wait for so many cores. With `wait`, which is for a caller with no step running, it
        waits for more units if no step waits. Returns whether any step waits."""
        while self._more is not None and self._are_few(cores):
            units = self._more(wait and not self)
            if units is None:
                self._more = None
            elif units:
                self._add(units)
            else:
                break
        return bool(self)

    def _are_few(self, cores: int) -> bool:
        waiting = self._waiting
        if waiting.sources < self._few_sources:
            return True
        # Where nothing is known of times, none of the work that waits is counted.
        return waiting.sources < self._most_sources and 0 < waiting.seconds < AHEAD_SECONDS * cores

    def next(self) -> Step:
        """The first step. IndexError if none waits."""
        step = self._waiting.take()
        if step is None:
            raise IndexError("no step waits")
        return step

    def next_fitting(self, fits: Callable[[type[Step]], bool], correction: Callable[[CostClass], float]) -> Step | None:
        """The first step of a kind that `fits`, None if there is none. `correction` is that of `Waiting.take`."""
        return self._waiting.take(fits=fits, correction=correction)

    def again(self, steps: Iterable[Step]) -> None:
        """Steps to run before others that take as long."""
        self._waiting.add_first(steps)

    def done(self, step: Step, outcome: Outcome) -> UnitResult | None:
        """Take the outcome of a step. Returns the result of its unit where that is finished."""
        unit = step.unit
        if isinstance(outcome, MoreMemory):
            self.again([replace(step, unit=replace(unit, expected_bytes=outcome.needed_bytes))])
            return None
        if isinstance(outcome, Sections):
            self._sections_left[unit.id] = len(outcome.sections)
            if outcome.needed_bytes is not None:
                unit = replace(unit, expected_bytes=outcome.needed_bytes, guesses_memory=False)
            self.again(OneSection(unit, outcome.cut, number, each) for number, each in enumerate(outcome.sections))
            return None
        if isinstance(step, OneSection):
            return self._section_done(step, outcome)
        if isinstance(outcome, Refused):
            self.again([Whole(unit)])
            return None
        if isinstance(outcome, UnitResult):
            return outcome
        raise AssertionError(f"{type(step).__name__} has no outcome {type(outcome).__name__}")

    def give_up(self, step: Step) -> bool:
        """Leave out the other steps of a unit. False if it was given up before: several of its sections may fail."""
        unit = step.unit
        if isinstance(step, OneSection) and unit.id not in self._sections_left:
            return False
        self._waiting.leave_out(unit.id)
        self._sections_left.pop(unit.id, None)
        return True

    def _add(self, units: Iterable[Unit]) -> None:
        self._waiting.add(Look(unit) if unit.is_long else Whole(unit) for unit in units)

    def _section_done(self, step: OneSection, outcome: Outcome) -> UnitResult | None:
        unit = step.unit
        if unit.id not in self._sections_left:
            # The unit was given up, or another job had finished it.
            return None
        if isinstance(outcome, UnitResult):
            self._waiting.leave_out(unit.id)
            del self._sections_left[unit.id]
            return outcome
        self._sections_left[unit.id] -= 1
        if not isinstance(outcome, SectionDone):
            # Those that run are waited for: the same worker may be needed for the whole video.
            self._refused.add(unit.id)
            self._sections_left[unit.id] -= self._waiting.leave_out(unit.id)
        if not self._sections_left[unit.id]:
            del self._sections_left[unit.id]
            self.again([Whole(unit) if unit.id in self._refused else Join(unit, step.cut)])
        return None
