"""Another file that was joined behind the first one (`cat a.ivf b.ivf`), in formats of which FFmpeg reads the first one
only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .chains import Break, first_break
from .seeking import seek_within

_IVF_HEADER, _IVF_FRAME_HEADER = 32, 12
_ASF_START, _ASF_OBJECT = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"), 24
_WTV_SECTORS_AT, _WTV_SECTOR = 0x5C, 4096
_SWF_LENGTH_AT = 4
_PNG_START, _PNG_CHUNK = b"\x89PNG\r\n\x1a\n", 12
# With what files begin, by FFmpeg's names of the formats. Those of Flash may be compressed.
_STARTS = {
    "ivf": (b"DKIF",),
    "asf": (_ASF_START,),
    "wtv": (bytes.fromhex("b7d800203749da11a64e0007e95ead8d"),),
    "swf": (b"FWS", b"CWS", b"ZWS"),
    "apng": (_PNG_START,),
    "flv": (b"FLV\x01",),
}


@dataclass(frozen=True)
class Chain:
    """What is found along the chain of a file's chunks, tags or frames. `broken`: where it breaks; `next_begin`: where
    another file begins behind the first one, None where none does, or where the first one does not say how long it is.
    """

    broken: Break | None = None
    next_begin: int | None = None


def chain_of(path: str, demuxer: str) -> Chain:
    """Follow the chain of a file, which reads in all of it where it is long: once is enough."""
    broken = first_break(path, demuxer)
    return Chain(broken, _next_begin(path, demuxer, broken))


def _next_begin(path: str, demuxer: str, broken: Break | None) -> int | None:
    starts = _STARTS.get(demuxer)
    end = _end_of(path, demuxer, broken) if starts else None
    # A file does not end at its start, whatever a damaged header says.
    if not (starts and end):
        return None
    with Path(path).open("rb") as file:
        seek_within(file, end)
        return end if file.read(max(map(len, starts))).startswith(starts) else None


def _end_of(path: str, demuxer: str, broken: Break | None) -> int | None:
    """Where the first file ends, by what it says itself."""
    end_of = {"ivf": _ivf_end, "asf": _asf_end, "wtv": _wtv_end, "swf": _swf_end, "apng": _png_end}.get(demuxer)
    if end_of is None:
        return broken.position if broken else None
    with Path(path).open("rb") as file:
        return end_of(file)


def _number(file: BinaryIO, at: int, size: int, *, is_big: bool = False) -> int | None:
    """The number of `size` bytes at this position; None where the file ends before it does."""
    seek_within(file, at)
    data = file.read(size)
    return int.from_bytes(data, "big" if is_big else "little") if len(data) == size else None


def _ivf_end(file: BinaryIO) -> int | None:
    """Behind the last frame, each of which has its length before it, or before zeros."""
    at = _IVF_HEADER
    while True:
        seek_within(file, at)
        header = file.read(_IVF_FRAME_HEADER)
        is_empty = at > _IVF_HEADER and not any(header)
        if header.startswith(_STARTS["ivf"]) or len(header) < _IVF_FRAME_HEADER or is_empty:
            return at
        at += _IVF_FRAME_HEADER + int.from_bytes(header[:4], "little")


def _asf_end(file: BinaryIO) -> int | None:
    """Before the second header among the objects, each of which has its length."""
    at = 0
    while True:
        seek_within(file, at)
        header = file.read(_ASF_OBJECT)
        length = int.from_bytes(header[16:], "little")
        if at and header.startswith(_ASF_START):
            return at
        if len(header) < _ASF_OBJECT or length < _ASF_OBJECT:
            return None
        at += length


def _wtv_end(file: BinaryIO) -> int | None:
    sectors = _number(file, _WTV_SECTORS_AT, 4)
    return sectors * _WTV_SECTOR if sectors else None


def _swf_end(file: BinaryIO) -> int | None:
    # The lengths of others are those of what is compressed in them.
    return _number(file, _SWF_LENGTH_AT, 4) if file.read(1) == b"F" else None


def _png_end(file: BinaryIO) -> int | None:
    """Behind the chunk that is the last one of a picture."""
    at = len(_PNG_START)
    while (length := _number(file, at, 4, is_big=True)) is not None:
        is_last = file.read(4) == b"IEND"
        at += length + _PNG_CHUNK
        if is_last:
            return at
    return None
