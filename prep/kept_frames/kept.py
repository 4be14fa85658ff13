"""Which frames of the decoder's output are used, for ffmpeg's filter that selects them. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Kept:
    """Which frames of the decoder's output are used: `runs` of [first, last] values of `variable`. That is "pts" or,
    where pts are unreliable, "n", the number of the frame."""

    variable: str
    runs: tuple[tuple[int, int], ...]


def kept_times(times: Sequence[tuple[int, bool]]) -> Kept:
    """A selection by pts, from the pts of each frame, which rise, and whether it is used."""
    return Kept("pts", _runs(times))


def kept_numbers(keeps: Sequence[bool]) -> Kept:
    """A selection by frame number, from one bool for each frame that the decoder puts out."""
    return Kept("n", _runs(enumerate(keeps)))


def kept_range(numbers: range) -> Kept:
    """A selection of the frames with these numbers."""
    return Kept("n", ((numbers.start, numbers.stop - 1),))


def _runs(values: Iterable[tuple[int, bool]]) -> tuple[tuple[int, int], ...]:
    """The first and the last value of each run of those that are used."""
    runs = []
    for is_used, run in groupby(values, key=lambda each: each[1]):
        if is_used:
            used = [value for value, _ in run]
            runs.append((used[0], used[-1]))
    return tuple(runs)
