"""The edit list of an MP4 or QuickTime track, where FFmpeg does not follow it: ISO/IEC 14496-12, 8.6.6."""

from __future__ import annotations

import contextlib
import struct
from itertools import dropwhile
from typing import NamedTuple

from ...errors import CorruptDataError
from .sample_entry import track_box

_ENTRIES = {0: struct.Struct(">IiI"), 1: struct.Struct(">QqI")}
_FIELDS = struct.Struct(">BxxxI")
_EMPTY = -1
_WITHOUT_EDITS = (
    "`ffmpeg -ignore_editlist 1 -i FILE -c copy OUT.mov` writes all that was recorded, without the edits: give "
    "that, or export it anew without them"
)


class _Edit(NamedTuple):
    """How long an edit lasts, in units of the movie, and where it begins in the media."""

    duration: int
    begin: int


def why_edits_are_misread(path: str, track_id: int) -> str:
    """What FFmpeg shows in place of the edits of a track, and what to do; "" where it follows them.

    It passes over empty edits before all others. In place of a later one it shows the beginning of the video once more.
    Of an edit without duration, which stands for all that follows, it shows nothing.
    """
    edits = list(dropwhile(lambda edit: edit.begin == _EMPTY, _edits(path, track_id)))
    if any(edit.begin == _EMPTY and edit.duration for edit in edits):
        return (
            "has a pause in its edit list, after some of its video, and FFmpeg shows the beginning again in its place; "
            f"{_WITHOUT_EDITS}"
        )
    if edits and not any(edit.duration for edit in edits):
        return f"has an edit list that states no duration, and FFmpeg shows nothing of its video; {_WITHOUT_EDITS}"
    return ""


def _edits(path: str, track_id: int) -> list[_Edit]:
    with contextlib.suppress(CorruptDataError, struct.error, OSError, KeyError):
        data = track_box(path, track_id, b"edts", b"elst")
        version, count = _FIELDS.unpack_from(data)
        entry = _ENTRIES[version]
        whole = min(count, (len(data) - _FIELDS.size) // entry.size)
        return [_Edit(*entry.unpack_from(data, _FIELDS.size + number * entry.size)[:2]) for number in range(whole)]
    return []
