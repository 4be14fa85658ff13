"""What steps take of what was expected of them, by classes of work. Pure.

What is expected rests on numbers of pixels, or on bytes alone. How wrong that is depends on what a file holds (its
codec, its container), on what was known of it, and on the kind of step, and is about the same for all steps of a class.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from typing import NamedTuple

from ..finding.source import Source
from ..finding.source_parts import Member
from ..finding.video_names import is_video_name
from .gpu_slots import Place
from .steps import Join, Look, OneSection, Step, Whole

# What is usual is the median over the last steps of a class, of which there have to be at least `_ENOUGH_STEPS`.
_LAST_STEPS, _ENOUGH_STEPS = 101, 3
# A step that took a smaller part of its expected time was done before, or its source is no video.
_LEAST_RATIO = 0.05
# What a look and a join take of what their whole video takes, until that was measured. A look reads all packets once. A
# join reads a small file for each minute of encoding.
_SHARES: dict[type[Step], float] = {Look: 0.05, Join: 0.01}
# So many times as long as others may take what is of a class of which nothing is known.
_UNKNOWN_TIMES = 3.0


class CostClass(NamedTuple):
    """Steps of which what is expected is wrong by about the same factor. `is_guess`: only the bytes of the sources were
    known. `source` is the suffix of a source, or which part of a file it is."""

    kind: type[Step]
    is_guess: bool = False
    source: str = ""


def class_of(step: Step, *, encodes: bool = False) -> CostClass:
    """The class of a step. A look that `encodes` has found that the video cannot be cut, and encodes it whole."""
    kind = type(step)
    if isinstance(step, Join) or (isinstance(step, Look) and not encodes):
        return CostClass(kind)
    return CostClass(Whole if kind is Look else kind, step.unit.is_guess, _source_kind(step.unit.items[0].source))


def seconds_of(step: Step) -> float:
    """How long one core is expected to take for a step, of a look or a join for all of their unit."""
    return step.unit.expected_seconds / (step.cut.sections if isinstance(step, OneSection) else 1)


class Measured:
    """What the last steps of each class took of what was expected of them, in each place."""

    def __init__(self) -> None:
        self._begun: Counter[CostClass] = Counter()
        # With None for the class: all that encode.
        self._ratios: dict[tuple[CostClass | None, Place | None], deque[float]] = {}
        self._medians: dict[tuple[CostClass | None, Place | None], float] = {}

    def began(self, cost_class: CostClass) -> None:
        self._begun[cost_class] += 1

    def took(self, cost_class: CostClass, place: Place, ratio: float) -> None:
        """A step took `ratio` times as long as expected."""
        if cost_class.kind in _SHARES:
            self._add(cost_class, None, ratio)
        elif ratio >= _LEAST_RATIO:
            self._add(cost_class, place, ratio)
            self._add(None, place, ratio)

    def most_usual(self, cost_class: CostClass, place: Place) -> float | None:
        """How many times as long as expected steps of a class usually take in a place, at most; None if that cannot be
        said."""
        if cost_class.kind in _SHARES:
            return self._medians.get((cost_class, None), _SHARES[cost_class.kind])
        usual = self._medians.get((cost_class, place))
        if usual is None and (None, place) in self._medians:
            return _UNKNOWN_TIMES * self._medians[None, place]
        return usual

    def correction(self, cost_class: CostClass) -> float:
        """By which factor to correct what is expected of steps of a class when they are put in order. It is infinite
        until a few have begun: so each class is measured early."""
        if cost_class.kind in _SHARES:
            return 1.0
        if self._begun[cost_class] < _ENOUGH_STEPS:
            return math.inf
        # GPUs change all times by about the same factor, so figures of CPUs are compared with each other.
        of_class: tuple[CostClass | None, ...] = (cost_class, None)
        places: tuple[Place, ...] = ("cpu", "gpu")
        known = (self._medians.get((each, place)) for each in of_class for place in places)
        return next((median for median in known if median is not None), 1.0)

    def _add(self, cost_class: CostClass | None, place: Place | None, ratio: float) -> None:
        ratios = self._ratios.setdefault((cost_class, place), deque(maxlen=_LAST_STEPS))
        ratios.append(ratio)
        if len(ratios) >= _ENOUGH_STEPS:
            self._medians[cost_class, place] = statistics.median(ratios)


def _source_kind(source: Source) -> str:
    part = source.part
    if part is not None and not isinstance(part, Member):
        return type(part).__name__
    name = source.path if part is None else part.name
    # Other names may end in as many ways as there are sources.
    return name.rpartition(".")[2].lower() if is_video_name(name) else ""
