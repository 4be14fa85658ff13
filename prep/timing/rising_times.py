"""The times of frames that do not all rise: which of them do, and where there is room for the others."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from ...manifests.ragged import Array

# How much room, in intervals, a frame must have to be put between two others.
_ROOM = 0.75


def spaced(times: Array) -> Array:
    """The times of frames in the order of the decoder's output, with those put right that do not rise, where as many
    frames are missing. `times`: int64, (frames,)."""
    # Of two frames at the same time either may be wrong: there is room before the first or behind the second.
    return -_spaced(-_spaced(times)[::-1])[::-1]


def spaced_to_end(times: Array) -> Array:
    """The times that `spaced` finds. A last frame at the time of the one before, as program streams have it around
    B-frames, lasts as long as that one: nothing behind it says that it has no room."""
    found = spaced(times)
    steps = np.diff(found[-3:])
    return np.append(found[:-1], found[-2] + steps[0]) if len(steps) == 2 and steps[1] == 0 < steps[0] else found


def _spaced(times: Array) -> Array:
    rising = np.flatnonzero(longest_rise(times))
    before, after = rising[:-1], rising[1:]
    counts, spans = after - before, times[after] - times[before]
    interval = float(np.median(spans[counts == 1])) if (counts == 1).any() else 0.0
    found = times.copy()
    for place in np.flatnonzero((counts > 1) & (spans >= counts) & (spans >= _ROOM * interval * counts)).tolist():
        first, count = int(before[place]), int(counts[place])
        found[first : first + count] = times[first] + np.arange(count) * int(spans[place]) // count
    return found


def longest_rise(times: Array) -> Array:
    """The most frames whose times rise from each to the next, as a mask: bool, (frames,).

    A frame with a single wrong time is one frame less, also where that time is later than all that follow. Of choices
    with as many frames it is the one with the earliest.
    """
    rises = np.diff(times) > 0
    if rises.all():
        return np.ones(len(times), dtype=bool)
    # From the end: minus the greatest time that so many rising frames can begin with; bisect wants rising numbers.
    starts: list[int] = []
    lengths = []
    for time in (-times[::-1]).tolist():
        place = bisect_left(starts, time)
        starts[place : place + 1] = [time]
        lengths.append(place + 1)
    chosen = np.zeros(len(times), dtype=bool)
    left, latest = len(starts), None
    for frame, (time, length) in enumerate(zip(times.tolist(), reversed(lengths), strict=True)):
        if length == left and (latest is None or time > latest):
            chosen[frame] = True
            left, latest = left - 1, time
    return chosen
