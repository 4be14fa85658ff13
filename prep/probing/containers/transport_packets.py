"""What the packets of a transport stream say of what is missing. Formulas: ISO/IEC 13818-1, 2.4.3.

FFmpeg calls a frame incomplete where its PES packet has another length than its header states, or where the continuity
counter jumps. Some programs write wrong lengths, so the counters decide where lengths are not to be trusted. And
counters begin anew in each segment of a stream (HLS) that was written as a file of its own: joined segments are all
there where they do so, and times go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from ....manifests.ragged import Array
from .joined_files import Paths, open_joined
from .zero_tail import zeros_from

# Plain ones, those of Blu-ray and AVCHD with a time before each, and those of broadcasts with a checksum behind each.
_SIZES = (188, 192, 204)
PLAIN_BYTES, SYNC = 188, 0x47
_FEWEST_COMPARED, _ROWS_COMPARED, _LAST_LOOKED_AT, _ROWS_AT_ONCE = 5, 50, 20_000, 200_000
_PES_START_BYTES, _LENGTHS = 6, 1 << 16
# A PES header with both times, which have 33 bits. The table of programs has a PID of its own.
_TIMED_START_BYTES, _TIMES, _TABLES_PID = 19, 1 << 33, 0
# Frames by which it is known how far apart they are, and how much of a file may lie between two of them.
_STARTS_TIMED, _MOST_BETWEEN_BYTES = 2000, 1 << 20
# Where a frame is missing, the next one comes at least twice as long after the one before as usual. In a variable rate
# one in ten intervals may be longer than those that count as usual; in a constant one they differ by what was rounded.
_MOST_STEPS, _ORDINARY_PART, _ROUNDED_STEPS = 1.75, 0.9, 1.25
# By more, in units of 1/90000 s, times jump to another recording: back, or ahead past what are lost frames.
_MOST_BACK, _MOST_AHEAD = 90_000, 900_000
# The stream_id of video in a PES header: 0xE0 to 0xEF.
_VIDEO_IDS = [bytes([number]) for number in range(0xE0, 0xF0)]

_Rows = NDArray[np.uint8]

REPEATED = "its transport packets are repeated, and FFmpeg reads each of them as new data"


@dataclass(frozen=True, eq=False)
class Continuity:
    """The PES packets of one stream, in the order of the file. `starts`: their positions, rising. `is_whole`: no
    transport packet is missing in them, by their counters. `fits`: they are as long as they state. `trusted`: the
    length that they state may be relied on. `is_repeated`: a transport packet of theirs occurs twice. `is_segment_end`:
    they are the last ones of a segment, behind which another one was joined. `is_recording_end`: the times of that one
    are others, so that they do not say whether a frame is missing between them. `is_before_hole`: they say that some
    are."""

    starts: Array
    is_whole: NDArray[np.bool_]
    fits: NDArray[np.bool_]
    trusted: NDArray[np.bool_]
    is_repeated: NDArray[np.bool_]
    is_segment_end: NDArray[np.bool_]
    is_recording_end: NDArray[np.bool_]
    is_before_hole: NDArray[np.bool_]

    def excuses(self, position: int | None) -> bool:
        """Whether all of the PES packet at this position is there, and only the length that it states is wrong, or
        counters begin anew behind it."""
        place = self._place(position)
        if place < 0:
            return False
        if self.is_whole[place] and not self.trusted[place]:
            return True
        # FFmpeg's parsers may call the frame before it incomplete instead.
        near = slice(place, place + 2)
        is_there = self.is_whole[near] & (self.fits[near] | ~self.trusted[near])
        return bool(is_there.all() and self.is_segment_end[near].any())

    def ends_recording(self, position: int | None) -> bool:
        """Whether frames may be missing behind the PES packet at this position, or the one behind it, with which a
        segment ends."""
        place = self._place(position)
        return place >= 0 and bool((self.is_recording_end | self.is_before_hole)[place : place + 2].any())

    def precedes_hole(self, position: int | None) -> bool:
        """Whether frames are missing behind the PES packet at this position, or the one behind it."""
        place = self._place(position)
        return place >= 0 and bool(self.is_before_hole[place : place + 2].any())

    def repeats(self, position: int | None) -> bool:
        """Whether a transport packet of the PES packet at this position occurs twice."""
        place = self._place(position)
        return place >= 0 and bool(self.is_repeated[place])

    def _place(self, position: int | None) -> int:
        # FFmpeg's positions are those of the checksum before, where there is one.
        return -1 if position is None else int(np.searchsorted(self.starts, position + 16, side="right")) - 1


def continuity_of(path: Paths, pid: int, codec: str) -> Continuity | None:
    """What the counters of a stream say, in a file or several read as one; None where a packet does not begin as it
    should."""
    layout = layout_of(path)
    if layout is None:
        return None
    size = layout[1]
    breaks, befores, repeats, starts, stated, read = ([np.zeros(0, np.int64)] for _ in range(6))
    counter, payload, last_place = -1, 0, -1
    for position, block in blocks_of(path, *layout):
        if (block[:, 0] != SYNC).any():
            return None
        mine = (pids_of(block) == pid) & (block[:, 3] & 0x30 != 0)
        places, rows = position + np.flatnonzero(mine) * size, block[mine]
        if not len(rows):
            continue
        has_payload, has_fields = rows[:, 3] & 0x10 != 0, rows[:, 3] & 0x20 != 0
        counters = (rows[:, 3] & 15).astype(np.int64)
        before = np.concatenate([[counter], counters[:-1]])
        is_new = has_fields & (rows[:, 4] > 0) & (rows[:, 5] & 0x80 != 0)
        goes_on = (before < 0) | is_new | (counters == (before + has_payload) % 16)
        repeats.append(places[~goes_on & has_payload & (counters == before)])
        begins = has_payload & (rows[:, 1] & 0x40 != 0)
        head = np.minimum(np.where(has_fields, 5 + rows[:, 4].astype(np.int64), 4), PLAIN_BYTES - _PES_START_BYTES)
        counts = np.where(has_payload, PLAIN_BYTES - head, 0)
        is_break = ~goes_on | (rows[:, 1] & 0x80 != 0)
        breaks.append(places[is_break])
        befores.append(np.concatenate([[last_place], places[:-1]])[is_break])
        starts.append(places[begins])
        read.append((payload + np.cumsum(counts) - counts)[begins])
        length_at = head[begins] + _PES_START_BYTES - 2
        firsts, numbers = rows[begins].astype(np.int64), np.arange(len(length_at))
        stated.append(firsts[numbers, length_at] << 8 | firsts[numbers, length_at + 1])
        counter, payload, last_place = int(counters[-1]), payload + int(counts.sum()), int(places[-1])
    begin, broken = np.concatenate(starts), np.concatenate(breaks)
    joins = _joins_of_segments(path, layout, begin, broken, np.concatenate(befores), ends_are_told=codec == "h264")
    # What breaks at the first packet of the next one may lack the end of this one.
    is_whole = ~_have(np.setdiff1d(broken, joins.all), begin, side="right")
    fits, trusted = _lengths(np.concatenate(stated), np.concatenate([*read, [payload]]), is_whole)
    is_repeated = _have(np.concatenate(repeats), begin, side="left")
    ends = (_have(each, begin, side="right") for each in (joins.all, joins.others, joins.holes))
    return Continuity(begin, is_whole, fits, trusted, is_repeated, *ends)


@dataclass(frozen=True, eq=False)
class _Joins:
    """The positions of transport packets with which a segment begins that was joined, rising: `all` of them, those of
    recordings with `others` times, and those before which frames are missing."""

    all: Array
    others: Array
    holes: Array


def _joins_of_segments(
    path: Paths, layout: tuple[int, int], starts: Array, breaks: Array, befores: Array, *, ends_are_told: bool
) -> _Joins:
    """The joins of segments, of the transport packets in `breaks`, where the counters of a stream do not go on.

    Each segment begins as the file does: with tables, a PES packet, and the same counters. Where the file lacks its
    beginning, they are zero, as muxers begin. After losses they may be zero by chance: so there are two such segments,
    or a constant rate, whose times say that no frame is missing. The segment before ends with a whole PES packet. The
    frame of the next one follows as usual, so that nothing is missing; or it follows later, or at another time, and
    counters may be others. `befores`: the positions of the stream's packets before the breaks. `ends_are_told`: a
    decoder notices where the end of a frame is missing.
    """
    found: list[int] = []
    others: list[int] = []
    holes: list[int] = []
    candidates = np.isin(breaks, starts[1:]) & (breaks - befores <= _MOST_BETWEEN_BYTES)
    if not candidates.any():
        return _Joins(*[np.zeros(0, np.int64)] * 3)
    size = layout[1]
    with open_joined(path) as file:
        known = [_decode_time(_rows_at(file, at, at + size, size)[-1]) for at in starts[:_STARTS_TIMED].tolist()]
        even, longest = _longest_steps(np.array([time for time in known if time is not None], np.int64))
        first = _begin_counters(_rows_at(file, layout[0], int(starts[0]) + size, size)) if len(starts) else None
        begun: list[tuple[int, int, tuple[int, int]]] = []
        for at, before in zip(breaks[candidates].tolist(), befores[candidates].tolist(), strict=True):
            rows = _rows_at(file, before, at + size, size)
            last_start = int(starts[np.searchsorted(starts, at) - 1])
            last, next_ = _decode_time(_rows_at(file, last_start, last_start + size, size)[-1]), _decode_time(rows[-1])
            has_end = ends_are_told or not _lacks_stuffing(rows[0])
            counters = _begin_counters(rows[1:])
            if last is None or next_ is None or counters is None or not has_end:
                continue
            begun.append((at, (next_ - last + _TIMES // 2) % _TIMES - _TIMES // 2, counters))
    counted = Counter(counters for _, _, counters in begun)
    for at, step, counters in begun:
        # A recorder may write the frame at which it begins a file into both.
        is_begin = counters == first or (not any(counters) and (counted[counters] > 1 or step <= even))
        if -longest / 4 <= step <= longest and is_begin:
            found.append(at)
        elif longest < step or step < -_MOST_BACK:
            (holes if 0 < step <= _MOST_AHEAD else others).append(at)
    return _Joins(*(np.array(sorted(each), np.int64) for each in ([*found, *others, *holes], others, holes)))


def _longest_steps(times: Array) -> tuple[float, float]:
    """The longest step from one frame to the next between which no frame is missing: of a constant rate, 0 if this is
    none, and of any rate."""
    if len(times) < 2:
        return 0.0, 0.0
    steps = np.diff(times) % _TIMES
    short, usual, ordinary = np.quantile(steps, [1 - _ORDINARY_PART, 0.5, _ORDINARY_PART]).tolist()
    is_constant = short * _ROUNDED_STEPS >= usual and ordinary <= _ROUNDED_STEPS * usual
    return _ROUNDED_STEPS * usual if is_constant else 0.0, max(_MOST_STEPS * usual, ordinary)


def _begin_counters(rows: _Rows) -> tuple[int, int] | None:
    """The counters of the last table of programs in some packets, and of the last packet; None without a table."""
    tables = rows[(pids_of(rows) == _TABLES_PID) & (rows[:, 1] & 0x40 != 0)]
    return (int(tables[-1, 3] & 15), int(rows[-1, 3] & 15)) if len(tables) else None


def _decode_time(packet: NDArray[np.uint8]) -> int | None:
    """The time, in units of 1/90000 s, at which the frame of a PES packet is decoded, which begins in this packet; None
    where it is not stated."""
    head = 5 + int(packet[4]) if packet[3] & 0x20 else 4
    start = packet[head:PLAIN_BYTES].tolist()
    if len(start) < _TIMED_START_BYTES or not start[7] & 0x80:
        return None
    at = 14 if start[7] & 0x40 else 9
    first, second, third, fourth, fifth = start[at : at + 5]
    return int((first >> 1 & 7) << 30 | second << 22 | (third >> 1) << 15 | fourth << 7 | fifth >> 1)


def _rows_at(file: BinaryIO, start: int, stop: int, size: int) -> _Rows:
    """The transport packets from one position to another."""
    file.seek(start)
    data = file.read(stop - start)
    data += bytes(-len(data) % size)
    return np.frombuffer(data, np.uint8).reshape(-1, size)


def _have(positions: Array, starts: Array, *, side: Literal["left", "right"]) -> NDArray[np.bool_]:
    """For each PES packet whether one of these positions, which rise, lies in it: with "right", also at the first
    packet of the next, and not at its own."""
    counts = np.searchsorted(positions, np.append(starts, np.iinfo(np.int64).max), side=side)
    return np.diff(counts) > 0


def _lengths(stated: Array, read: Array, is_whole: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each PES packet whether it is as long as it states, and whether the length that it states may be relied on.
    `read`: how many bytes there are before each of them, and in all.

    Lengths are not to be trusted where they do not fit into their 16 bits, or where most of the stream's are wrong:
    a single wrong one may be all that says of 16 lost packets, or 32, whose counters fit."""
    lengths = np.diff(read) - _PES_START_BYTES
    fits = (stated == 0) | (stated == lengths)
    counted = is_whole & (stated > 0)
    counted[-1:] = False
    is_overflow = (lengths >= _LENGTHS) & ((stated == lengths % _LENGTHS) | (stated == _LENGTHS - 1))
    mostly_wrong = 2 * np.count_nonzero(counted & ~fits) > np.count_nonzero(counted)
    return fits, fits | ~(is_overflow | mostly_wrong)


