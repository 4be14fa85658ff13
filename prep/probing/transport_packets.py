"""What the packets of a transport stream say of what is missing. Formulas: ISO/IEC 13818-1, 2.4.3.

FFmpeg calls a frame incomplete where its PES packet has another length than its header states, or where the continuity
counter jumps. Some programs write wrong lengths, so the counters decide where lengths are not to be trusted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...manifests.ragged import Array

# Plain ones, those of Blu-ray and AVCHD with a time before each, and those of broadcasts with a checksum behind each.
_SIZES = (188, 192, 204)
_PLAIN_BYTES, _SYNC = 188, 0x47
_FEWEST_COMPARED, _ROWS_COMPARED, _LAST_LOOKED_AT, _ROWS_AT_ONCE = 5, 50, 20_000, 200_000
_PES_START_BYTES, _LENGTHS = 6, 1 << 16

# The stream_id of video in a PES header: 0xE0 to 0xEF.
_VIDEO_IDS = [bytes([number]) for number in range(0xE0, 0xF0)]

_Rows = NDArray[np.uint8]

REPEATED = "its transport packets are repeated, and FFmpeg reads each of them as new data"


@dataclass(frozen=True, eq=False)
class Continuity:
    """The PES packets of one stream, in the order of the file. `starts`: their positions, rising. `is_whole`: no
    transport packet is missing in them, by their counters. `trusted`: the length that they state may be relied on.
    `is_repeated`: a transport packet of theirs occurs twice."""

    starts: Array
    is_whole: NDArray[np.bool_]
    trusted: NDArray[np.bool_]
    is_repeated: NDArray[np.bool_]

    def excuses(self, position: int | None) -> bool:
        """Whether all of the PES packet at this position is there, and only the length that it states is wrong."""
        place = self._place(position)
        return place >= 0 and bool(self.is_whole[place] and not self.trusted[place])

    def repeats(self, position: int | None) -> bool:
        """Whether a transport packet of the PES packet at this position occurs twice."""
        place = self._place(position)
        return place >= 0 and bool(self.is_repeated[place])

    def _place(self, position: int | None) -> int:
        # FFmpeg's positions are those of the checksum before, where there is one.
        return -1 if position is None else int(np.searchsorted(self.starts, position + 16, side="right")) - 1


def continuity_of(path: str, pid: int) -> Continuity | None:
    """What the counters of a stream say; None where a packet of the file does not begin as it should."""
    layout = _layout(path)
    if layout is None:
        return None
    size = layout[1]
    breaks, repeats, starts, stated, read = ([np.zeros(0, np.int64)] for _ in range(5))
    counter, payload = -1, 0
    for position, block in _blocks(path, *layout):
        if (block[:, 0] != _SYNC).any():
            return None
        mine = (_pids(block) == pid) & (block[:, 3] & 0x30 != 0)
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
        head = np.minimum(np.where(has_fields, 5 + rows[:, 4].astype(np.int64), 4), _PLAIN_BYTES - _PES_START_BYTES)
        counts = np.where(has_payload, _PLAIN_BYTES - head, 0)
        breaks.append(places[~goes_on | (rows[:, 1] & 0x80 != 0)])
        starts.append(places[begins])
        read.append((payload + np.cumsum(counts) - counts)[begins])
        length_at = head[begins] + _PES_START_BYTES - 2
        firsts, numbers = rows[begins].astype(np.int64), np.arange(len(length_at))
        stated.append(firsts[numbers, length_at] << 8 | firsts[numbers, length_at + 1])
        counter, payload = int(counters[-1]), payload + int(counts.sum())
    begin = np.concatenate(starts)
    # What breaks at the first packet of the next one may lack the end of this one.
    is_whole = ~_have(np.concatenate(breaks), begin, side="right")
    trusted = _trusted_lengths(np.concatenate(stated), np.concatenate([*read, [payload]]), is_whole)
    return Continuity(begin, is_whole, trusted, _have(np.concatenate(repeats), begin, side="left"))


def _have(positions: Array, starts: Array, *, side: Literal["left", "right"]) -> NDArray[np.bool_]:
    """For each PES packet whether one of these positions, which rise, lies in it: with "right", also at the first
    packet of the next, and not at its own."""
    counts = np.searchsorted(positions, np.append(starts, np.iinfo(np.int64).max), side=side)
    return np.diff(counts) > 0


def _trusted_lengths(stated: Array, read: Array, is_whole: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For each PES packet whether the length that it states may be relied on. `read`: how many bytes there are before
    each of them, and in all.

    Lengths are not to be trusted where they do not fit into their 16 bits, or where most of the stream's are wrong:
    a single wrong one may be all that says of 16 lost packets, or 32, whose counters fit."""
    lengths = np.diff(read) - _PES_START_BYTES
    fits = (stated == 0) | (stated == lengths)
    counted = is_whole & (stated > 0)
    counted[-1:] = False
    is_overflow = (lengths >= _LENGTHS) & ((stated == lengths % _LENGTHS) | (stated == _LENGTHS - 1))
    mostly_wrong = 2 * np.count_nonzero(counted & ~fits) > np.count_nonzero(counted)
    trusted: NDArray[np.bool_] = fits | ~(is_overflow | mostly_wrong)
    return trusted


