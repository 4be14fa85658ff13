"""Which frames of the decoder's output are used, for ffmpeg's filter that selects them. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
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
    runs = []
    for is_used, run in groupby(times, key=lambda each: each[1]):
        if is_used:
            used = [pts for pts, _ in run]
            runs.append((used[0], used[-1]))
    return Kept("pts", tuple(runs))


def kept_range(numbers: range) -> Kept:
    """A selection of the frames with these numbers."""
    return Kept("n", ((numbers.start, numbers.stop - 1),))


def kept_numbers(keeps: Sequence[bool]) -> Kept:
    """A selection by frame number, from one bool for each frame that the decoder puts out."""
    runs = []
    for keep, run in groupby(enumerate(keeps), key=lambda each: each[1]):
        if keep:
            numbers = [number for number, _ in run]
            runs.append((numbers[0], numbers[-1]))
    return Kept("n", tuple(runs))
