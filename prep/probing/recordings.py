"""Where recordings start that were joined byte by byte, by the times of their packets.

The times of each start anew. A recording starts where times jump back in decode order, after several packets with later
times, either by more than a second or to before the first of these packets. A single wrong timestamp looks different,
and so do stretches of one recording that changed places: behind the second, times continue where the first ended.

In a file in which times jump back they may jump ahead as well, as where a stream goes on behind an advertisement that
has times of its own. A longer jump ahead is a start only where the clock of an earlier recording goes on in it, or in a
later one, with no more than a pause beside what lies between; otherwise it is a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...manifests.ragged import Array

_JUMP_SECONDS = 1
_FEWEST_LATER = 3
_MAX_STEPS = 5
# A longer time between two packets of a recording is a gap, or a wrong timestamp.
_MAX_PAUSE_SECONDS = 10
# So many stretches may lie between two of one clock.
_MOST_BETWEEN = 100
# Times that jump by a period, but for an eighth of it or less, began anew.
_WRAP_PART = 8
# The times of these have 33 bits, and 32. FFmpeg takes those that are much earlier than the first one for later ones.
_PERIODS = {"mpegts": 1 << 33, "mpeg": 1 << 33, "flv": 1 << 32}


@dataclass
class _Stretch:
    """Packets between two jumps: the number of the first one, and their times, without those that are not known.
    `is_ahead`: it begins with a jump ahead."""

    start: int
    is_ahead: bool = False
    times: list[int] = field(default_factory=list)

    @property
    def span(self) -> int:
        return max(self.times) - min(self.times)


def period_of(demuxer: str) -> int | None:
    """After how many units the times of a container begin anew; None where they do not."""
    return _PERIODS.get(demuxer)


def on_one_clock(times: Array, period: int | None) -> Array:
    """The times, int64, as the file has them, but that they go on where they begin anew. Those that FFmpeg moved by a
    period, as they are earlier than the first one, are moved back."""
    if period is None:
        return times
    steps = np.diff(times % period)
    # A gap of hours may well be longer than half a period.
    laps = np.where(np.abs(steps) > period - period // _WRAP_PART, np.sign(steps), 0)
    return np.asarray(np.cumsum(np.concatenate([times[:1], steps - laps * period])))


def unwrapped(times: Sequence[int | None], period: int | None) -> list[int | None]:
    """The times on one clock, of which some are not known."""
    moved = iter(on_one_clock(_known(times), period).tolist())
    return [None if time is None else next(moved) for time in times]


def is_joined(times: Sequence[int | None], timebase: Fraction, period: int | None) -> bool:
    """Whether there are several recordings, by the times of packets in decode order. Of containers whose times do not
    begin anew it is not said: where their times do, other signs tell."""
    if period is None:
        return False
    steps = np.diff(_known(times))
    # Quick for nearly all sources.
    has_jumps = (steps < 0).any() or (steps > float(_MAX_PAUSE_SECONDS / timebase)).any()
    return bool(has_jumps) and len(recordings(unwrapped(times, period), timebase)) > 1


def _known(times: Sequence[int | None]) -> Array:
    return np.array([time for time in times if time is not None], dtype=np.int64)


def recordings(times: Sequence[int | None], timebase: Fraction) -> list[int]:
    """The numbers of the packets at which recordings start, from their times in decode order; only [0] where that is
    uncertain."""
    jump, pause = (int(seconds / timebase) for seconds in (_JUMP_SECONDS, _MAX_PAUSE_SECONDS))
    stretches = _stretches(times, jump, pause)
    has_back = any(not stretch.is_ahead for stretch in stretches[1:])
    if not has_back or (any(stretch.is_ahead for stretch in stretches) and _changed_places(stretches)):
        return [0]
    begins = _begin(stretches, pause)
    return [stretch.start for stretch, is_start in zip(stretches, begins, strict=True) if is_start]


def _stretches(times: Sequence[int | None], jump: int, pause: int) -> list[_Stretch]:
    """The stretches between jumps; a single one where it is uncertain which times are right."""
    known = [(number, time) for number, time in enumerate(times) if time is not None]
    whole = [_Stretch(0)]
    stretches = [_Stretch(0)]
    longest_step = long_step = usual_step = end_before = 0
    is_behind_back = False
    for place, (number, time) in enumerate(known):
        current = stretches[-1].times
        step = time - current[-1] if current else 0
        if step < 0:
            is_earlier = step < -jump or time <= current[0]
            later = sum(each >= time for each in current[-_FEWEST_LATER:])
            if is_earlier and later >= _FEWEST_LATER:
                steps = sorted(after - before for before, after in pairwise(current))
                longest_step, usual_step, end_before = steps[-1], steps[len(steps) // 2], current[-1]
                # Of a few steps the longest may be that to what lies in the wrong place.
                long_step = steps[(len(steps) - 1) * 3 // 4]
                is_behind_back = True
                stretches.append(_Stretch(number))
        elif current:
            # Times jump forward again after a few packets: these had wrong timestamps.
            returns = len(current) < _FEWEST_LATER and step > _MAX_STEPS * longest_step
            # Times that were rounded to milliseconds are no jump, nor those of a variable rate.
            continues = 2 * long_step < step <= pause and 0 < time - end_before <= _MAX_STEPS * usual_step
            if is_behind_back and (returns or continues):
                return whole
            if step > pause:
                stays = [each >= time - jump for _, each in known[place + 1 : place + _FEWEST_LATER]]
                if len(current) < _FEWEST_LATER or len(stays) < _FEWEST_LATER - 1 or not all(stays):
                    return whole
                stretches.append(_Stretch(number, is_ahead=True))
        stretches[-1].times.append(time)
    return stretches


def _changed_places(stretches: list[_Stretch]) -> bool:
    """Whether a stretch ends where an earlier one begins: they changed places."""
    for number, stretch in enumerate(stretches):
        steps = sorted(after - before for before, after in pairwise(stretch.times))
        longest = _MAX_STEPS * steps[len(steps) // 2] if steps else 0
        earlier = stretches[max(0, number - _MOST_BETWEEN) : number]
        if any(0 < before.times[0] - stretch.times[-1] <= longest for before in earlier):
            return True
    return False


def _begin(stretches: list[_Stretch], pause: int) -> list[bool]:
    """Which stretches are recordings of their own, and no gaps: those that begin with a jump back, and all from where a
    clock is left to where it goes on, with no more than a pause beside what lies between."""
    begins = [not stretch.is_ahead for stretch in stretches]
    spans = np.cumsum([0, *(stretch.span for stretch in stretches)]).tolist()
    for after in range(2, len(stretches)):
        for before in range(after - 2, max(-1, after - 2 - _MOST_BETWEEN), -1):
            between = spans[after] - spans[before + 1]
            if 0 < stretches[after].times[0] - stretches[before].times[-1] <= between + pause:
                begins[before + 1 : after + 1] = [True] * (after - before)
                break
    return begins