def has_transport_packets(path: str) -> bool:
    """Whether a file consists of transport packets, wherever in one of them it begins."""
    return _layout(path) is not None


def other_video_behind(path: str, position: int, known: Collection[int]) -> bool:
    """Whether another video begins behind this position, in a PID other than the known ones."""
    layout = _layout(path)
    if layout is None:
        return False
    first, size = layout
    at = first + max(0, position - first) // size * size
    _, rows = next(_blocks(path, at, size), (0, np.zeros((0, size), np.uint8)))
    begins = (rows[:, 0] == _SYNC) & (rows[:, 1] & 0x40 != 0) & (rows[:, 3] & 0x10 != 0)
    rows = rows[begins & ~np.isin(_pids(rows), list(known))]
    head = np.where(rows[:, 3] & 0x20 != 0, 5 + rows[:, 4].astype(np.int64), 4)
    starts = (row[at : at + 4].tobytes() for row, at in zip(rows, head.tolist(), strict=True))
    return any(start[:3] == b"\0\0\1" and start[3:] in _VIDEO_IDS for start in starts)


def ends_in_mid_packet(path: str, pid: int) -> bool:
    """Whether the last PES packet of this PID looks cut off: no stuffing follows it. One in 184 whole ones has no
    stuffing either, because it ends exactly at the end of a transport packet."""
    layout = _layout(path)
    if layout is None:
        return False
    first, size = layout
    count = (Path(path).stat().st_size - first + size - _PLAIN_BYTES) // size
    skipped = max(0, count - _LAST_LOOKED_AT)
    rows = next((rows for _, rows in _blocks(path, first + skipped * size, size)), np.zeros((0, size), np.uint8))
    mine = rows[(rows[:, 0] == _SYNC) & (_pids(rows) == pid) & (rows[:, 3] & 0x10 != 0)]
    if not len(mine):
        return False
    last = mine[-1]
    return not last[3] & 0x20 or bool(last[4] <= _fields_bytes(int(last[5])))


def _fields_bytes(flags: int) -> int:
    """How many bytes an adaptation field with these flags has without stuffing; 0 where all of it is stuffing."""
    return 1 + 6 * bool(flags & 0x10) + 6 * bool(flags & 0x08) + bool(flags & 0x04) if flags else 0


def _pids(rows: _Rows) -> NDArray[Any]:
    return (rows[:, 1].astype(np.int64) & 0x1F) << 8 | rows[:, 2]


def _layout(path: str) -> tuple[int, int] | None:
    """The position of the first packet that is followed by others, and the distance between them."""
    with Path(path).open("rb") as file:
        data = np.frombuffer(file.read(max(_SIZES) * (_ROWS_COMPARED + 1)), np.uint8)
    for size in _SIZES:
        for first in range(min(size, len(data))):
            signs = data[first::size][:_ROWS_COMPARED]
            if len(signs) >= _FEWEST_COMPARED and (signs == _SYNC).all():
                return first, size
    return None


def _blocks(path: str, first: int, size: int) -> Iterator[tuple[int, _Rows]]:
    """The whole packets from this position on, and where each block of them begins."""
    position = first
    with Path(path).open("rb") as file:
        file.seek(first)
        while data := file.read(size * _ROWS_AT_ONCE):
            # What lies between packets, a time or a checksum, may lack behind the last one.
            padded = data + bytes(size - _PLAIN_BYTES)
            rows = len(padded) // size
            yield position, np.frombuffer(padded, np.uint8, rows * size).reshape(rows, size)
            position += len(data)
