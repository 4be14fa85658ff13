"""The edit list of an MP4 or QuickTime track, and what FFmpeg does not show of it: ISO/IEC 14496-12, 8.6.6."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import dropwhile, islice, pairwise
from typing import NamedTuple

import numpy as np
from av.video.stream import VideoStream

from ....manifests.ragged import Array
from .sample_entry import DAMAGED_BOXES, movie_timescale, track_box
from .track_cut import NO_CUT, Cut

_ENTRIES = {0: struct.Struct(">Iii"), 1: struct.Struct(">Qqi")}
_FIELDS = struct.Struct(">BxxxI")
_EMPTY = -1
USUAL_RATE = 1 << 16
# For so many frames encoders may delay others that have B-frames before them.
_MOST_DELAY = 4
_FRAMES_LOOKED_AT = 64
WITHOUT_EDITS_REMEDY = (
    "`ffmpeg -ignore_editlist 1 -i FILE -c copy OUT.mov` writes all that was recorded, without the edits: give "
    "that, or export it anew without them"
)


class Edit(NamedTuple):
    """How long an edit lasts, in units of the movie, where it begins in the media, and how fast that is shown, in
    65536ths."""

    duration: int
    begin: int
    rate: int = USUAL_RATE

    @property
    def is_pause(self) -> bool:
        return self.begin == _EMPTY

    @property
    def end(self) -> int:
        """Where it ends in the media, if its duration is in units of the media."""
        return self.begin + round(self.duration * self.rate / USUAL_RATE)


@dataclass(frozen=True)
class TrackEdits:
    """The edits of a track as they are `stated`; and from the first that is no pause on, with durations `in_units` of
    the media, as FFmpeg rounds them."""

    stated: tuple[Edit, ...] = ()
    in_units: tuple[Edit, ...] = ()


def track_edits(path: str, track: VideoStream) -> TrackEdits:
    """The edits of a track of an MP4; none where they cannot be read, nor of a fragmented file, which has no frames in
    the index that edits are applied to."""
    if not track.frames or not track.time_base:
        return TrackEdits()
    with contextlib.suppress(*DAMAGED_BOXES, OSError, KeyError):
        stated = _edit_list(track_box(path, track.id, b"edts", b"elst"))
        if not stated:
            return TrackEdits()
        media, movie = round(1 / track.time_base), movie_timescale(path)
        in_units = (
            edit._replace(duration=_in_units(edit.duration, media, movie))
            for edit in dropwhile(lambda edit: edit.is_pause, stated)
        )
        return TrackEdits(stated, tuple(in_units))
    return TrackEdits()


def _in_units(duration: int, media: int, movie: int) -> int:
    """A duration in units of a track, `media` a second, of one in those of its movie, as FFmpeg rounds it."""
    return (2 * duration * media + movie) // (2 * movie)


def _edit_list(data: bytes) -> tuple[Edit, ...]:
    """What an elst box holds, as many of its entries as are whole."""
    version, count = _FIELDS.unpack_from(data)
    entry = _ENTRIES[version]
    whole = min(count, (len(data) - _FIELDS.size) // entry.size)
    return tuple(Edit(*entry.unpack_from(data, _FIELDS.size + number * entry.size)) for number in range(whole))


def why_edits_are_misread(edits: TrackEdits) -> str:
    """What FFmpeg shows in place of these edits, and what to do; "" where it follows them, or where `edited_times`
    does."""
    parts = [edit for edit in edits.stated if not edit.is_pause]
    if edits.stated and not parts:
        return f"has an edit list of pauses alone, which shows nothing of its video; {WITHOUT_EDITS_REMEDY}"
    if parts and not any(edit.duration for edit in parts):
        said = "has an edit list that states no duration, and FFmpeg shows nothing of its video"
        return f"{said}; {WITHOUT_EDITS_REMEDY}"
    if any(edit.duration and edit.rate != USUAL_RATE for edit in parts):
        return (
            "has an edit list that shows a part of its video slower or faster than it was recorded, or one picture for "
            f"long, and FFmpeg does not; {WITHOUT_EDITS_REMEDY}"
        )
    return ""


def changes_speed(edits: TrackEdits) -> bool:
    """Whether edits of a track show a part of it slower or faster, as phones slow motion down, and FFmpeg does not; and
    all parts in the order in which they were recorded, none twice."""
    if all(edit.rate == USUAL_RATE for edit in edits.stated):
        return False
    parts = [edit for edit in edits.in_units if not edit.is_pause]
    in_order = all(one.end <= other.begin for one, other in pairwise(parts))
    return bool(parts) and in_order and all(edit.rate > 0 for edit in parts)


def hides_decoded_first(path: str, track: VideoStream, edits: TrackEdits, shows_as_decoded: Callable[[], bool]) -> bool:
    """Whether an edit hides frames by their times of decoding, of a track with B-frames that has no other times.

    `shows_as_decoded`: whether the first frames are shown in the order of decoding, so that the times are their own,
    all later by the delay of an encoder that made no B-frames. It is called only where packets leave that open.

    FFmpeg writes that where packets do not say when they are shown, as those of raw H.264 and HEVC and of AVI: the edit
    is to leave out the delay that B-frames cause, or what lies before a cut, but as no packet has its own time, it
    hides the frames that are decoded first.
    """
    if not (track.frames and track.codec_context and track.codec_context.has_b_frames):
        return False
    if not any(entry.timestamp < 0 for entry in islice(track.index_entries, 1)):
        return False
    offsets = _offsets(path, track)
    if offsets is None or _hides_none(track, offsets):
        return False
    # In most files the first frames tell that packets have times of their own.
    if not all(_rises(track, offsets, most) for most in (_FRAMES_LOOKED_AT, track.frames)):
        return False
    if offsets.any() and shows_as_decoded():
        return False
    hidden = sum(entry.timestamp < 0 for entry in islice(track.index_entries, _MOST_DELAY + 1))
    is_delay = hidden <= _MOST_DELAY and not offsets.any()
    return is_delay or (len(track.index_entries) == track.frames and _plain_cut(edits) is not None)


def _hides_none(track: VideoStream, offsets: Array) -> bool:
    """Whether FFmpeg shows the first packet of a track, whose times of decoding it counts from the edit."""
    return all(entry.timestamp + int(offsets[0]) >= 0 for entry in islice(track.index_entries, 1))


def cut_of(path: str, track: VideoStream, edits: TrackEdits) -> Cut:
    """The cut that the edit of a track makes which was opened without its edits; see `hides_decoded_first`."""
    edit, offsets = _plain_cut(edits), _offsets(path, track)
    if edit is None or offsets is None or not track.time_base or len(offsets) != len(track.index_entries):
        return NO_CUT
    hidden = int(np.count_nonzero(_decoded(track, track.frames) + offsets < edit.begin))
    if not (offsets.any() or hidden > _MOST_DELAY):
        return NO_CUT
    pause = sum(each.duration for each in edits.stated if each.is_pause)
    return Cut(hidden, edit.begin - _in_units(pause, round(1 / track.time_base), movie_timescale(path)))


def _decoded(track: VideoStream, most: int) -> Array:
    """When the first packets of a track are decoded, in its units, int64."""
    return np.array([entry.timestamp for entry in islice(track.index_entries, most)], dtype=np.int64)


def _rises(track: VideoStream, offsets: Array, most: int) -> bool:
    """Whether the times of the first packets rise in the order of decoding."""
    decoded = _decoded(track, most)
    return bool((np.diff(decoded + offsets[: len(decoded)]) > 0).all()) if len(decoded) <= len(offsets) else False


def offset_runs(path: str, track_id: int) -> Array | None:
    """Runs of a track's samples, in decode order: how many, and how much later than decoded they are shown, int64,
    (runs, 2). None where that cannot be read. ISO/IEC 14496-12, 8.6.1.3 (ctts)."""
    with contextlib.suppress(*DAMAGED_BOXES, OSError):
        data = track_box(path, track_id, b"mdia", b"minf", b"stbl", b"ctts")
        count = _FIELDS.unpack_from(data)[1] if data else 0
        whole = max(0, len(data) - _FIELDS.size) // 8
        runs = np.frombuffer(data[_FIELDS.size :][: 8 * whole], ">i4").reshape(-1, 2)[:count].astype(np.int64)
        return runs if (runs[:, 0] >= 0).all() else None
    return None


def _offsets(path: str, track: VideoStream) -> Array | None:
    """By how much the times of packets differ from those of decoding, int64; None where that is not known."""
    runs = offset_runs(path, track.id)
    if runs is None or (len(runs) and runs[:, 0].sum() != track.frames):
        return None
    return np.repeat(runs[:, 1], runs[:, 0]) if len(runs) else np.zeros(track.frames, dtype=np.int64)


def _plain_cut(edits: TrackEdits) -> Edit | None:
    """The edit of a track that has a single one, at the usual rate, perhaps behind a pause; None for other tracks."""
    later = list(dropwhile(lambda edit: edit.is_pause, edits.stated))
    return later[0] if len(later) == 1 and later[0].duration and later[0].rate == USUAL_RATE else None
