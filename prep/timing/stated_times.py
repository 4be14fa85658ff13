"""The times of streams that state those of some frames only: program streams, and transport streams, where several
small frames share a PES packet; and Matroska that begins before 0.

A parser counts the others by the rate that the stream states. Where the camera kept to another one, or to none, frames
then follow one another at once, or come before earlier ones.
"""

from __future__ import annotations

import numpy as np

from ...manifests.ragged import Array
from ..probing.source_video import EMPTY, SourceVideo
from ..running.frame_report import NO_PTS, Shown
from .mended_times import CROWDED_PART, STATES_SOME_TIMES, evened
from .rising_times import longest_rise
from .straight_times import rounded_straight_times, straight_times, straightened

# Times that were rounded to milliseconds may be further from even ones than this where a parser counted wrongly.
_ROUNDED_SECONDS = 0.002
# Where more than one in so many times is not that of its frame, none is to be trusted.
_MOST_MISPLACED_PART = 5


def copied_times(source: SourceVideo, shown: Shown) -> Array:
    """The times of all frames of a constant rate, int64, where FFmpeg made some up as it copied such a stream; none
    where that cannot be told."""
    # An edit hides frames by times that FFmpeg made up, which may be any of them.
    are_hidden = source.has_hidden and source.pts_falls > 0
    if source.has_decode_times or are_hidden or len(source.not_coded) or (shown.packet_pts == NO_PTS).any():
        return EMPTY
    straight = straightened(shown.packet_pts, source.timebase, source.rate_hints)
    return EMPTY if straight is None else straight


def _with_those_before_0(packet_pts: Array) -> Array:
    """The times of frames of which Matroska's demuxer gives none to those before 0, which come first: as evenly as most
    of the others are. None where others have none either."""
    known = packet_pts[packet_pts != NO_PTS]
    count = len(packet_pts) - len(known)
    if not count or (packet_pts[:count] != NO_PTS).any() or len(known) < 2 or (np.diff(known) <= 0).any():
        return EMPTY
    before = known[0] - np.round(np.arange(count, 0, -1) * float(np.median(np.diff(known)))).astype(np.int64)
    return np.concatenate([before, known])


def estimated_times(source: SourceVideo, shown: Shown) -> Array:
    """The times of all frames, int64, of a source that states those of some only, where FFmpeg does not know the
    others, or counts them wrongly. None where it does not, or where the times that are stated contradict the order of
    frames."""
    if source.pts is not None:
        return EMPTY
    if source.demuxer == "matroska":
        return _with_those_before_0(shown.packet_pts)
    return _between_stated(source, shown) if source.demuxer in STATES_SOME_TIMES else EMPTY


def _between_stated(source: SourceVideo, shown: Shown) -> Array:
    """The times with those evenly between two that are stated which a parser counted so that they do not go on from the
    one to the other."""
    known = np.flatnonzero(shown.packet_pts != NO_PTS)
    # A frame of a transport stream at the time of another is shown for no time, as where two recordings share a frame.
    if len(known) < 2 or (source.demuxer == "mpegts" and len(known) == len(shown.packet_pts)):
        return EMPTY
    # FFmpeg gives some frames the time of a neighbour.
    rising, found = longest_rise(shown.packet_pts[known]), evened(shown.pts)
    if np.count_nonzero(~rising) * _MOST_MISPLACED_PART > len(known):
        # Of a few times one may well be that of a neighbour, beside others that are on a line.
        line = straight_times(known, shown.packet_pts[known], len(found), source.timebase, source.rate_hints)
        return EMPTY if line is None or not _begins_apart(found[: known[0] + 1], line) else line
    known = known[rising]
    stated = shown.packet_pts[known]
    interval = float(stated[-1] - stated[0]) / int(known[-1] - known[0])
    wrong = np.flatnonzero(np.diff(found) * CROWDED_PART < interval)
    # Each frame has a time of its own between two that are stated.
    if (np.diff(stated) < np.diff(known)).any():
        return EMPTY
    numbers = np.arange(len(found))
    begins_apart = _begins_apart(found[: known[0] + 1], numbers * interval)
    find = straight_times if len(wrong) or begins_apart else rounded_straight_times
    straight = find(known, stated, len(found), source.timebase, source.rate_hints)
    is_off = straight is not None and bool((np.abs(found - straight) > _ROUNDED_SECONDS / float(source.timebase)).any())
    if straight is not None and (len(wrong) or is_off):
        return straight
    if not len(wrong) and not begins_apart:
        return EMPTY
    before, behind = np.minimum(numbers - known[0], 0), np.maximum(numbers - known[-1], 0)
    even = np.round(np.interp(numbers, known, stated) + (before + behind) * interval).astype(np.int64)
    # The frames from one whose time is stated to the next, of which one follows another at once. Before the first such
    # time and behind the last one nothing says how they go on.
    part = np.searchsorted(known, numbers, side="right")
    is_wrong = np.isin(part, part[wrong]) | (part == 0) | ((part == len(known)) & bool(len(wrong)))
    found = np.where(is_wrong, even, found)
    return found if (np.diff(found) > 0).all() else even


def _begins_apart(found: Array, even: Array) -> bool:
    """Whether the first frames, up to one whose time is stated, are further apart than even ones: where what is cut off
    had the first time that is stated, ffmpeg counts the frames before the next one from 0."""
    steps = np.diff(even[: len(found)])
    return bool((np.abs(np.diff(found) - steps) > steps / 2).any())
