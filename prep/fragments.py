"""Splits ffmpeg's output, a stream of fragmented MP4, into fragments: one for each GOP."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO

from ..errors import CorruptDataError
from ..manifests.mp4 import Init, parse_init


def fragments(stream: IO[bytes]) -> Iterator[tuple[bytes, Init, bytes]]:
    """(init bytes, the parsed init, moof + mdat) of each fragment in a stream of fragmented MP4."""
    init_bytes, init, moof = b"", None, b""
    for kind, box in _boxes(stream):
        if kind in (b"ftyp", b"moov"):
            init_bytes += box
            init = parse_init(init_bytes) if kind == b"moov" else None
        elif kind == b"moof":
            moof = box
        elif kind == b"mdat":
            if init is None or not moof:
                raise CorruptDataError("an mdat without moov and moof before it")
            yield init_bytes, init, moof + box
            moof = b""


def _boxes(stream: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Type and bytes of each top-level box."""
    while header := stream.read(8):
        if len(header) < 8:
            raise CorruptDataError("ffmpeg's output ends inside a box header")
        size, kind = struct.unpack(">I4s", header)
        if size < 8:
            raise CorruptDataError(f"a box {kind!r} of {size} bytes in ffmpeg's output")
        body = stream.read(size - 8)
        if len(body) < size - 8:
            raise CorruptDataError(f"ffmpeg's output ends inside its box {kind!r}")
        yield kind, header + body
