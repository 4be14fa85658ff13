"""What a transport stream shows while its tables do not list the stream that is read. Formulas: ISO/IEC 13818-1, 2.4.4.

Where another programme begins, as an advertisement that was put between the segments of a stream, its tables may list
other streams (PIDs). FFmpeg goes on with the first one, whenever that one is there again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .transport_packets import PLAIN_BYTES, SYNC, blocks_of, layout_of, pids_of, video_starts

_PROGRAMS_PID, _PROGRAMS_TABLE, _STREAMS_TABLE = 0, 0, 2
# What comes before the entries of a table, and the checksum behind them.
_TABLE_HEAD_BYTES, _STREAMS_HEAD_BYTES, _CHECKSUM_BYTES = 8, 12, 4


class _Tables:
    """The tables that count at a place of the file. `programs`: the PIDs of the tables of streams. `streams`: for each
    of these the PIDs that it lists."""

    def __init__(self) -> None:
        self.programs: list[int] = []
        self.streams: dict[int, list[int]] = {}
        self._last: dict[int, bytes] = {}
        # Whether a table is longer than the packet with which it begins, of which only that part is read.
        self._is_part: dict[int, bool] = {}

    def see(self, pid: int, packet: bytes) -> None:
        """Read a packet with which a table begins."""
        at = (5 + packet[4] if packet[3] & 0x20 else 4) + 1
        at += packet[at - 1] if at <= len(packet) else 0
        table = packet[at:]
        # Tables are repeated several times a second.
        if len(table) < _TABLE_HEAD_BYTES or not table[5] & 1 or self._last.get(pid) == table:
            return
        self._last[pid] = table
        end = 3 + (int.from_bytes(table[1:3]) & 0xFFF) - _CHECKSUM_BYTES
        if pid == _PROGRAMS_PID and table[0] == _PROGRAMS_TABLE:
            entries = [table[place : place + 4] for place in range(_TABLE_HEAD_BYTES, min(end, len(table)) - 3, 4)]
            self.programs = [_pid_in(entry[2:]) for entry in entries if entry[:2] != b"\0\0"]
        elif pid in self.programs and table[0] == _STREAMS_TABLE:
            self.streams[pid] = list(_listed(table[:end]))
            self._is_part[pid] = end > len(table)

    def shows_another(self, shown: int, pid: int) -> bool:
        """Whether `shown` is listed and `pid` is not."""
        listed = [each for program in self.programs for each in self.streams.get(program, ())]
        is_known = not any(self._is_part.get(program) for program in self.programs)
        return is_known and shown in listed and pid not in listed


def frames_meanwhile(path: str, pid: int) -> int:
    """How many frames of video are in other streams while the tables list these and not the one of this PID: about as
    many as PES packets."""
    layout = layout_of(path)
    if layout is None:
        return 0
    tables, count = _Tables(), 0
    for _, rows in blocks_of(path, *layout):
        for shown, packet in _of_interest(rows, pid):
            if packet is None:
                count += tables.shows_another(shown, pid)
            else:
                tables.see(shown, packet)
    return count


def _of_interest(rows: NDArray[np.uint8], pid: int) -> Iterator[tuple[int, bytes | None]]:
    """The PIDs of the packets with which a table may begin, and of those with which a frame of another video begins, in
    their order; the packet of a table."""
    begins = np.flatnonzero((rows[:, 0] == SYNC) & (rows[:, 1] & 0x40 != 0) & (rows[:, 3] & 0x10 != 0))
    rows = rows[begins]
    pids = pids_of(rows)
    others = pids != pid
    rows, pids = rows[others], pids[others]
    is_video = video_starts(rows)
    head = np.minimum(np.where(rows[:, 3] & 0x20 != 0, 5 + rows[:, 4].astype(np.int64), 4), PLAIN_BYTES - 2)
    numbers = np.arange(len(rows))
    # A table begins behind a pointer, which is 0 nearly always; its first byte says which it is.
    table_at = np.minimum(head + 1 + rows[numbers, head], PLAIN_BYTES - 1)
    kind = rows[numbers, table_at]
    is_table = ~is_video & np.where(pids == _PROGRAMS_PID, kind == _PROGRAMS_TABLE, kind == _STREAMS_TABLE)
    for number in np.flatnonzero(is_video | is_table).tolist():
        yield int(pids[number]), None if is_video[number] else rows[number, :PLAIN_BYTES].tobytes()


def _listed(table: bytes) -> Iterator[int]:
    """The PIDs in a table of streams."""
    at = _STREAMS_HEAD_BYTES + (int.from_bytes(table[10:12]) & 0xFFF)
    while at + 5 <= len(table):
        yield _pid_in(table[at + 1 :])
        at += 5 + (int.from_bytes(table[at + 3 : at + 5]) & 0xFFF)


def _pid_in(entry: bytes) -> int:
    return int.from_bytes(entry[:2]) & 0x1FFF
