"""The times of recordings that state when each frame arrived, and not when the camera took it.

A network holds frames back, each for another time, and then several arrive at once. Some cameras send several frames
together all the time, and at the start of a recording all frames since the last keyframe come at once. The camera took
its frames evenly, none of them after it arrived: so a frame was taken as long before those behind it as the camera's
interval says, before the one of them that arrived least late.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from ...manifests.ragged import Array

# A frame is compared with this many behind it. Of fewer frames than these none is said to come late.
_BEHIND, _FEWEST = 256, 16
# How far apart frames are whose distance tells of the interval, and which of these distances may be right: frames that
# come at once are closer, and those around lost ones are further apart.
_LAGS, _QUANTILES, _PARTS = (1, 10, 50, 250), (0.25, 0.5, 0.75, 0.9), 4
# So many of the frames must be evenly spaced in the end, to a twentieth of an interval, and pauses last at most this
# part of the time: what is on a screen may well come in bursts. Where half of the frames come at one distance, it is
# the interval. Where they do not, nearly all must come at nearly one distance, but for those that were held back for
# long, or so many frames must have come in time behind a late one: variable rates have no clock to come back to.
_EVEN_PART, _EVEN, _PAUSES_PART, _REGULAR_PART, _FEWEST_RETURNS = 0.9, 0.05, 0.02, 0.5, 16
_NEARLY, _NEARLY_REGULAR_PART, _HELD_BACK = 0.15, 0.7, 1.5
# In intervals: how much later than others some frame must come, as less than half an interval moves no frame to another
# tick; how late a frame is that came in time; and how much earlier than they should later frames may come: those that
# are taken faster come earlier all along.
_LEAST_LATE, _IN_TIME, _MOST_EARLY, _CAUGHT_UP = 0.5, 0.25, 0.5, 0.75
# Frames that come at once at the start, where no pause before tells that they come late, come this close together, as
# phones take 240 in a second, also for a part of a recording; or they are few.
_AT_START_SECONDS, _FEW_AT_START = Fraction(1, 400), 8
_SLOWEST_SECONDS = Fraction(1, 2)
# Where of so many distances one or more are short, and most of these are alike and as long as this or longer, frames
# did not come at once: cameras take up to 120 in a second, now and then.
_CLOSE_PART, _ALIKE_PART, _APART_SECONDS = 3, 0.75, Fraction(1, 130)


def without_bursts(times: Array, timebase: Fraction, rates: Iterable[Fraction]) -> Array:
    """The times at which frames were taken that arrived at these `times`: int64, (frames,). `rates`: those that the
    camera may have. The same array where frames did not come late, or were not taken evenly."""
    if len(times) < _FEWEST or (np.diff(times) < 0).any() or times[-1] <= times[0]:
        return times
    mean = float(times[-1] - times[0]) / (len(times) - 1)
    # Behind a late frame others catch up.
    if np.diff(times).min() > _CAUGHT_UP * mean or np.ptp(_lateness(times, mean)) <= _LEAST_LATE * mean:
        return times
    stated = [float(1 / (rate * timebase)) for rate in rates if rate > 0]
    intervals = dict.fromkeys((*stated, *_distances(times), *_slopes(times, mean)))
    found = [
        (interval, taken)
        for interval in intervals
        if 0 < interval * timebase <= _SLOWEST_SECONDS and (taken := _taken(times, interval, timebase)) is not None
    ]
    return min(found, key=_unevenness)[1] if found else times


def _unevenness(found: tuple[float, Array]) -> tuple[float, float]:
    """How far the distances of frames are from the interval at which they may have been taken, in all; and that."""
    interval, taken = found
    return float(np.abs(np.diff(taken) - interval).sum()), interval


def _lateness(times: Array, interval: float) -> Array:
    """How late each frame comes, but for a constant."""
    return np.asarray(times - np.arange(len(times)) * interval)


def _distances(times: Array) -> list[float]:
    """What the interval of the camera may be, by frames that are some frames apart."""
    lags = [lag for lag in _LAGS if 2 * lag <= len(times)]
    return [float(each) for lag in lags for each in np.quantile(times[lag:] - times[:-lag], _QUANTILES) / lag]


def _slopes(times: Array, mean: float) -> list[float]:
    """What the interval of the camera may be, by the frames that come least late in a part of all and in another."""
    late = _lateness(times, mean)
    least = [int(part[np.argmin(late[part])]) for part in np.array_split(np.arange(len(times)), _PARTS)]
    pairs = [(one, other) for one in least for other in least if other > one]
    return [float(times[other] - times[one]) / (other - one) for one, other in pairs]


def _taken(times: Array, interval: float, timebase: Fraction) -> Array | None:
    """When frames were taken, if the camera's interval is this one; None where it cannot be."""
    late = _lateness(times, interval)
    least = late
    # The least of each frame and so many behind it: of 2, 4, 8, ...
    behind = 1
    while behind < _BEHIND:
        least = np.minimum(least, np.append(least[behind:], np.full(min(behind, len(least)), least[-1]))[: len(least)])
        behind *= 2
    earlier = least - np.append(least[_BEHIND:], np.full(_BEHIND, least[-1]))[: len(least)]
    taken: Array = np.round(least + np.arange(len(times)) * interval).astype(np.int64)
    late = late - least
    in_time = np.flatnonzero(late <= _IN_TIME * interval)
    first = int(in_time[0])
    if not _may_begin_so(times, first, interval, float(_AT_START_SECONDS / timebase)):
        late[:first] = 0
        taken[:first] = np.round(np.linspace(times[0], taken[first], first + 1)[:-1])
    if (
        late.max() > _LEAST_LATE * interval
        and not _is_recorded_so(np.diff(times), interval, float(_APART_SECONDS / timebase))
        and earlier.max() <= _MOST_EARLY * interval
        and np.diff(in_time, append=len(times)).max() <= _BEHIND // 2
        and _is_clock(np.diff(times), np.diff(taken), late, interval)
    ):
        return taken
    return None


