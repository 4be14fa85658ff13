"""Elements of a Matroska file that PyAV, with which sources are probed, does not expose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .searching import found_behind, seek_within

# RFC 9559 (Matroska), 5.1.
_SEGMENT, _TRACKS, _TRACK_ENTRY, _CLUSTER = 0x18538067, 0x1654AE6B, 0xAE, 0x1F43B675
_SEEK_HEAD, _SEEK, _SEEK_ID, _SEEK_POSITION = 0x114D9B74, 0x4DBB, 0x53AB, 0x53AC
_TRACK_TYPE, _CODEC_ID = 0x83, 0x86
# Video, audio, subtitles, metadata: FFmpeg has one stream for each track of these types, in the order of the file.
_STREAM_TYPES = (1, 2, 17, 33)
_MAX_ELEMENT_BYTES = 1 << 28
# With what a file begins (RFC 8794, 11.2.1).
_EBML = b"\x1a\x45\xdf\xa3"
# What the header of a file says it is: DocType, and its length in a byte.
_DOC_TYPE, _HEAD_BYTES = re.compile(rb"\x42\x82[\x84-\x90](matroska|webm)"), 1 << 8
# An id of four bytes and a size of eight.
_LARGEST_HEADER_BYTES = 12


def track_of(path: str, stream_index: int, begin: int = 0) -> list[tuple[int, bytes]]:
    """The elements of the track of this stream; none where it is not found. `begin`: where the file begins in it."""
    found = elements(top_element(path, _TRACKS, begin))
    tracks = [list(elements(body)) for kind, body in found if kind == _TRACK_ENTRY]
    streams = [track for track in tracks if number_in(track, _TRACK_TYPE) in _STREAM_TYPES and _CODEC_ID in dict(track)]
    return streams[stream_index] if stream_index < len(streams) else []


def files_in(path: str, begin: int = 0) -> Iterator[int]:
    """Where each of the Matroska files begins that were joined to this one, and the one itself, of those that begin at
    this position or later. All of it is read from there on."""
    return (place for place, _ in found_behind(path, re.compile(re.escape(_EBML)), begin))


def has_file_behind(path: str) -> bool:
    """Whether another Matroska file begins where the segment of this one ends, by its header."""
    end = segment_end(path)
    if end is None:
        return False
    with Path(path).open("rb") as source:
        seek_within(source, end)
        return source.read(len(_EBML)) == _EBML


def files_behind(path: str, position: int = 1) -> Iterator[int]:
    """Where each Matroska file begins that was joined to this one at this position or behind it."""
    with Path(path).open("rb") as source:
        for begin in files_in(path, position):
            source.seek(begin)
            if _DOC_TYPE.search(source.read(_HEAD_BYTES)):
                yield begin


def top_element(path: str, wanted: int, begin: int = 0) -> bytes:
    """The content of an element of the segment that lies before all frames, or to which the segment's list of elements
    leads; b"" where there is none, or where an element before it has an unknown size."""
    with Path(path).open("rb") as source:
        at, segment_at, listed = source.seek(begin), begin, b""
        while header := _read_header(source.read(_LARGEST_HEADER_BYTES)):
            kind, size, header_bytes = header
            if kind == wanted:
                return _content(source, at, kind)
            if kind == _CLUSTER or (kind != _SEGMENT and size is None):
                break
            if kind == _SEEK_HEAD:
                listed += _content(source, at, kind)
            segment_at = at + header_bytes if kind == _SEGMENT else segment_at
            at += header_bytes + (0 if kind == _SEGMENT else size or 0)
            seek_within(source, at)
        entries = [list(elements(body)) for kind, body in elements(listed) if kind == _SEEK]
        places = [number_in(entry, _SEEK_POSITION) for entry in entries if number_in(entry, _SEEK_ID) == wanted]
        return _content(source, segment_at + places[0], wanted) if places else b""


def _content(source: BinaryIO, at: int, wanted: int) -> bytes:
    """What the element at this position holds; b"" where there is another one, or its size is unknown."""
    seek_within(source, at)
    header = _read_header(source.read(_LARGEST_HEADER_BYTES))
    if header is None or header[0] != wanted:
        return b""
    _, size, header_bytes = header
    seek_within(source, at + header_bytes)
    return source.read(min(size or 0, _MAX_ELEMENT_BYTES))


def segment_end(path: str) -> int | None:
    """Where the segment ends, by its header; None where it does not say, as in a stream or a recording that broke
    off."""
    with Path(path).open("rb") as source:
        at = 0
        while header := _read_header(source.read(_LARGEST_HEADER_BYTES)):
            kind, size, header_bytes = header
            if kind == _SEGMENT or size is None:
                return None if size is None else at + header_bytes + size
            at += header_bytes + size
            seek_within(source, at)
    return None


def elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The id and the content of each element, up to the first invalid one."""
    at = 0
    while header := _read_header(data[at : at + _LARGEST_HEADER_BYTES]):
        kind, size, header_bytes = header
        if size is None or at + header_bytes + size > len(data):
            return
        yield kind, data[at + header_bytes : at + header_bytes + size]
        at += header_bytes + size


def _read_header(data: bytes) -> tuple[int, int | None, int] | None:
    """The id and size (None: unknown) in an element's header, and the header's length (RFC 8794, 4 to 6); None where
    the header is not complete."""
    id_bytes = _length(data, 0)
    size_bytes = _length(data, id_bytes)
    if not id_bytes or not size_bytes or id_bytes + size_bytes > len(data):
        return None
    value_bits = 7 * size_bytes
    size = int.from_bytes(data[id_bytes : id_bytes + size_bytes]) & ((1 << value_bits) - 1)
    is_known = size != (1 << value_bits) - 1
    return int.from_bytes(data[:id_bytes]), size if is_known else None, id_bytes + size_bytes


def _length(data: bytes, at: int) -> int:
    """How many bytes the id or size at `at` has: one more than its first byte has leading zero bits; 0 where there is
    none."""
    return 9 - data[at].bit_length() if at < len(data) and data[at] else 0


def number_in(found: list[tuple[int, bytes]], wanted: int, default: int = 0) -> int:
    """The unsigned integer in the first element of this kind."""
    return next((int.from_bytes(body) for kind, body in found if kind == wanted), default)
