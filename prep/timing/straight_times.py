"""The times of a constant rate of which some are wrong: those of a program stream, which states the times of some
frames only, and of copies of it.

Of the frames without a time FFmpeg counts some wrongly. Where it copies them, it puts each directly behind the packet
before, and then they come before frames that are shown earlier. But those whose times are right lie on a straight line,
by their number in the order shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from ...manifests.ragged import Array
from .rates import STANDARD_RATES

# How far from the line a time may be, in units of the timebase, and how many times as long an interval must be to tell
# such times from others.
_NEAR_UNITS, _LEAST_INTERVAL = 2, 4
# Times that follow the one before at once are no further from it than this, and than such a part of an interval. Many
# are such a part of all.
_AT_ONCE_SECONDS, _CROWDED_PART, _MANY_CROWDED_PART = Fraction(1, 1000), 8, 0.25
# Times that were rounded to milliseconds, as of a copy from FLV, may be further from it, if there are so many of them,
# and such a part of them is on it.
_MILLISECOND, _FEWEST_ROUNDED, _LEAST_ROUNDED_PART = Fraction(1, 1000), 6, 0.9
# So many times must be on the line, and in a row at most so many may be off it.
_FEWEST, _MOST_OFF = 4, 16
# At the end so many may be off it: more may be another recording.
_MOST_OFF_AT_END = 4
# Where times contradict the order of frames, this part of them is enough if no other is later than the line says.
_LEAST_COPIED_PART = 0.2
# Otherwise a variable rate must be told from it.
_LEAST_STATED_PART, _LEAST_EVEN_PART, _MOST_STATED_OFF = 0.7, 0.9, 2


def straightened(times: Array, timebase: Fraction, rates: Iterable[Fraction]) -> Array | None:
    """The times of frames in the order shown, int64, each on the line of those that are right; None where they are as
    they should be, or where there is no such line. `rates`: those that the container states."""
    if len(times) < _FEWEST or ((np.diff(times) > 0).all() and not _crowded_part(times, timebase)):
        return None
    on, line = _best_line(np.arange(len(times)), times, timebase, rates, len(times))
    if on[0] and on[-1] and np.mean(on) >= _LEAST_EVEN_PART and _longest_off(on) <= _MOST_STATED_OFF:
        return line
    is_right = np.count_nonzero(on) >= _LEAST_COPIED_PART * len(times) and _longest_off(on) <= _MOST_OFF
    is_right = is_right and bool(on[-1 - _MOST_OFF_AT_END :].any())
    steps = np.diff(times)
    if is_right and (steps > 0).all():
        # Where no frame is out of order, FFmpeg put only those at wrong times that follow another one at once.
        is_right = bool((on[1:] | (steps <= float(_AT_ONCE_SECONDS / timebase))).all())
    return line if is_right and (times <= line + _NEAR_UNITS).all() else None


def may_be_copied(times: Array, timebase: Fraction, rates: Iterable[Fraction]) -> bool:
    """Whether these times, which rise, may be those of another order of frames, or should lie on a line."""
    crowded = _crowded_part(times, timebase)
    return crowded >= _MANY_CROWDED_PART or (crowded > 0 and straightened(times, timebase, rates) is not None)


def _crowded_part(times: Array, timebase: Fraction) -> float:
    """How many of these times follow the one before at once, as a part of all."""
    if len(times) < _FEWEST:
        return 0.0
    steps = np.diff(times)
    return float(np.mean((steps * _CROWDED_PART < np.mean(steps)) & (steps <= float(_AT_ONCE_SECONDS / timebase))))


def straight_times(
    numbers: Array, stated: Array, count: int, timebase: Fraction, rates: Iterable[Fraction]
) -> Array | None:
    """The times of `count` frames, int64, of which those with these `numbers` have `stated` times, if nearly all of
    these are on a line; None where they are not."""
    if len(numbers) < _FEWEST:
        return None
    on, line = _best_line(numbers, stated, timebase, rates, count)
    is_right = on[0] and on[-1] and np.mean(on) >= _LEAST_STATED_PART and _longest_off(on) <= _MOST_STATED_OFF
    return line if is_right else rounded_straight_times(numbers, stated, count, timebase, rates)


def rounded_straight_times(
    numbers: Array, stated: Array, count: int, timebase: Fraction, rates: Iterable[Fraction]
) -> Array | None:
    """The same of times that are whole milliseconds, at a standard rate or another one."""
    unit = _MILLISECOND / timebase
    if len(numbers) < _FEWEST_ROUNDED or unit.denominator > 1 or np.gcd.reduce(np.diff(stated)) % int(unit):
        return None
    on, line = _best_line(numbers, stated, timebase, (*rates, *STANDARD_RATES), count, near=int(unit))
    return line if on[0] and on[-1] and np.mean(on) >= _LEAST_ROUNDED_PART else None


def _best_line(
    numbers: Array, times: Array, timebase: Fraction, rates: Iterable[Fraction], count: int, *, near: int = _NEAR_UNITS
) -> tuple[Array, Array]:
    """Which of the times are on the line that has most of them, and the times of `count` frames on it. `near`: how far
    from it they may be."""
    half = len(times) // 2
    slopes = (times[half:] - times[: len(times) - half]) / (numbers[half:] - numbers[: len(times) - half])
    intervals = [float(1 / (rate * timebase)) for rate in rates if rate > 0] + [float(np.median(slopes))]
    best, line = np.zeros(len(times), dtype=bool), np.zeros(count, dtype=np.int64)
    for interval in intervals:
        if interval < _LEAST_INTERVAL * near:
            continue
        late = times - numbers * interval
        # The place on which most agree, and of several the latest.
        ordered = np.sort(late)
        agreeing = np.searchsorted(ordered, ordered + near, side="right") - np.arange(len(ordered))
        first = len(ordered) - 1 - int(np.argmax(agreeing[::-1]))
        origin = float(np.median(ordered[first : first + int(agreeing[first])]))
        on = np.abs(late - origin) <= near
        if np.count_nonzero(on) > np.count_nonzero(best):
            best, line = on, np.round(origin + np.arange(count) * interval).astype(np.int64)
    return best, line


def _longest_off(on: Array) -> int:
    """How many times in a row are off the line, at most."""
    places = np.flatnonzero(on)
    if not len(places):
        return len(on)
    return int(np.diff(places, prepend=-1, append=len(on)).max()) - 1
