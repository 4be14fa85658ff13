"""Recordings that were joined byte by byte. The times of each start anew; here they are moved so that they continue.

A recording starts where times jump back in decode order, after several packets with later times, either by more than a
second or to before the first of these packets. A single wrong timestamp looks different, and so do stretches of one
recording that changed places: behind the second, times continue where the first ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...manifests.ragged import Array
from ..probing.unread import ANOTHER_FRAGMENTED, LEFT_OUT
from ..running.frame_report import NO_PTS
from .scanned import Scan

_JUMP_SECONDS = 1
_FEWEST_LATER = 3
_MAX_STEPS = 5
# A longer time between two packets of a recording may also be a wrong timestamp.
_MAX_PAUSE_SECONDS = 10
# Each is a term of an expression that ffmpeg evaluates for every frame.
_MAX_JOINS = 1000


@dataclass(frozen=True)
class Join:
    """From frame number `frame` on, counted among the frames that are used, times move later by `units` of the
    timebase, in addition to all earlier joins."""

    frame: int
    units: int


@dataclass(frozen=True, eq=False)
class Joined:
    """The times of the frames of a joined source, int64, in the order of the decoder's output: `stated_pts` as in the
    file, `pts` moved so that they continue. Frames without a time have NO_PTS."""

    stated_pts: Array
    pts: Array

    def of(self, decoded_pts: Array) -> Array:
        """The continued times of the frames that another decoder put out with the times `decoded_pts` in the file.
        NO_PTS from the first to the last frame in which the two outputs differ."""
        fewer = min(len(decoded_pts), len(self.stated_pts))
        head = _agreeing(decoded_pts[:fewer], self.stated_pts[:fewer])
        tail = _agreeing(decoded_pts[::-1][: fewer - head], self.stated_pts[::-1][: fewer - head])
        found = np.full(len(decoded_pts), NO_PTS)
        found[:head] = self.pts[:head]
        if tail:
            found[-tail:] = self.pts[-tail:]
        return found


@dataclass(frozen=True, eq=False)
class Evened:
    """The times of the frames of a source that arrived in bursts, int64: `stated_pts` as in the file, rising, and `pts`
    at which they are put."""

    stated_pts: Array
    pts: Array

    def of(self, decoded_pts: Array) -> Array:
        """The even times of the frames that a decoder put out with the times `decoded_pts`."""
        return np.round(np.interp(decoded_pts, self.stated_pts, self.pts)).astype(np.int64)

    def scan(self, scan: Scan) -> Scan:
        """The scan with frames at even times."""
        return replace(
            scan,
            packets=tuple(
                replace(packet, pts=packet.pts if packet.pts is None else int(self.of(np.array(packet.pts))))
                for packet in scan.packets
            ),
        )


def continued_scan(scan: Scan, timebase: Fraction) -> tuple[Scan, Joined | None]:
    """The scan, with each recording's times moved after the one before; None in place of Joined where there is only one
    recording."""
    packets = scan.packets
    starts = recordings([packet.dts for packet in packets], timebase)
    is_swapped = scan.stopped != ANOTHER_FRAGMENTED and any(packet.complaint == LEFT_OUT for packet in packets)
    if len(starts) < 2 or is_swapped:
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
        # Before an entry, the break is only the start of another recording.
        begins = "" if packets[start].is_entry else packets[start].break_before or "another recording begins"
        moved[start] = replace(moved[start], break_before=begins)
    joined = Joined(*(_times([each[number] for number in scan.shown]) for each in (stated, [p.pts for p in moved])))
    return replace(scan, packets=tuple(moved)), joined


def continued_times(decoded_pts: Array, timebase: Fraction) -> Array:
    """The times of decoded frames in the order of the decoder's output, with each recording moved after the one
    before."""
    stated = decoded_pts.tolist()
    return decoded_pts + np.array(_moves(stated, recordings(stated, timebase)), dtype=np.int64)


def joins_of(stated_pts: Array, pts: Array) -> tuple[Join, ...]:
    """The joins that move the frames that are used from `stated_pts`, as in the file, to `pts`."""
    moves = pts - stated_pts
    places = np.flatnonzero(np.diff(moves, prepend=0))
    return tuple(Join(int(place), int(moves[place] - (moves[place - 1] if place else 0))) for place in places)


def recordings(times: Sequence[int | None], timebase: Fraction) -> list[int]:
    """The numbers of the packets at which recordings start, from their times in decode order; only [0] where that is
    uncertain."""
    jump, pause = (seconds / timebase for seconds in (_JUMP_SECONDS, _MAX_PAUSE_SECONDS))
    starts = [0]
    current: list[int] = []
    longest_step = long_step = usual_step = end_before = 0
    for number, time in enumerate(times):
        if time is None:
            continue
        if current and time < current[-1]:
            is_earlier = time < current[-1] - jump or time <= current[0]
            later = sum(each >= time for each in current[-_FEWEST_LATER:])
            if is_earlier and later >= _FEWEST_LATER:
                starts.append(number)
                steps = sorted(after - before for before, after in pairwise(current))
                longest_step, usual_step, end_before = steps[-1], steps[len(steps) // 2], current[-1]
                long_step = steps[len(steps) * 3 // 4]
                current = []
        step = time - current[-1] if current else 0
        # Times jump forward again after a few packets: these had wrong timestamps.
        returns = len(current) < _FEWEST_LATER and step > _MAX_STEPS * longest_step
        # Times that were rounded to milliseconds are no jump, nor those of a variable rate.
        continues = step > 2 * long_step and 0 < time - end_before <= _MAX_STEPS * usual_step
        if step > pause or (len(starts) > 1 and (returns or continues)):
            return [0]
        current.append(time)
    return starts if len(starts) <= _MAX_JOINS else [0]


def _moves(pts: Sequence[int | None], starts: Sequence[int]) -> list[int]:
    """By how much each time moves: a recording starts a median interval after the last frame before it."""
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
    """How many elements, from the first, are equal in both."""
    unlike = np.flatnonzero(one != other)
    return int(unlike[0]) if len(unlike) else len(one)
