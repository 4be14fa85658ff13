"""Holes in the times of a damaged source, which say where frames were lost without a word. All functions are pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

# A hole in the timestamps of a damaged source counts as lost frames if it is longer than this many median intervals.
_HOLE_INTERVALS = 1.5
_EVEN_SHARE = 0.8
# By how much of an interval evenly spaced frames may be closer or further apart: the milliseconds of Matroska are a
# quarter of one at 240 frames/s.
_EVEN_PART = 0.3
# Lost frames that are further than this part of an interval from where one of even ones would be have wrong times.
_OFF_PART = 0.25


@dataclass(frozen=True)
class Spacing:
    """The median interval between frames, in units of the timebase, 0 where there is none. `is_even`: most intervals
    are about as long, so that a frame missing from a damaged file was lost, not dropped in recording."""

    interval: int
    is_even: bool

    def is_hole(self, pts: int, next_pts: int, max_hole_units: int) -> bool:
        """Whether frames may have been lost between two that follow one another. A longer hole is a gap in the
        timestamps."""
        longest = max(max_hole_units, 2 * self.interval)
        return self.interval > 0 and _HOLE_INTERVALS * self.interval < next_pts - pts <= longest


def spacing_of(times: Sequence[int]) -> Spacing:
    """How frames at these pts, which do not fall, are spaced."""
    intervals = [after - before for before, after in pairwise(times) if after > before]
    interval = int(np.median(intervals)) if intervals else 0
    is_even = sum(abs(each - interval) <= interval / 10 for each in intervals) >= _EVEN_SHARE * len(intervals)
    return Spacing(interval, is_even)


def off_beat(sound: Sequence[int], lost: Sequence[int]) -> set[int]:
    """The times of lost frames between sound ones that cannot be right, as the sound ones, at these times, are evenly
    spaced: of what is damaged in a frame its time may be a part. Times rise."""
    spacing = spacing_of(sound)
    if not (spacing.is_even and spacing.interval):
        return set()
    known, times = np.array(sound), np.array(lost, dtype=np.int64)
    steps = np.diff(known)
    is_even = np.abs(steps - spacing.interval) <= spacing.interval / 10 + 1
    # The exact interval, of which times may be rounded to whole milliseconds, and by how much it may be wrong: each run
    # of even steps has a rounded time at both ends.
    interval, error = steps[is_even].mean(), (np.count_nonzero(~is_even) + 1) / np.count_nonzero(is_even)
    behind = np.searchsorted(known, times)
    is_between = (behind > 0) & (behind < len(known))
    times, before, after = times[is_between], known[behind[is_between] - 1], known[behind[is_between]]
    count = np.maximum(1, np.rint((after - before) / interval))
    off, step = times - before, (after - before) / count
    off = np.abs(off - np.rint(off / step) * step)
    return set(times[(off > _OFF_PART * interval) & (count * error <= _OFF_PART * interval)].tolist())


def after_holes(
    pts: Sequence[int | None], entries: Sequence[bool], max_hole_units: int, clean: Collection[int] = ()
) -> set[int]:
    """The numbers of packets, in decode order, that may refer to a frame that is lost in a hole: up to the next entry.

    Where only some frames are missing from evenly spaced ones, of a codec whose frames are not numbered, nothing else
    tells. `entries`: at which packets a decoder may start; `clean`: those before which frames are missing to which no
    other frame refers. A hole that the end of a cut file made is none: the frames in it would have come after all
    others.
    """
    known = sorted((time, number) for number, time in enumerate(pts) if time is not None)
    spacing = spacing_of([time for time, _ in known])
    if not spacing.is_even:
        return set()
    is_reordered = [number for _, number in known] != sorted(number for _, number in known)
    found: set[int] = set()
    for (time, number), (next_time, next_number) in pairwise(known):
        if next_number in clean or not spacing.is_hole(time, next_time, max_hole_units):
            continue
        if is_reordered and all(each is None or each <= next_time for each in pts[next_number:]):
            continue
        first = next_number
        if is_reordered:
            # A lost frame may have been decoded, and referred to, anywhere between the entries.
            first = min(number, next_number)
            while first and not entries[first]:
                first -= 1
            first += 1
        while first < len(entries) and not entries[first]:
            found.add(first)
            first += 1
    return found


def frames_behind_hole(pts: Sequence[int], last_dts: int | None, *, is_cut: bool) -> int:
    """How many frames at the end of a stream lie after a hole, because the stream ends before the B-frames in the hole.

    Missing frames would have been decoded after `last_dts`, and are shown after it. A pause looks the same, so unless
    the stream is known to be cut, all other frames have to be evenly spaced.
    """
    times = np.unique(np.array(pts, dtype=np.int64))
    if last_dts is None or len(times) < 3:
        return 0
    intervals = np.diff(times)
    usual = float(np.median(intervals))
    holes = intervals > _HOLE_INTERVALS * usual
    late = times[1:] > last_dts
    is_even = (np.abs(intervals - usual) <= _EVEN_PART * usual)[~late].all()
    if not (holes & late).any() or not (is_cut or is_even):
        return 0
    return len(times) - 1 - int(np.flatnonzero(holes & late)[0])
