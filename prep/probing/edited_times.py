"""When the frames of a track with several edits are shown: FFmpeg shows some of them at other times than edits say.

It gives the time at which an edit begins to the frame that is decoded first of those that the edit shows. With
B-frames that is not the first one, so that all of the edit comes some frames late, or early. And in place of a pause
after some of the video it shows the beginning of the video again.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from dataclasses import dataclass, replace

import av
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream

from ...errors import EncodeError
from ...manifests.ragged import Array
from .edit_list import WITHOUT_EDITS_REMEDY, Edit, edits_in_units
from .opening import open_source, open_without_edits, packets_of


@dataclass(frozen=True, eq=False)
class EditedTimes:
    """`pts`: when the frames of all edits are shown, int64, rising. `in_pauses`: the numbers of other frames, which
    FFmpeg shows in place of pauses, counted among all that it shows."""

    pts: Array
    in_pauses: Array


def edited_times(path: str, stream: VideoStream, edits: list[Edit]) -> EditedTimes | None:
    """The times of a track's frames by its edits; None where FFmpeg's times are as good. EncodeError where FFmpeg shows
    other frames than the edits say."""
    if sum(edit.duration > 0 for edit in edits) < 2:
        return None
    parts = edits_in_units(path, edits, round(1 / (stream.time_base or 1)))
    if sum(edit.duration > 0 for edit in parts) < 2:
        return None
    recorded = _shown_packets(open_without_edits(path), stream.index)
    shown = _shown_packets(open_source(path), stream.index)
    edited = _in_edits(parts, {position: pts for pts, position in recorded}, [position for _, position in shown])
    is_in_order = recorded == sorted(recorded, key=lambda packet: packet[0])
    if edited is None or not len(edited.pts):
        if is_in_order and not any(edit.is_pause for edit in parts):
            # FFmpeg's times are wrong by less than a frame then.
            return None
        raise EncodeError(
            f"{path} has several edits, and FFmpeg shows other frames than they say, or the file is damaged; "
            f"{WITHOUT_EDITS_REMEDY}",
            file=path,
        )
    stated = np.sort(np.array([pts for pts, _ in shown], dtype=np.int64))
    pts = edited.pts + stated[0] - edited.pts[0]
    interval = np.median(np.diff(np.sort([pts for pts, _ in recorded])))
    if not len(edited.in_pauses) and np.abs(pts - stated).max() <= interval / 2:
        return None
    return replace(edited, pts=pts)


def _in_edits(parts: list[Edit], media: dict[int, int], shown: list[int]) -> EditedTimes | None:
    """The times of frames by edits with durations in units of the media. `media`: when the frame at each place of the
    file was recorded; `shown`: the positions of those that FFmpeg shows. None where they are others."""
    recorded = sorted(media.values())
    times: list[int] = []
    in_pauses: list[int] = []
    begin = done = 0
    for edit in parts:
        due = recorded[bisect_left(recorded, edit.begin) : bisect_left(recorded, edit.begin + edit.duration)]
        run = shown[done : done + len(due)]
        if len(run) < len(due) or {media.get(position) for position in run} != set(due):
            return None
        if edit.is_pause:
            in_pauses += range(done, done + len(due))
        else:
            times += [begin + pts - edit.begin for pts in due]
        begin, done = begin + edit.duration, done + len(due)
    if done < len(shown):
        return None
    return EditedTimes(np.array(times, dtype=np.int64), np.array(in_pauses, dtype=np.int64))


def _shown_packets(opened: InputContainer, stream_index: int) -> list[tuple[int, int]]:
    """The pts and the position in the file of each packet that is shown, in the order of decoding, up to damage."""
    found: list[tuple[int, int]] = []
    with opened as container, contextlib.suppress(av.error.FFmpegError):
        (stream,) = (each for each in container.streams.video if each.index == stream_index)
        packets = (each for each in packets_of(container, stream) if each.size and not each.is_discard)
        found.extend((packet.pts or 0, packet.pos or 0) for packet in packets)
    return found