def _may_begin_so(times: Array, first: int, interval: float, most_at_start: float) -> bool:
    """Whether the frames before the `first` one that came in time came at once."""
    apart = interval / 2 if first <= _FEW_AT_START else most_at_start
    return bool(times[first] - times[0] <= first * apart)


def _is_recorded_so(steps: Array, interval: float, most_at_once: float) -> bool:
    """Whether frames that are closer than the interval are about as far apart as a camera takes them, such as those
    that it takes now and then where something moves: a network delivers them at once, or at very different
    distances."""
    close = steps[steps < _CAUGHT_UP * interval]
    if len(close) * _CLOSE_PART < len(steps):
        return False
    usual = float(np.median(close))
    return usual > most_at_once and bool(np.mean(np.abs(close - usual) <= usual / 2) >= _ALIKE_PART)


def _is_clock(steps: Array, taken_steps: Array, late: Array, interval: float) -> bool:
    """Whether frames with these distances may have been taken at this interval, if they were taken `taken_steps` from
    each to the next."""
    usual = float(np.median(steps))
    is_regular = np.mean(np.abs(steps - usual) <= 1 + usual / 100) >= _REGULAR_PART
    if is_regular and interval / 2 < usual < 1.5 * interval:
        # Less may be a single frame that comes early.
        if abs(usual - interval) > 1 + interval / 100 or late.max() <= _HELD_BACK * interval:
            return False
    elif not (
        np.mean(np.abs(steps - usual) <= _NEARLY * usual) >= _NEARLY_REGULAR_PART
        and abs(usual - interval) <= _EVEN * interval
        and late.max() > _HELD_BACK * interval
    ):
        returns = np.count_nonzero((late[:-1] > _LEAST_LATE * interval) & (late[1:] <= _IN_TIME * interval))
        pauses = taken_steps[taken_steps > interval] - interval
        if returns < _FEWEST_RETURNS or pauses.sum() > _PAUSES_PART * interval * len(steps):
            return False
    is_even = np.mean(np.abs(taken_steps - interval) <= 1 + _EVEN * interval) >= _EVEN_PART
    return bool(is_even and (taken_steps > 0).all())
