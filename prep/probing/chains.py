"""How far each chunk of an AVI file, and each tag of an FLV file, is followed directly by the next.

After damage, FFmpeg's demuxers search for the next one without a message. The timestamps of an AVI are a count of its
chunks, so they are wrong after a gap.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<4sI")
_KNOWN = re.compile(rb"\d\d(dc|db|wb|tx|pc|iv|__)|ix\d\d|idx1|JUNK|junk|hdrl|INFO|LIST|RIFF")
_OPENED = (b"movi", b"rec ", b"AVIX", b"AVI ")


_TAG_TYPES = (8, 9, 18)  # sound, video, metadata
_FLV_HEADER_BYTES, _TAG_HEADER_BYTES, _BACK_LINK_BYTES = 9, 11, 4


def first_break(path: str, container: str) -> int | None:
    """The byte position at which the chain of chunks or tags breaks, or None. Other containers than AVI and FLV have no
    such chain. A file that only ends too early is no break."""
    if container == "avi":
        return _avi_break(path)
    return _flv_break(path) if container == "flv" else None


def _flv_break(path: str) -> int | None:
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        at = int.from_bytes(file.read(_FLV_HEADER_BYTES)[5:]) + _BACK_LINK_BYTES
        while at + _TAG_HEADER_BYTES <= size:
            file.seek(at)
            header = file.read(_TAG_HEADER_BYTES)
            end = at + _TAG_HEADER_BYTES + int.from_bytes(header[1:4])
            if header[0] & 31 not in _TAG_TYPES:
                return at
            if end + _BACK_LINK_BYTES > size:
                return None
            file.seek(end)
            if int.from_bytes(file.read(_BACK_LINK_BYTES)) != end - at:
                return at
            at = end + _BACK_LINK_BYTES
    return None


def _avi_break(path: str) -> int | None:
    """The position of the first chunk that is not valid or is cut off, or None."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        at, in_movi = 0, False
        while at + _HEADER.size <= size:
            kind, length = _header(file, at)
            if not _KNOWN.fullmatch(kind):
                # Anything may lie between and after the lists.
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


def lacks_movi(path: str) -> bool:
    """Whether the chunks of an AVI do not lead to the list that has its frames. FFmpeg then finds the first ones
    somewhere behind its beginning."""
    size, at = Path(path).stat().st_size, 12
    with Path(path).open("rb") as file:
        while at + 12 <= size:
            kind, length = _header(file, at)
            if kind == b"LIST" and file.read(4) == b"movi":
                return False
            at += _HEADER.size + length + length % 2
    return True


def _header(file: BinaryIO, at: int) -> tuple[bytes, int]:
    file.seek(at)
    kind, length = _HEADER.unpack(file.read(_HEADER.size))
    return kind, length
