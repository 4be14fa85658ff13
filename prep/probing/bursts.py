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

# Of fewer frames than these none is said to come late, but for those at the start.
_FEWEST = 6
# A frame is compared with so many behind it.
_BEHIND = 256
# How far apart frames are whose distance tells of the interval, and which of these distances may be right: frames that
# come at once are closer, and those around lost ones are further apart.
_LAGS, _QUANTILES = (1, 10, 50, 250), (0.25, 0.5, 0.75, 0.9)
# In so many parts of all frames the one is found that comes least late.
_PARTS = 4
_SLOWEST_SECONDS = Fraction(1, 2)
# In fewer units of the timebase than these, times that were rounded to it may lie as if frames came late.
_FEWEST_UNITS = 8

# The rest are parts of frames, of time, or of an interval.
# How much later than others some frame must come: less than half an interval moves no frame to another tick.
_LEAST_LATE = 0.5
# How late a frame is at most that came in time.
_IN_TIME = 0.25
# How much earlier than they should later frames may come: those that are taken faster come earlier all along.
_MOST_EARLY = 0.5
# Frames that are closer than this follow one another sooner than the camera takes them: they catch up.
_CAUGHT_UP = 0.75
# A frame was held back for long that comes later than this.
_HELD_BACK = 1.5
# So many of the frames must be evenly spaced in the end, to this part of an interval.
_EVEN_PART, _EVEN = 0.9, 0.05
# Where so many frames come at one distance, it is the interval.
_REGULAR_PART = 0.5
# Where they do not, so many must come at one distance to this part of it, but for those that were held back for long.
_NEARLY_REGULAR_PART, _NEARLY = 0.7, 0.15
# Or so many frames must have come in time behind a late one, as variable rates have no clock to come back to; and
# pauses last at most this part of the time, as what is on a screen may well come in bursts.
_FEWEST_RETURNS, _PAUSES_PART = 16, 0.02

# Frames that come at once at the start, where no pause before tells that they come late, come this close together, as
# phones take 240 in a second, also for a part of a recording; or they are few.
_AT_START_SECONDS, _FEW_AT_START = Fraction(1, 400), 8
# Or so many others follow them, at distances that differ by this part of an interval.
_FEWEST_AT_START, _FEWEST_BEHIND, _REGULAR_BEHIND = 3, 4, 0.15
# Frames that come at once are on average closer than this part of an interval.
_AT_ONCE = 0.25
# This part of them follow one another within so long.
_NO_TIME_SECONDS, _NO_TIME_PART = Fraction(1, 1000), Fraction(2, 3)
# Or of so many or more this part do, and nearly half of all are closer than this part of the mean: where a screen is
# recorded without a cap, or at 144 to 240 Hz, with times that are some milliseconds late, about as many come later than
# the mean as sooner.
_FEWEST_UNEVEN, _SOME_PART, _NEARLY_HALF, _SOONER = 16, 0.3, 0.45, 0.6
# Where of so many distances one or more are short, and most of these are alike and as long as this or longer, frames
# did not come at once: cameras take up to 120 in a second, now and then.
_CLOSE_PART, _ALIKE_PART, _APART_SECONDS = 3, 0.75, Fraction(1, 130)


def without_bursts(times: Array, timebase: Fraction, rates: Iterable[Fraction]) -> Array:
    """The times at which frames were taken that arrived at these `times`: int64, (frames,). `rates`: those that the
    camera may have. The same array where frames did not come late, or were not taken evenly."""
    rates, steps = tuple(rates), np.diff(times)
    if len(times) < 2 or (steps < 0).any() or times[-1] <= times[0]:
        return times
    if len(times) > _FEWEST and steps[-1] < _CAUGHT_UP * np.median(steps) <= steps[-2]:
        # Without the next frame the end of the last one is not known, but by the end of the stream, which may come
        # sooner. Beside such a last frame all others would be late.
        before = times[:-1]
        taken = _without_bursts(before, timebase, rates)
        if taken is not before:
            interval = float(np.median(np.diff(taken)))
            with_last = np.append(taken, taken[-1] + round(interval))
            # Or the last two were held back together: then all frames are the more even ones.
            whole = _without_bursts(times, timebase, rates)
            found = (with_last,) if whole is times else (whole, with_last)
            return min(found, key=lambda each: _unevenness((interval, each)))
    return _without_bursts(times, timebase, rates)


