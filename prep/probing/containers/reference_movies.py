"""QuickTime reference movies, which have no pictures: they name other files that have them."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

from av.video.stream import VideoStream

from ....manifests.mp4 import boxes
from .sample_entry import DAMAGED_BOXES, movie_boxes, track_box

# ISO/IEC 14496-12, 8.7.2 (dref), and QuickTime File Format, "Reference movies" (rmra).
_DREF_FIELDS, _ENTRY_FLAGS, _IS_HERE = 8, struct.Struct(">I"), 1
_REFERENCE = struct.Struct(">4x4sI")
# Where a record of an alias has the name of its file: its length, and its bytes.
_ALIAS_NAME_AT, _LONGEST_ALIAS_NAME = 50, 63
_REMEDY = "give that one, or save this as a self-contained movie"


def why_reference_movie(path: str, track: VideoStream | None) -> str:
    """What a QuickTime file is whose video track has its pictures in another file, or that has no track but names other
    movies, and what to do: the end of "it is ...". "" for other files, and for those that hold all that the track
    lists."""
    if track is not None and _is_all_here(path, track):
        return ""
    with contextlib.suppress(*DAMAGED_BOXES, OSError):
        names = list(_movies(path) if track is None else _files(path, track.id))
        if names:
            named = ", ".join(map(repr, filter(None, dict.fromkeys(names))))
            which = f", which it calls {named}" if named else ""
            return f"a QuickTime reference movie: its pictures are in another file{which}; {_REMEDY}"
    return ""


def _is_all_here(path: str, track: VideoStream) -> bool:
    """Whether the last sample that an index lists lies within the file."""
    entries = track.index_entries
    if not len(entries):
        return True
    last = entries[len(entries) - 1]
    return last.pos + last.size <= Path(path).stat().st_size


def _files(path: str, track_id: int) -> Iterator[str]:
    """What a track calls the files that its samples may be in, other than its own. One without a name is its own."""
    dref = track_box(path, track_id, b"mdia", b"minf", b"dinf", b"dref")
    for entry in boxes(dref, _DREF_FIELDS):
        name = _name(entry.type, dref[entry.body + _ENTRY_FLAGS.size : entry.stop])
        if name and not _ENTRY_FLAGS.unpack_from(dref, entry.body)[0] & _IS_HERE:
            yield name


def _movies(path: str) -> Iterator[str]:
    """What a movie without tracks calls the movies that it stands for, of several qualities mostly."""
    for found in movie_boxes(path, b"rmra", b"rmda", b"rdrf"):
        kind, length = _REFERENCE.unpack_from(found)
        yield _name(kind, found[_REFERENCE.size :][:length])


def _name(kind: bytes, data: bytes) -> str:
    if kind == b"url ":
        name = data.partition(b"\0")[0]
    else:
        length = min(data[_ALIAS_NAME_AT], _LONGEST_ALIAS_NAME) if len(data) > _ALIAS_NAME_AT else 0
        name = data[_ALIAS_NAME_AT + 1 :][:length]
    return name.decode(errors="replace")
