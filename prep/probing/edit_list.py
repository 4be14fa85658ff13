"""The edit list of an MP4 or QuickTime track, where FFmpeg does not follow it: ISO/IEC 14496-12, 8.6.6."""

from __future__ import annotations

import contextlib
import struct
from itertools import dropwhile, islice
from typing import NamedTuple

from av.video.stream import VideoStream

from ...errors import CorruptDataError
from .sample_entry import track_box

_ENTRIES = {0: struct.Struct(">IiI"), 1: struct.Struct(">QqI")}
_FIELDS = struct.Struct(">BxxxI")
_EMPTY = -1
# For so many frames encoders may delay others that have B-frames before them.
_MOST_DELAY = 4
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


def hides_decoded_first(path: str, track: VideoStream) -> bool:
    """Whether an edit hides frames by their times of decoding, of a track with B-frames that has no other times.

    FFmpeg writes that where packets do not say when they are shown, as those of raw H.264 and HEVC: the edit is to
    leave out the delay that B-frames cause, but as no packet has it, it hides the frames that are decoded first.
    """
    if not (track.frames and track.codec_context and track.codec_context.has_b_frames):
        return False
    hidden = sum(entry.timestamp < 0 for entry in islice(track.index_entries, _MOST_DELAY + 1))
    if not 0 < hidden <= _MOST_DELAY:
        return False
    with contextlib.suppress(CorruptDataError, struct.error, OSError):
        return not track_box(path, track.id, b"mdia", b"minf", b"stbl", b"ctts")
    return False


def _edits(path: str, track_id: int) -> list[_Edit]:
    with contextlib.suppress(CorruptDataError, struct.error, OSError, KeyError):
        data = track_box(path, track_id, b"edts", b"elst")
        version, count = _FIELDS.unpack_from(data)
        entry = _ENTRIES[version]
        whole = min(count, (len(data) - _FIELDS.size) // entry.size)
        return [_Edit(*entry.unpack_from(data, _FIELDS.size + number * entry.size)[:2]) for number in range(whole)]
    return []
