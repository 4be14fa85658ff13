"""Chooses the constant rate of a source where --fps gives none.

A source whose frames are evenly spaced keeps its exact rate (`constant_rate`). For other sources a rate is chosen by
how many frames it drops and repeats (`variable_rate`):

1. Candidates, in this order: the rate of film whose frames are shown for two fields and three in turn (soft telecine);
   the rates that the container states and at which each frame has exactly the time of a tick; the standard rate whose
   interval equals the median rate's up to one unit of the timebase; the mean rate of the ordinary intervals; the other
   rates that the container states; the standard rates; the rates at which some interval of the source lasts one tick.
   A candidate must make at most 30 times as many frames as the source has, plus 10,000, and a tick must last at most
   five quarters of the median interval.
2. Find the lowest candidate that drops at most one source frame in a hundred, or one frame. The limit is not 0, since
   two frames that are closer together than all others must not multiply the frames of the whole video. Where up to a
   quarter of the frames follow another one within 1/240 s, which no camera records, these frames do not count at all.
3. Of the candidates from that rate up to five quarters of it, take the one that drops the fewest frames; of several,
   the first in the order of (1), so that a 30 fps recording with missing frames gets 30 and not 29.97. But where nine
   in ten intervals are those of a standard rate, and that drops no more frames than there are shorter intervals, take
   it: recordings that were cut or joined keep their rate, at the price of a frame at each place. Of several, the one at
   which all of these intervals together last as long as they do.
4. If that one drops some, or is no standard rate and does not give each frame a tick of its own, take the mean rate if
   it gives each frame a tick of its own, differs from a standard rate by at most one in 2000, and no interval differs
   from its own by half of it or more, as at a join or a cut: clocks of phones are a little fast or slow, and frames
   jitter past ticks then.

If no candidate drops so few, take the one that drops the fewest, and of several the lowest.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...manifests.ragged import Array
from .grid import TickRule, count_dropped, ordinary_interval

# Rates that cameras and editors write. In a file with a coarse timebase (Matroska: milliseconds), timestamps determine
# the rate only to within that timebase; the exact rate is then taken from these.
STANDARD_RATES = tuple(
    Fraction(n, d)
    for n, d in (
        (24000, 1001), (24, 1), (25, 1), (30000, 1001), (30, 1), (48000, 1001), (48, 1), (50, 1),
        (60000, 1001), (60, 1), (100, 1), (120000, 1001), (120, 1), (240, 1),
        (5, 1), (6, 1), (8, 1), (10, 1), (12, 1), (12000, 1001), (25, 2), (15000, 1001), (15, 1), (20, 1),
    )
)  # fmt: skip
MIN_RATE, MAX_RATE = Fraction(1, 1000), Fraction(1000)
# The rate for a single frame whose container states none.
_USUAL_RATE = Fraction(25)
# FFmpeg gives an MP4 a timescale of 31 bits. The ticks of a frame get fewer, since composition offsets are several
# frames long.
_MAX_NUMERATOR, _MAX_DENOMINATOR = 1 << 31, 1 << 28
_MAX_INFLATION, _ALWAYS_ALLOWED_FRAMES = 30, 10_000
_NEAR = Fraction(5, 4)
_MOST_OTHERS_PART, _ROUNDING_SECONDS = 10, Fraction(1, 1000)
# Half of what lies between 30000/1001 and 30.
_NEAR_PART = Fraction(1, 2000)
# By what part of an interval frames jitter, at most.
_MOST_OF_A_MEAN, _MOST_JITTER = 10**6, 0.5
_INTERVALS_TRIED = 32
# Fields in a second of video that film is shown as; how many intervals tell of it, and at most one in how many is as
# long as the one before.
_FIELD_RATE, _FEWEST_IN_TURN, _MOST_OUT_OF_TURN = Fraction(60000, 1001), 8, 20
# Twins: the few frames of a source that are closer to the frame before than at the fastest standard rate.
_TWIN_SECONDS, _TWIN_PART, _MOST_TWINS = Fraction(1, 240), 4, 4


def constant_rate(pts: Array, timebase: Fraction, hints: tuple[Fraction, ...]) -> Fraction | None:
    """The exact rate of a source whose frames have these `pts` (int64, strictly rising, at least one), or None when
    they are not evenly spaced.

    `hints` are the rates that the container states. Standard rates are tried before other ones, which demuxers may have
    worked out from the times of a few frames, and those nearest to the mean first. A rate is accepted only if every pts
    lies within one unit of the timebase of its place at that rate, each frame has its own tick, and an MP4 can have the
    rate. One that is a standard rate but for how its intervals were rounded is that, if each frame has its own tick at
    that, too. For a single frame it is the first hint, or 25 frames/s.
    """
    if len(pts) == 1:
        return next((hint for hint in hints if _possible(hint)), _USUAL_RATE)
    spans = pts - pts[0]
    mean = _mean_rate(pts, timebase)
    standard = [hint for hint in hints if hint in STANDARD_RATES]
    is_even = bool((np.diff(pts) == pts[1] - pts[0]).all())
    # In a coarse timebase, another standard rate lies within a unit of it for minutes.
    exact = [mean] if mean in STANDARD_RATES and is_even else []
    by_nearness = sorted(STANDARD_RATES, key=lambda known: abs(known - mean))
    nearest = by_nearness[0]
    for rate in (*standard, *exact, *by_nearness, *hints, mean):
        # Check the last frame first, which is cheap: a wrong rate has drifted by then.
        if (
            _possible(rate)
            and _lies_on(spans[-1:], np.array([len(pts) - 1]), timebase, rate)
            and _lies_on(spans, np.arange(len(pts)), timebase, rate)
            and _has_own_ticks(pts, timebase, rate)
        ):
            # As where one interval in hundreds is longer by a unit. The last frame has to end at its tick, too.
            is_near = rate not in STANDARD_RATES and not is_even and abs(nearest / mean - 1) <= _NEAR_PART
            ends = np.append(pts, 2 * pts[-1] - pts[-2])
            return nearest if is_near and _has_own_ticks(ends, timebase, nearest) else rate
    return None


def _has_own_ticks(pts: Array, timebase: Fraction, rate: Fraction) -> bool:
    """Whether each frame has its own tick at a rate, and each tick a frame."""
    return np.array_equal(TickRule.of(pts, timebase, rate, 1 / rate).ticks(pts), np.arange(len(pts)))


def _possible(rate: Fraction) -> bool:
    return MIN_RATE <= rate <= MAX_RATE and rate.numerator < _MAX_NUMERATOR and rate.denominator < _MAX_DENOMINATOR


def _lies_on(spans: Array, numbers: Array, timebase: Fraction, rate: Fraction) -> bool:
    """Whether frame number n is within one timebase unit of n / rate."""
    step = 1 / (rate * timebase)
    # |span - n * step| <= 1, in integers: floats would lose it on long videos.
    drift = spans.astype(object) * step.denominator - numbers.astype(object) * step.numerator
    return bool((abs(drift) <= step.denominator).all())


def variable_rate(pts: Array, end_pts: int, timebase: Fraction, hints: tuple[Fraction, ...] = ()) -> Fraction:
    """The rate for two or more frames that are not evenly spaced; the last one ends at `end_pts`. The module's
    docstring has the rule."""
    candidates = [rate for rate in dict.fromkeys(_candidates(pts, timebase, hints)) if _possible(rate)]
    seconds = (end_pts - int(pts[0])) * timebase
    most_frames = _MAX_INFLATION * len(pts) + _ALWAYS_ALLOWED_FRAMES
    interval = ordinary_interval(pts, timebase)
    pts = _without_twins(pts, timebase)
    # The rate of the mean interval makes about as many frames as the source has. Only a source that lasts years has too
    # many frames at every rate.
    affordable = [rate for rate in candidates if seconds * rate <= most_frames] or [min(candidates)]
    affordable = [rate for rate in affordable if rate * (interval or 0) * _NEAR >= 1] or affordable
    dropped = {rate: count_dropped(TickRule.of(pts, timebase, rate, interval), pts, end_pts) for rate in affordable}
    good = [rate for rate in affordable if dropped[rate] <= max(1, len(pts) // 100)]
    if not good:
        return min(affordable, key=lambda rate: (dropped[rate], rate))
    lowest = min(good)
    # `affordable` is still in the order of preference, and min takes the first of equals.
    near = [rate for rate in affordable if lowest <= rate <= lowest * _NEAR]
    cut = [rate for rate in near if rate in STANDARD_RATES and dropped[rate] <= _shorter_intervals(pts, timebase, rate)]
    if cut:
        best = min(cut, key=lambda rate: (_misfit(pts, timebase, rate), dropped[rate]))
    else:
        best = min(near, key=dropped.__getitem__)
    # A clock that is a little fast or slow moves frames past ticks of another rate, and those of the mean fit. Behind a
    # join or a cut the frames of a whole part may do so.
    mean = _mean_rate(pts, timebase).limit_denominator(_MOST_OF_A_MEAN)
    nearest = min(abs(mean / known - 1) for known in STANDARD_RATES)
    is_even = bool((np.abs(np.diff(pts) * float(mean * timebase) - 1) < _MOST_JITTER).all())
    is_off = dropped[best] > 0 or (best not in STANDARD_RATES and not _has_own_ticks(pts, timebase, best))
    fits = is_even and is_off and _possible(mean) and nearest <= _NEAR_PART
    return mean if fits and _has_own_ticks(pts, timebase, mean) else best


def _mean_rate(pts: Array, timebase: Fraction) -> Fraction:
    """The mean rate; where its terms are too large for an MP4, the nearest one that an MP4 can have."""
    mean = Fraction(len(pts) - 1) / (int(pts[-1] - pts[0]) * timebase)
    if _possible(mean) or not MIN_RATE <= mean <= MAX_RATE:
        return mean
    return mean.limit_denominator(min(_MAX_DENOMINATOR - 1, int((_MAX_NUMERATOR - 2) / mean)))


def _shorter_intervals(pts: Array, timebase: Fraction, rate: Fraction) -> int:
    """How many intervals are shorter than those of the rate, to a millisecond or a unit of the timebase; -1 where more
    than a few are shorter or longer."""
    longer, is_other = _others(np.diff(pts), timebase, float(1 / (rate * timebase)))
    return int(np.count_nonzero(is_other & (longer < 0))) if is_other.sum() * _MOST_OTHERS_PART <= len(pts) else -1


def _misfit(pts: Array, timebase: Fraction, rate: Fraction) -> float:
    """By how many units of the timebase the frames between cuts lie apart otherwise than at the rate, beyond what
    rounding explains."""
    longer, is_other = _others(np.diff(pts), timebase, float(1 / (rate * timebase)))
    runs = 1 + np.count_nonzero(is_other)
    return max(0.0, abs(float(longer[~is_other].sum())) - runs)


def _others(intervals: Array, timebase: Fraction, usual: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """By how much intervals are longer than the usual one, and which are others, to a millisecond or a unit of the
    timebase."""
    longer = intervals - usual
    return longer, np.abs(longer) > max(1.0, float(_ROUNDING_SECONDS / timebase))


def _without_twins(pts: Array, timebase: Fraction) -> Array:
    """The pts without those of twins: frames very close to the frame before, where most are much further apart."""
    intervals = np.diff(pts)
    apart = float(np.median(intervals)) / _TWIN_PART
    is_twin = (intervals < apart) & (intervals < float(_TWIN_SECONDS / timebase))
    if not 0 < np.count_nonzero(is_twin) <= len(pts) // _MOST_TWINS:
        return pts
    return np.asarray(pts[np.concatenate([[True], ~is_twin])])


def _candidates(pts: Array, timebase: Fraction, hints: Iterable[Fraction]) -> Iterable[Fraction]:
    intervals = np.diff(pts)
    yield from _film_rate(intervals, timebase)
    # Where a unit of the timebase is a frame, as in AVI, a missing frame looks like one that rounding put later.
    stated = [hint for hint in hints if _possible(hint)]
    yield from (hint for hint in stated if not np.any((pts - pts[0]) % (timebase * hint).denominator))
    ordinary = _ordinary_rate(intervals, timebase)
    common = min(STANDARD_RATES, key=lambda known: abs(known - ordinary))
    if abs(1 / common - 1 / ordinary) <= timebase:
        yield common
    yield ordinary
    yield from hints
    yield from sorted(STANDARD_RATES)
    yield _plain(len(intervals) / (int(intervals.sum()) * timebase))
    # tolist: Python's integers do not overflow, and an interval may have any length.
    for interval in np.unique(np.quantile(intervals, np.linspace(0, 1, _INTERVALS_TRIED), method="lower")).tolist():
        yield _plain(1 / (interval * timebase))


def _film_rate(intervals: Array, timebase: Fraction) -> Iterable[Fraction]:
    """The rate of frames that are shown for two fields of video and three in turn, if they are."""
    fields = intervals * float(_FIELD_RATE * timebase)
    counts = np.round(fields)
    # Each time may be rounded to the timebase, and a field may be a sixtieth of a second.
    is_even = np.abs(fields - counts) <= 2 * float(_FIELD_RATE * timebase) + 0.01
    in_turn = np.count_nonzero(np.diff(counts) == 0) * _MOST_OUT_OF_TURN <= len(counts)
    if len(counts) >= _FEWEST_IN_TURN and is_even.all() and np.isin(counts, (2, 3)).all() and in_turn:
        # Where a cut breaks the turn, a field lasts as long as elsewhere; a frame lasts two and a half on average.
        rate = Fraction(2 * int(counts.sum()), 5) / (int(intervals.sum()) * timebase)
        yield min(STANDARD_RATES, key=lambda known: abs(known - rate))


def _ordinary_rate(intervals: Array, timebase: Fraction) -> Fraction:
    """The mean rate of the intervals that differ from the median by at most half of it, or not at all where nearly all
    do not: a mean is more precise than the timebase. If a standard rate is within half a percent, that one."""
    median = float(np.median(intervals))
    _, is_other = _others(intervals, timebase, median)
    ordinary = intervals[~is_other]
    if is_other.sum() * _MOST_OTHERS_PART > len(intervals):
        ordinary = intervals[np.abs(intervals - median) <= median / 2]
    if len(ordinary) == 0:
        ordinary = intervals
    rate = Fraction(len(ordinary)) / (int(ordinary.sum()) * timebase)
    standard = min(STANDARD_RATES, key=lambda known: abs(known - rate))
    return standard if abs(rate / standard - 1) <= Fraction(1, 200) else _plain(rate)


def _plain(rate: Fraction) -> Fraction:
    """The rate rounded up to thousandths, between MIN_RATE and MAX_RATE."""
    return min(MAX_RATE, max(MIN_RATE, Fraction(-(-rate * 1000 // 1), 1000)))
