"""Reading the pieces of a shard, each held against its CRC-32."""

from __future__ import annotations

import os
import zlib

from ..errors import CorruptDataError, UnreadableDataError
from .tables import Manifest


def read_init(shard: int, manifest: Manifest, segment: int) -> bytes:
    """ftyp + moov of a segment, from the open file `shard`. CorruptDataError when they are not as written."""
    table = manifest.segments
    return _read(shard, int(table.offset[segment]), int(table.init_length[segment]), int(table.init_crc32[segment]))


def read_gop(shard: int, manifest: Manifest, gop: int) -> bytes:
    """moof + mdat of a row of the GOP table, likewise."""
    table = manifest.gops
    return _read(shard, int(table.offset[gop]), int(table.length[gop]), int(table.crc32[gop]))


def _read(shard: int, offset: int, length: int, crc32: int) -> bytes:
    where = (offset, offset + length)
    if offset < 0 or length < 1:
        raise CorruptDataError("no range of bytes; the manifest is damaged", byte_range=where)
    try:
        data = os.pread(shard, length, offset)
    except OSError as error:
        raise UnreadableDataError(f"cannot be read: {error.strerror}", byte_range=where) from error
    if len(data) < length:
        raise CorruptDataError(f"only {len(data)} of {length} bytes are there", byte_range=where)
    if zlib.crc32(data) != crc32:
        raise CorruptDataError("the bytes are not those that were written: their CRC-32 differs", byte_range=where)
    return data
