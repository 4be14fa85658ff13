"""Recordings that were joined byte by byte: the times of each start anew, and are made to continue.

A recording begins where times jump back, in decode order, behind several packets that are later, by a second or to
before the first of them: a single wrong timestamp does not look so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ..manifests.ragged import Array
from .damage import Scan
from .frame_report import NO_PTS

_JUMP_SECONDS = 1
_FEWEST_LATER = 3
_MAX_STEPS = 5
# Within a recording, a longer time between two packets may as well be a wrong timestamp.
_MAX_PAUSE_SECONDS = 10
# Each is a term of an expression that ffmpeg works out for every frame.
_MAX_JOINS = 1000


@dataclass(frozen=True)
class Join:
    """From the frame of this number on, among those that are used, times are later by so many units of the timebase
    than those before are already."""

    frame: int
    units: int


@dataclass(frozen=True, eq=False)
class Joined:
    """The times of a joined source's frames, in the order in which the decoder puts them out, int64: as they stand in
    the file, and as they continue. Frames without a time have NO_PTS."""

    stated_pts: Array
    pts: Array

    def of(self, decoded_pts: Array) -> Array:
        """The continued times of frames that another decoder put out with these stated ones; NO_PTS from the first to
        the last of those in which the two differ."""
        fewer = min(len(decoded_pts), len(self.stated_pts))
        head = _agreeing(decoded_pts[:fewer], self.stated_pts[:fewer])
        tail = _agreeing(decoded_pts[::-1][: fewer - head], self.stated_pts[::-1][: fewer - head])
        found = np.full(len(decoded_pts), NO_PTS)
        found[:head] = self.pts[:head]
        if tail:
            found[-tail:] = self.pts[-tail:]
        return found


def continued_scan(scan: Scan, timebase: Fraction) -> tuple[Scan, Joined | None]:
    """The scan with the times of each recording after those of the one before; None where there is only one."""
    packets = scan.packets
    starts = recordings([packet.dts for packet in packets], timebase)
    if len(starts) < 2:
        return scan, None
    stated = [packet.pts for packet in packets]
    moves = _moves(stated, starts)
    moved = [
        replace(
            packet,
            pts=None if packet.pts is None else packet.pts + move,
            dts=None if packet.dts is None else packet.dts + move,
        )
        for packet, move in zip(packets, moves, strict=True)
    ]
    for start in starts[1:]:
        # What is missing before a frame that needs no other is another recording.
        begins = "" if packets[start].is_entry else packets[start].break_before or "another recording begins"
        moved[start] = replace(moved[start], break_before=begins)
    joined = Joined(*(_times([each[number] for number in scan.shown]) for each in (stated, [p.pts for p in moved])))
    return replace(scan, packets=tuple(moved)), joined


def continued_times(decoded_pts: Array, timebase: Fraction) -> Array:
    """The times of decoded frames, in the order of the decoder's output, with each recording after the one before."""
    stated = decoded_pts.tolist()
    return decoded_pts + np.array(_moves(stated, recordings(stated, timebase)), dtype=np.int64)


def joins_of(stated_pts: Array, pts: Array) -> tuple[Join, ...]:
    """Where the frames that are used, with these times in the file, have to be moved to get those times."""
    moves = pts - stated_pts
    places = np.flatnonzero(np.diff(moves, prepend=0))
    return tuple(Join(int(place), int(moves[place] - (moves[place - 1] if place else 0))) for place in places)


def recordings(times: Sequence[int | None], timebase: Fraction) -> list[int]:
    """The numbers of the packets, with these times in decode order, that recordings begin with; only the first where
    it is not sure."""
    jump, pause = (seconds / timebase for seconds in (_JUMP_SECONDS, _MAX_PAUSE_SECONDS))
    starts = [0]
    current: list[int] = []
    step_before = 0
    for number, time in enumerate(times):
        if time is None:
            continue
        if current and time < current[-1]:
            is_earlier = time < current[-1] - jump or time <= current[0]
            later = sum(each >= time for each in current[-_FEWEST_LATER:])
            if is_earlier and later >= min(_FEWEST_LATER, len(current)):
                starts.append(number)
                step_before = max((after - before for before, after in pairwise(current)), default=0)
                current = []
        step = time - current[-1] if current else 0
        # Back to where it came from: only a few packets had other times.
        returns = len(starts) > 1 and len(current) < _FEWEST_LATER and step > _MAX_STEPS * step_before
        if step > pause or returns:
            return [0]
        current.append(time)
    return starts if len(starts) <= _MAX_JOINS else [0]


def _moves(pts: Sequence[int | None], starts: Sequence[int]) -> list[int]:
    """How much later each time becomes: a recording begins an ordinary interval after the last frame before it."""
    moves: list[int] = []
    end: int | None = None
    for start, stop in zip(starts, [*starts[1:], len(pts)], strict=True):
        known = np.array(sorted(each for each in pts[start:stop] if each is not None), dtype=np.int64)
        move = end - int(known[0]) if end is not None and len(known) else 0
        moves += [move] * (stop - start)
        if len(known):
            end = int(known[-1]) + move + (int(np.median(np.diff(known))) if len(known) > 1 else 1)
    return moves


def _times(pts: Sequence[int | None]) -> Array:
    return np.array([NO_PTS if each is None else each for each in pts], dtype=np.int64)


def _agreeing(one: Array, other: Array) -> int:
    """How many elements, from the first, are the same in both."""
    unlike = np.flatnonzero(one != other)
    return int(unlike[0]) if len(unlike) else len(one)