def _without_bursts(times: Array, timebase: Fraction, rates: Iterable[Fraction]) -> Array:
    """The same for times that rise, whatever the last one is."""
    begun = _begun_evenly(times, timebase)
    if begun is not None or len(times) < _FEWEST:
        return times if begun is None else begun
    mean = float(times[-1] - times[0]) / (len(times) - 1)
    # Behind a late frame others catch up.
    if np.diff(times).min() > _CAUGHT_UP * mean or np.ptp(_lateness(times, mean)) <= _LEAST_LATE * mean:
        return times
    stated = [float(1 / (rate * timebase)) for rate in rates if rate > 0]
    intervals = dict.fromkeys((*stated, *_distances(times), *_slopes(times, mean)))
    found = [
        (interval, taken)
        for interval in intervals
        if _FEWEST_UNITS <= interval <= _SLOWEST_SECONDS / timebase
        and (taken := _taken(times, interval, timebase)) is not None
    ]
    return min(found, key=_unevenness)[1] if found else times


def _begun_evenly(times: Array, timebase: Fraction) -> Array | None:
    """The times of frames of which several, perhaps most, came at once at the start, and the others in time; None where
    they did not."""
    steps, at_once = np.diff(times), float(_AT_START_SECONDS / timebase)
    first = int(np.argmax(np.append(steps, np.inf) > at_once))
    behind = steps[first:]
    if first + 1 < _FEWEST_AT_START or len(behind) < _FEWEST_BEHIND:
        return None
    interval = float(np.mean(behind))
    is_regular = bool((np.abs(behind - interval) <= 1 + _REGULAR_BEHIND * interval).all())
    if not is_regular or not 4 * at_once <= interval <= float(_SLOWEST_SECONDS / timebase):
        return None
    taken = times.copy()
    taken[:first] = times[first] - np.round(np.arange(first, 0, -1) * interval)
    return taken


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
    least = _least_ahead(late)
    earlier = least - np.append(least[_BEHIND:], np.full(_BEHIND, least[-1]))[: len(least)]
    taken: Array = np.round(least + np.arange(len(times)) * interval).astype(np.int64)
    late = late - least
    in_time = np.flatnonzero(late <= _IN_TIME * interval)
    first = int(in_time[0])
    others_are_late = bool(late[first:].max() > _LEAST_LATE * interval)
    begin = np.diff(times[:first])
    most_at_once = float(_APART_SECONDS / timebase)
    is_few = first <= _FEW_AT_START and others_are_late
    is_few = is_few and not (len(begin) and _is_recorded_so(begin, interval, most_at_once))
    apart = interval / 2 if is_few else float(_AT_START_SECONDS / timebase)
    came_at_once = _came_at_once(begin, interval, timebase)
    if times[first] - times[0] > first * apart and not came_at_once:
        late[:first] = 0
        taken[:first] = np.round(np.linspace(times[0], taken[first], first + 1)[:-1])
    is_late = late.max() > _LEAST_LATE * interval
    keeps_pace = earlier.max() <= _MOST_EARLY * interval
    comes_back = np.diff(in_time, append=len(times)).max() <= _BEHIND // 2
    if not (is_late and keeps_pace and comes_back):
        return None
    steps, taken_steps = np.diff(times), np.diff(taken)
    if _is_recorded_so(steps, interval, most_at_once):
        return None
    is_clock = came_at_once and _is_in_time(steps[first:], late[first:], interval)
    is_clock = is_clock or _is_clock(steps, taken_steps, late, interval)
    return taken if _is_even(taken_steps, interval) and is_clock else None


