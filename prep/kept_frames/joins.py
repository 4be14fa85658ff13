"""Recordings that were joined byte by byte. The times of each start anew; here they are moved so that they continue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...manifests.ragged import Array
from ..probing.containers.unread import ANOTHER_FRAGMENTED, LEFT_OUT
from ..probing.recordings import recordings, unwrapped
from ..running.frame_report import NO_PTS
from .scanned import Scan, ScannedPacket, times_shown

# How many frames another decoder may put out or leave out at one place, and how many must agree behind it.
_MOST_OTHERS, _FEWEST_ALIKE = 32, 8


@dataclass(frozen=True)
class Join:
    """From frame number `frame` on, counted among the frames that are used, times move later by `units` of the
    timebase, in addition to all earlier joins; with each of `count` frames by as many again."""

    frame: int
    units: int
    count: int = 1


@dataclass(frozen=True, eq=False)
class Joined:
    """The times of the frames of a joined source, int64, in the order of the decoder's output: `stated_pts` as in the
    file, `pts` moved so that they continue. Frames without a time have NO_PTS. `period`: after how many units times
    begin anew."""

    stated_pts: Array
    pts: Array
    period: int | None = None

    def of(self, decoded_pts: Array) -> Array:
        """The continued times of the frames that another decoder put out with the times `decoded_pts` in the file.
        NO_PTS for those in which the two outputs differ."""
        places = _places(self._in_period(decoded_pts), self._in_period(self.stated_pts))
        return np.where(places < 0, NO_PTS, self.pts[places])

    def _in_period(self, pts: Array) -> Array:
        return pts if self.period is None else np.where(pts == NO_PTS, NO_PTS, pts % self.period)


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


def continued_scan(scan: Scan, timebase: Fraction, period: int | None = None) -> tuple[Scan, Joined | None]:
    """The scan, with each recording's times moved after the one before; None in place of Joined where there is only one
    recording. Times begin anew after `period` units, if they do."""
    dts = unwrapped([packet.dts for packet in scan.packets], period)
    starts = recordings(dts, timebase)
    is_swapped = scan.stopped != ANOTHER_FRAGMENTED and any(packet.complaint == LEFT_OUT for packet in scan.packets)
    if len(starts) < 2 or is_swapped:
        return scan, None
    packets = [_later(packet, units) for packet, units in zip(scan.packets, _laps(scan.packets, dts), strict=True)]
    moves = _moves([packet.pts for packet in packets], starts)
    moved = [_later(packet, move) for packet, move in zip(packets, moves, strict=True)]
    for start in starts[1:]:
        # Before an entry, the break is only the start of another recording.
        begins = "" if packets[start].is_entry else packets[start].break_before or "another recording begins"
        moved[start] = replace(moved[start], break_before=begins)
    stated_pts, pts = (times_shown(each, scan.shown) for each in (scan.packets, moved))
    return replace(scan, packets=tuple(moved)), Joined(stated_pts, pts, period)


def continued_times(decoded_pts: Array, timebase: Fraction) -> Array:
    """The times of decoded frames in the order of the decoder's output, with each recording moved after the one
    before. They are on one clock (`unwrapped`)."""
    stated = decoded_pts.tolist()
    return decoded_pts + np.array(_moves(stated, recordings(stated, timebase)), dtype=np.int64)


def joins_of(stated_pts: Array, pts: Array) -> tuple[Join, ...]:
    """The joins that move the frames that are used from `stated_pts`, as in the file, to `pts`."""
    steps = np.diff(pts - stated_pts, prepend=0)
    places = np.flatnonzero(np.diff(steps, prepend=0))
    stops = np.append(places, len(steps))[1:]
    runs = zip(places.tolist(), stops.tolist(), steps[places].tolist(), strict=True)
    return tuple(Join(place, units, stop - place) for place, stop, units in runs if units)


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


def _laps(packets: Sequence[ScannedPacket], dts: Sequence[int | None]) -> Iterator[int]:
    """By how much each packet is later if it is decoded at these times: where that is not known, as the one before."""
    units = 0
    for packet, time in zip(packets, dts, strict=True):
        units = units if packet.dts is None or time is None else time - packet.dts
        yield units


def _later(packet: ScannedPacket, units: int) -> ScannedPacket:
    pts, dts = (None if time is None else time + units for time in (packet.pts, packet.dts))
    return replace(packet, pts=pts, dts=dts)


def _places(one: Array, other: Array) -> Array:
    """For each element of `one` the number of the element of `other` that it is, in their order; -1 where they differ.
    From the last to the first difference all differ where they cannot be told."""
    fewer = min(len(one), len(other))
    head = _agreeing(one[:fewer], other[:fewer])
    tail = _agreeing(one[::-1][: fewer - head], other[::-1][: fewer - head])
    found = np.full(len(one), -1)
    found[:head] = np.arange(head)
    found[len(one) - tail :] = np.arange(len(other) - tail, len(other))
    at, place = head, head
    stop, end = len(one) - tail, len(other) - tail
    while at < stop and place < end:
        skipped = _skipped(one[at:stop], other[place:end])
        if skipped is None:
            break
        at, place = at + skipped[0], place + skipped[1]
        alike = _agreeing(*(each[: min(stop - at, end - place)] for each in (one[at:], other[place:])))
        found[at : at + alike] = np.arange(place, place + alike)
        at, place = at + alike, place + alike
    return found


def _skipped(one: Array, other: Array) -> tuple[int, int] | None:
    """How many elements of both have to be left out, as few as possible, so that several agree behind them; None where
    these are too many."""
    for total in range(_MOST_OTHERS + 1):
        for first in range(total + 1):
            part = [each[skip : skip + _FEWEST_ALIKE] for each, skip in ((one, first), (other, total - first))]
            if len(part[0]) == len(part[1]) == _FEWEST_ALIKE and (part[0] == part[1]).all():
                return first, total - first
    return None


def _agreeing(one: Array, other: Array) -> int:
    """How many elements, from the first, are equal in both."""
    unlike = np.flatnonzero(one != other)
    return int(unlike[0]) if len(unlike) else len(one)
