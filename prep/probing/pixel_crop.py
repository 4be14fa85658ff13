"""The PixelCrop elements of a Matroska track: how many pixels at each side of its pictures are not shown.

PyAV, with which sources are probed, does not expose them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# RFC 9559 (Matroska), 5.1.
_SEGMENT, _TRACKS, _TRACK_ENTRY = 0x18538067, 0x1654AE6B, 0xAE
_TRACK_TYPE, _CODEC_ID, _VIDEO = 0x83, 0x86, 0xE0
_CROP_BOTTOM, _CROP_TOP, _CROP_LEFT, _CROP_RIGHT = 0x54AA, 0x54BB, 0x54CC, 0x54DD
# Video, audio, subtitles, metadata: FFmpeg has one stream for each track of these types, in the order of the file.
_STREAM_TYPES = (1, 2, 17, 33)
_MAX_TRACKS_BYTES = 1 << 28
# An id of four bytes and a size of eight.
_LARGEST_HEADER_BYTES = 12


class PixelCrop(NamedTuple):
    """How many pixels are cut off at each side of a picture."""

    left: int
    right: int
    top: int
    bottom: int


def pixel_crop(path: str, stream_index: int) -> PixelCrop | None:
    """The crop of the track of this stream, or None where it has none."""
    try:
        tracks = (dict(_elements(body)) for kind, body in _elements(_read_tracks(Path(path))) if kind == _TRACK_ENTRY)
        streams = [track for track in tracks if _number(track, _TRACK_TYPE) in _STREAM_TYPES and _CODEC_ID in track]
        video = dict(_elements(streams[stream_index][_VIDEO]))
    except (OSError, IndexError, KeyError):
        # `probe` reports files that cannot be read.
        return None
    crop = PixelCrop(*(_number(video, kind) for kind in (_CROP_LEFT, _CROP_RIGHT, _CROP_TOP, _CROP_BOTTOM)))
    return crop if any(crop) else None


def _read_tracks(file: Path) -> bytes:
    """The content of the element Tracks; b"" where there is none, or where an element before it has an unknown size."""
    with file.open("rb") as source:
        at = 0
        while header := _read_header(source.read(_LARGEST_HEADER_BYTES)):
            kind, size, header_bytes = header
            if kind == _TRACKS:
                source.seek(at + header_bytes)
                return source.read(min(size or 0, _MAX_TRACKS_BYTES))
            if kind != _SEGMENT and size is None:
                return b""
            at += header_bytes + (0 if kind == _SEGMENT else size or 0)
            source.seek(at)
    return b""


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
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


def _number(elements: dict[int, bytes], kind: int) -> int:
    return int.from_bytes(elements.get(kind, b""))