def has_transport_packets(path: str) -> bool:
    """Whether a file consists of transport packets, wherever in one of them it begins."""
    return layout_of(path) is not None


def has_only_zeros_behind(path: str) -> bool:
    """Whether a file ends in many zeros, and consists of transport packets without a break up to there."""
    layout, end = layout_of(path), zeros_from(path)
    if layout is None or end is None:
        return False
    # The last packet may be cut off.
    whole = (end - layout[0]) // layout[1]
    return all(
        (rows[: max(0, whole - (position - layout[0]) // layout[1]), 0] == SYNC).all()
        for position, rows in blocks_of(path, *layout)
    )


def other_video_behind(path: str, position: int, known: Collection[int]) -> bool:
    """Whether another video begins behind this position, in a PID other than the known ones."""
    layout = layout_of(path)
    if layout is None:
        return False
    first, size = layout
    at = first + max(0, position - first) // size * size
    _, rows = next(blocks_of(path, at, size), (0, np.zeros((0, size), np.uint8)))
    return _other_video_starts(rows, known)


def _other_video_starts(rows: _Rows, known: Collection[int]) -> bool:
    """Whether a PES packet of video begins in these packets, in a PID other than the known ones."""
    begins = (rows[:, 0] == SYNC) & (rows[:, 1] & 0x40 != 0) & (rows[:, 3] & 0x10 != 0)
    return bool(video_starts(rows[begins & ~np.isin(pids_of(rows), list(known))]).any())


def video_starts(rows: _Rows) -> NDArray[np.bool_]:
    """For each of these packets, with which something begins, whether it is a PES packet of video."""
    head = np.where(rows[:, 3] & 0x20 != 0, 5 + rows[:, 4].astype(np.int64), 4)
    starts = (row[at : at + 4].tobytes() for row, at in zip(rows, head.tolist(), strict=True))
    found = (start[:3] == b"\0\0\1" and start[3:] in _VIDEO_IDS for start in starts)
    return np.fromiter(found, dtype=np.bool_, count=len(rows))


def ends_in_mid_packet(path: str, pid: int) -> bool:
    """Whether the last PES packet of this PID looks cut off: no stuffing follows it. One in 184 whole ones has no
    stuffing either, because it ends exactly at the end of a transport packet."""
    layout = layout_of(path)
    if layout is None:
        return False
    first, size = layout
    count = (Path(path).stat().st_size - first + size - PLAIN_BYTES) // size
    skipped = max(0, count - _LAST_LOOKED_AT)
    rows = next((rows for _, rows in blocks_of(path, first + skipped * size, size)), np.zeros((0, size), np.uint8))
    mine = rows[(rows[:, 0] == SYNC) & (pids_of(rows) == pid) & (rows[:, 3] & 0x10 != 0)]
    return len(mine) > 0 and _lacks_stuffing(mine[-1])


def _lacks_stuffing(packet: NDArray[np.uint8]) -> bool:
    """Whether the payload of a transport packet fills it, as it does where no PES packet ends in it."""
    flags = int(packet[5])
    # How many bytes an adaptation field with these flags has without stuffing; 0 where all of it is stuffing.
    plain = 1 + 6 * bool(flags & 0x10) + 6 * bool(flags & 0x08) + bool(flags & 0x04) if flags else 0
    return not packet[3] & 0x20 or bool(packet[4] <= plain)


def pids_of(rows: _Rows) -> NDArray[Any]:
    return (rows[:, 1].astype(np.int64) & 0x1F) << 8 | rows[:, 2]


def layout_of(path: Paths) -> tuple[int, int] | None:
    """The position of the first packet that is followed by others, and the distance between them."""
    with open_joined(path) as file:
        data = np.frombuffer(file.read(max(_SIZES) * (_ROWS_COMPARED + 1)), np.uint8)
    for size in _SIZES:
        for first in range(min(size, len(data))):
            signs = data[first::size][:_ROWS_COMPARED]
            if len(signs) >= _FEWEST_COMPARED and (signs == SYNC).all():
                return first, size
    return None


def blocks_of(path: Paths, first: int, size: int) -> Iterator[tuple[int, _Rows]]:
    """The whole packets from this position on, and where each block of them begins."""
    position = first
    with open_joined(path) as file:
        file.seek(first)
        while data := file.read(size * _ROWS_AT_ONCE):
            # What lies between packets, a time or a checksum, may lack behind the last one.
            padded = data + bytes(size - PLAIN_BYTES)
            rows = len(padded) // size
            yield position, np.frombuffer(padded, np.uint8, rows * size).reshape(rows, size)
            position += len(data)
