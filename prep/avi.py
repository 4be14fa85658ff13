"""How far the chunks of an AVI file follow each other. Its timestamps are nothing but the count of its chunks, so
behind a chunk that cannot be read no frame's time is known."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<4sI")
_KNOWN = re.compile(rb"\d\d(dc|db|wb|tx|pc|iv|__)|ix\d\d|idx1|JUNK|junk|hdrl|INFO|LIST|RIFF")
_OPENED = (b"movi", b"rec ", b"AVIX", b"AVI ")


def first_break(path: str) -> int | None:
    """The position of the first chunk that is none, or that is cut off, or None where all are whole."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        at, in_movi = 0, False
        while at + _HEADER.size <= size:
            kind, length = _header(file, at)
            if not _KNOWN.fullmatch(kind):
                # Between and behind the lists there may be anything.
                return at if in_movi else None
            if kind in (b"LIST", b"RIFF"):
                file.seek(at + _HEADER.size)
                name = file.read(4)
                in_movi = name in (b"movi", b"rec ") or (in_movi and name not in _OPENED)
                if name in _OPENED:
                    at += 12
                    continue
            elif kind == b"idx1":
                in_movi = False
            following = at + _HEADER.size + length + length % 2
            if in_movi and kind not in (b"LIST", b"RIFF") and following > size + 1:
                return at
            at = following
    return None


def _header(file: BinaryIO, at: int) -> tuple[bytes, int]:
    file.seek(at)
    kind, length = _HEADER.unpack(file.read(_HEADER.size))
    return kind, length
