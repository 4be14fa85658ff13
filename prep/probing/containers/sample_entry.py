"""Boxes in the index of an MP4 or QuickTime file, its moov box, which say more of its tracks than PyAV exposes."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

from ....errors import CorruptDataError
from ....manifests.mp4 import Box, boxes, read_box_header
from .searching import seek_within

# ISO/IEC 14496-12: 8.5.2 (sample entries), 12.1.3 (visual ones).
_ENTRY_FIELDS_BYTES = 78
_STSD_FIELDS_BYTES = 8
_MAX_MOOV_BYTES = 1 << 28
_LARGEST_HEADER_BYTES = 16
DAMAGED_BOXES = (CorruptDataError, struct.error, IndexError)
"""What is raised where boxes of a damaged file are read."""


def sample_entry_boxes(path: str, track_id: int) -> dict[bytes, bytes]:
    """What each box in the first sample entry of a video track holds, by its kind; nothing where it cannot be read."""
    found: dict[bytes, bytes] = {}
    # `probe` reports files that cannot be read. Some entries end in four bytes that are no box.
    with contextlib.suppress(*DAMAGED_BOXES, OSError):
        moov = _read_moov(Path(path))
        for trak in _children(moov, boxes(moov), b"trak"):
            if _track_id(moov, trak) != track_id:
                continue
            inside = boxes(moov, trak.body, trak.stop)
            for stsd in _children(moov, inside, b"mdia", b"minf", b"stbl", b"stsd"):
                entry = first_entry(moov, stsd)
                for box in boxes(moov, entry.body + _ENTRY_FIELDS_BYTES, entry.stop):
                    found.setdefault(box.type, moov[box.body : box.stop])
    return found


def first_entry(data: bytes, stsd: Box) -> Box:
    """The first sample entry of a track. CorruptDataError if it has none."""
    for entry in boxes(data, stsd.body + _STSD_FIELDS_BYTES, stsd.stop):
        return entry
    raise CorruptDataError("a track has no sample entry")


def is_encrypted(path: str) -> bool:
    """Whether an MP4 says that a video in it is encrypted (ISO/IEC 23001-7)."""
    with contextlib.suppress(*DAMAGED_BOXES, OSError):
        moov = _read_moov(Path(path))
        entries = (
            first_entry(moov, stsd).type
            for stsd in _children(moov, boxes(moov), b"trak", b"mdia", b"minf", b"stbl", b"stsd")
        )
        return b"encv" in entries
    return False


def track_box(path: str, track_id: int, *kinds: bytes) -> bytes:
    """What the first box of a track holds that lies below boxes of these kinds; b"" where there is none.
    An error of DAMAGED_BOXES, or OSError, where it cannot be read."""
    moov = _read_moov(Path(path))
    for trak in _children(moov, boxes(moov), b"trak"):
        if _track_id(moov, trak) == track_id:
            for box in _children(moov, boxes(moov, trak.body, trak.stop), *kinds):
                return moov[box.body : box.stop]
    return b""


def movie_boxes(path: str, *kinds: bytes) -> Iterator[bytes]:
    """What the boxes of an MP4's movie hold that lie below boxes of these kinds. Errors as of `track_box`."""
    moov = _read_moov(Path(path))
    return (moov[box.body : box.stop] for box in _children(moov, boxes(moov), *kinds))


def movie_timescale(path: str) -> int:
    """The units in a second of an MP4's movie, in which edits last; 1 where it states none."""
    moov = _read_moov(Path(path))
    for mvhd in _children(moov, boxes(moov), b"mvhd"):
        (units,) = struct.unpack_from(">I", moov, mvhd.body + (20 if moov[mvhd.body] == 1 else 12))
        return int(units) or 1
    return 1


def states_fragments(path: str) -> bool:
    """Whether an MP4 states that it consists of fragments, which have indexes of their own."""
    moov = _read_moov(Path(path))
    return any(box.type == b"mvex" for box in boxes(moov))


def is_index_cut_off(path: str, track_id: int | None) -> bool:
    """Whether an MP4 ends within its moov box, and not behind this track (None: wherever in it)."""
    try:
        moov, length = _moov_of(Path(path))
    except (CorruptDataError, OSError):
        # It lies behind what is no box.
        return False
    # Boxes are listed up to the one that is not whole.
    with contextlib.suppress(*DAMAGED_BOXES):
        in_front = (box for box in boxes(moov) if box.type == b"trak")
        return len(moov) < length and not any(_track_id(moov, trak) == track_id for trak in in_front)
    return len(moov) < length


def _read_moov(file: Path) -> bytes:
    """The payload of the moov box, or b"" where there is none."""
    return _moov_of(file)[0]


def _moov_of(file: Path) -> tuple[bytes, int]:
    """As much of the payload of the moov box as there is, and how long it is by its header; (b"", 0) where there is
    none."""
    with file.open("rb") as source:
        while header := source.read(_LARGEST_HEADER_BYTES):
            size, kind, body = read_box_header(header.ljust(_LARGEST_HEADER_BYTES, b"\0"), 0, _LARGEST_HEADER_BYTES)
            if kind == b"moov" and size <= _MAX_MOOV_BYTES:
                source.seek(body - len(header), 1)
                return source.read(size - body), size - body
            seek_within(source, source.tell() + size - len(header))
    return b"", 0


def _children(data: bytes, found: Iterator[Box], *kinds: bytes) -> Iterator[Box]:
    kind, *below = kinds
    for box in found:
        if box.type == kind:
            yield from _children(data, boxes(data, box.body, box.stop), *below) if below else [box]


def _track_id(moov: bytes, trak: Box) -> int | None:
    for tkhd in _children(moov, boxes(moov, trak.body, trak.stop), b"tkhd"):
        (track_id,) = struct.unpack_from(">I", moov, tkhd.body + (20 if moov[tkhd.body] == 1 else 12))
        return int(track_id)
    return None
