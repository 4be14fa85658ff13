"""Which constant rate a source gets when none was asked for.

A source whose frames are evenly spaced keeps its exact rate (`constant_rate`). For one whose are not, a rate is chosen
by what it costs (`variable_rate`):

1. Candidates are the standard rate whose interval is the ordinary one but for the timebase's rounding, the rate of the
   ordinary intervals itself, the container's claims, the standard rates, and the rates at which some interval of the
   source lasts one tick; among these only such that the video has at most 10,000 frames more than 30 times as many as
   the source, and that a tick is not longer than five quarters of the median interval.
2. The lowest of them that leaves out at most one source frame in a hundred, or one, is found. Two frames that stand
   closer together than all others must not multiply the whole video. Where up to a quarter of the frames follow another
   within 1/240 s, which nothing records so fast, they do not count at all.
3. From there up to five quarters of it, the rate that leaves out the fewest is taken: of several that leave out as few
   the first in the order of (1), so that a 30 fps recording with frames missing becomes 30 and not 29.97.

Where none of them leaves out that few, the one that leaves out the fewest is taken, and of several the lowest.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from ..manifests.ragged import Array
from .grid import TickRule, count_dropped, ordinary_interval

# Rates that cameras and editors write. A constant-rate file whose timebase is coarse (Matroska: milliseconds) only
# shows its rate to within that timebase; the exact one is found among these.
STANDARD_RATES = tuple(
    Fraction(n, d)
    for n, d in (
        (24000, 1001), (24, 1), (25, 1), (30000, 1001), (30, 1), (48000, 1001), (48, 1), (50, 1),
        (60000, 1001), (60, 1), (100, 1), (120000, 1001), (120, 1), (240, 1),
        (5, 1), (6, 1), (8, 1), (10, 1), (12, 1), (12000, 1001), (25, 2), (15000, 1001), (15, 1), (20, 1),
    )
)  # fmt: skip
MIN_RATE, MAX_RATE = Fraction(1, 1000), Fraction(1000)
# What a single frame lasts when nobody says.
_USUAL_RATE = Fraction(25)
# An MP4's timescale has 32 bits, and a frame's ticks have some less, as several of them have to fit an offset.
_MAX_NUMERATOR, _MAX_DENOMINATOR = 1 << 32, 1 << 28
_MAX_INFLATION, _ALWAYS_ALLOWED_FRAMES = 30, 10_000
_NEAR = Fraction(5, 4)
_INTERVALS_TRIED = 32
# Frames closer together than at the fastest standard rate are twins where they are the exception.
_TWIN_SECONDS, _TWIN_PART, _MOST_TWINS = Fraction(1, 240), 4, 4


def constant_rate(pts: Array, timebase: Fraction, hints: tuple[Fraction, ...]) -> Fraction | None:
    """The exact rate of a source whose frames have these `pts` (int64, strictly rising, at least one), or None when
    they are not evenly spaced.

    `hints` are rates that the container claims. They come before the standard ones, and all only count when every
    single pts lies within one unit of the timebase of where that rate puts it, and each frame has a tick to itself. A
    rate that no MP4 can have is none. A single frame has the first claim, or 25 frames/s.
    """
    if len(pts) == 1:
        return next((hint for hint in hints if _possible(hint)), _USUAL_RATE)
    spans = pts - pts[0]
    mean = Fraction(len(pts) - 1) / (int(spans[-1]) * timebase)
    for rate in (*hints, *STANDARD_RATES, mean):
        # A cheap look first: a wrong rate has drifted away by the last frame.
        if (
            _possible(rate)
            and _lies_on(spans[-1:], np.array([len(pts) - 1]), timebase, rate)
            and _lies_on(spans, np.arange(len(pts)), timebase, rate)
            and np.array_equal(TickRule.of(pts, timebase, rate, 1 / rate).ticks(pts), np.arange(len(pts)))
        ):
            return rate
    return None


def _possible(rate: Fraction) -> bool:
    return MIN_RATE <= rate <= MAX_RATE and rate.numerator < _MAX_NUMERATOR and rate.denominator < _MAX_DENOMINATOR


def _lies_on(spans: Array, numbers: Array, timebase: Fraction, rate: Fraction) -> bool:
    """Whether frame number n is within one timebase unit of n / rate."""
    step = 1 / (rate * timebase)
    # |span - n * step| <= 1, in integers: floats would lose it on long videos.
    drift = spans.astype(object) * step.denominator - numbers.astype(object) * step.numerator
    return bool((abs(drift) <= step.denominator).all())


def variable_rate(pts: Array, end_pts: int, timebase: Fraction, hints: tuple[Fraction, ...] = ()) -> Fraction:
    """The rate for frames that are not evenly spaced, two or more, the last of which ends at `end_pts`: see above."""
    candidates = [rate for rate in dict.fromkeys(_candidates(pts, timebase, hints)) if _possible(rate)]
    seconds = (end_pts - int(pts[0])) * timebase
    most_frames = _MAX_INFLATION * len(pts) + _ALWAYS_ALLOWED_FRAMES
    interval = ordinary_interval(pts, timebase)
    pts = _without_twins(pts, timebase)
    # The rate of the mean interval makes about as many frames as the source has; only years have too many at any rate.
    affordable = [rate for rate in candidates if seconds * rate <= most_frames] or [min(candidates)]
    affordable = [rate for rate in affordable if rate * (interval or 0) * _NEAR >= 1] or affordable
    dropped = {rate: count_dropped(TickRule.of(pts, timebase, rate, interval), pts, end_pts) for rate in affordable}
    good = [rate for rate in affordable if dropped[rate] <= max(1, len(pts) // 100)]
    if not good:
        return min(affordable, key=lambda rate: (dropped[rate], rate))
    lowest = min(good)
    # The first of the least ones: `affordable` is still in the order of preference.
    return min((rate for rate in affordable if lowest <= rate <= lowest * _NEAR), key=dropped.__getitem__)


def _without_twins(pts: Array, timebase: Fraction) -> Array:
    """The pts without those closely behind another, where all others are much further apart."""
    intervals = np.diff(pts)
    apart = float(np.median(intervals)) / _TWIN_PART
    is_twin = (intervals < apart) & (intervals < float(_TWIN_SECONDS / timebase))
    if not 0 < np.count_nonzero(is_twin) <= len(pts) // _MOST_TWINS:
        return pts
    return np.asarray(pts[np.concatenate([[True], ~is_twin])])


def _candidates(pts: Array, timebase: Fraction, hints: Iterable[Fraction]) -> Iterable[Fraction]:
    intervals = np.diff(pts)
    ordinary = _ordinary_rate(intervals, timebase)
    common = min(STANDARD_RATES, key=lambda known: abs(known - ordinary))
    if abs(1 / common - 1 / ordinary) <= timebase:
        yield common
    yield ordinary
    yield from hints
    yield from sorted(STANDARD_RATES)
    yield _plain(len(intervals) / (int(intervals.sum()) * timebase))
    # Python's integers: an interval may have any length.
    for interval in np.unique(np.quantile(intervals, np.linspace(0, 1, _INTERVALS_TRIED), method="lower")).tolist():
        yield _plain(1 / (interval * timebase))


def _ordinary_rate(intervals: Array, timebase: Fraction) -> Fraction:
    """The mean rate of the intervals within half the median of it: unlike the median, it is finer than the timebase.
    The nearest standard rate where one is within half a percent."""
    median = float(np.median(intervals))
    ordinary = intervals[np.abs(intervals - median) <= median / 2]
    if len(ordinary) == 0:
        ordinary = intervals
    rate = Fraction(len(ordinary)) / (int(ordinary.sum()) * timebase)
    standard = min(STANDARD_RATES, key=lambda known: abs(known - rate))
    return standard if abs(rate / standard - 1) <= Fraction(1, 200) else _plain(rate)


def _plain(rate: Fraction) -> Fraction:
    """The rate, or the next higher whole number of thousandths, within what is possible."""
    return min(MAX_RATE, max(MIN_RATE, Fraction(-(-rate * 1000 // 1), 1000)))
