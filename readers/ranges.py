"""Byte ranges into few reads: neighbours are fetched together, a gap between them being cheaper than another read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ByteRange:
    """Bytes [start, stop) of a file, which is a row of the shard table."""

    file: int
    start: int
    stop: int


@dataclass(frozen=True)
class Read:
    """One read that covers the ranges with the numbers in `parts`, which are in the order of their first bytes."""

    range: ByteRange
    parts: tuple[int, ...]


def coalesce(
    ranges: Sequence[ByteRange], *, max_gap_bytes: int, max_read_bytes: int, max_parts: int
) -> tuple[Read, ...]:
    """Plan reads that together cover all ranges, in the order of files and of bytes in them.

    Ranges at most `max_gap_bytes` apart are read together, at most `max_parts` of them and as long as the read does
    not become longer than `max_read_bytes`; a single range may be longer. Ranges may touch, overlap or be the same.
    """
    reads: list[Read] = []
    current: ByteRange | None = None
    parts: list[int] = []
    for part in sorted(range(len(ranges)), key=lambda part: (ranges[part].file, ranges[part].start)):
        one = ranges[part]
        if current is not None:
            stop = max(current.stop, one.stop)
            near = one.file == current.file and one.start - current.stop <= max_gap_bytes
            if near and len(parts) < max_parts and stop - current.start <= max_read_bytes:
                current = ByteRange(current.file, current.start, stop)
                parts.append(part)
                continue
            reads.append(Read(current, tuple(parts)))
        current, parts = one, [part]
    if current is not None:
        reads.append(Read(current, tuple(parts)))
    return tuple(reads)