def _least_ahead(late: Array) -> Array:
    """How late the one is that comes least late of each frame and those behind it, `_BEHIND` in all."""
    least = late
    # Of 2, 4, 8, ...
    behind = 1
    while behind < _BEHIND:
        least = np.minimum(least, np.append(least[behind:], np.full(min(behind, len(least)), least[-1]))[: len(least)])
        behind *= 2
    return least


def _came_at_once(steps: Array, interval: float, timebase: Fraction) -> bool:
    """Whether the first frames of a recording, of which these are the distances, came at once, with the waits that a
    network makes between some of them, or at very different distances. Screens are recorded at such ones too, and true
    times that are altered are worse than late ones that stay: the signs have to be strong."""
    if len(steps) < _FEWEST_AT_START - 1 or np.mean(steps) > _AT_ONCE * interval:
        return False
    no_time_part = np.mean(steps <= float(_NO_TIME_SECONDS / timebase))
    is_uneven = len(steps) >= _FEWEST_UNEVEN and np.quantile(steps, _NEARLY_HALF) <= _SOONER * np.mean(steps)
    return bool(no_time_part >= (_SOME_PART if is_uneven else _NO_TIME_PART))


def _is_in_time(steps: Array, late: Array, interval: float) -> bool:
    """Whether frames at these distances, so late, are taken at this interval and come in time, nearly all of them."""
    is_usual = len(steps) >= _FEWEST_BEHIND and abs(float(np.median(steps)) - interval) <= 1 + _AT_ONCE * interval
    return is_usual and bool(np.mean(late <= _LEAST_LATE * interval) >= _EVEN_PART)


def _is_recorded_so(steps: Array, interval: float, most_at_once: float) -> bool:
    """Whether frames that are closer than the interval are about as far apart as a camera takes them, such as those
    that it takes now and then where something moves: a network delivers them at once, or at very different
    distances."""
    close = steps[steps < _CAUGHT_UP * interval]
    if len(close) * _CLOSE_PART < len(steps):
        return False
    usual = float(np.median(close))
    return usual > most_at_once and bool(np.mean(np.abs(close - usual) <= usual / 2) >= _ALIKE_PART)


def _is_even(taken_steps: Array, interval: float) -> bool:
    """Whether frames that were taken at these distances were taken evenly."""
    even_part = np.mean(np.abs(taken_steps - interval) <= 1 + _EVEN * interval)
    return bool(even_part >= _EVEN_PART and (taken_steps > 0).all())


def _is_clock(steps: Array, taken_steps: Array, late: Array, interval: float) -> bool:
    """Whether frames that arrive with these distances, so late, tell of a camera with this interval, if they were taken
    `taken_steps` from each to the next."""
    usual = float(np.median(steps))
    is_held_back = bool(late.max() > _HELD_BACK * interval) and _catches_up(steps, late, interval)
    is_regular = np.mean(np.abs(steps - usual) <= 1 + usual / 100) >= _REGULAR_PART
    if is_regular and interval / 2 < usual < 1.5 * interval:
        # Less may be a single frame that comes early.
        return is_held_back and abs(usual - interval) <= 1 + interval / 100
    is_nearly_regular = np.mean(np.abs(steps - usual) <= _NEARLY * usual) >= _NEARLY_REGULAR_PART
    if is_nearly_regular and is_held_back and abs(usual - interval) <= _EVEN * interval:
        return True
    returns = np.count_nonzero((late[:-1] > _LEAST_LATE * interval) & (late[1:] <= _IN_TIME * interval))
    pauses = taken_steps[taken_steps > interval] - interval
    return bool(returns >= _FEWEST_RETURNS and pauses.sum() <= _PAUSES_PART * interval * len(steps))


def _catches_up(steps: Array, late: Array, interval: float) -> bool:
    """Whether late frames are less late with each that follows at once. Those of a constant rate behind a pause come a
    little sooner than a longer interval says, each of them, as 4 and 5 ms differ at 240 frames/s."""
    was_late = late[:-1] > _LEAST_LATE * interval
    falls = np.maximum(0, late[:-1] - late[1:])[was_late]
    at_once = falls[steps[was_late] < _CAUGHT_UP * interval]
    return bool(2 * at_once.sum() >= falls.sum())
