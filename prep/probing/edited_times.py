"""When the frames of a track with several edits are shown: FFmpeg shows some of them at other times than edits say.

It gives the time at which an edit begins to the frame that is decoded first of those that the edit shows. With
B-frames that is not the first one, so that all of the edit comes some frames late, or early. And in place of a pause
after some of the video it shows the beginning of the video again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

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
    if recorded == sorted(recorded, key=lambda packet: packet[0]) and not any(edit.is_pause for edit in parts):
        return None
    shown = _shown_packets(open_source(path), stream.index)
    media_of = {position: pts for pts, position in recorded}
    media = sorted(media_of.values())
    times: list[int] = []
    in_pauses: list[int] = []
    begin = done = 0
    for edit in parts:
        last = edit.begin + edit.duration
        due = media[bisect_left(media, edit.begin) : bisect_left(media, last)]
        run = shown[done : done + len(due)]
        if sorted(media_of[position] for _, position in run) != due:
            raise _other_frames(path)
        if edit.is_pause:
            in_pauses += range(done, done + len(due))
        else:
            times += [begin + pts - edit.begin for pts in due]
        begin, done = begin + edit.duration, done + len(due)
    if done != len(shown) or not times:
        raise _other_frames(path)
    stated = np.sort(np.array([pts for pts, _ in shown], dtype=np.int64))
    pts = np.array(times, dtype=np.int64) + stated[0] - times[0]
    if not in_pauses and np.abs(pts - stated).max() <= np.median(np.diff(media)) / 2:
        return None
    return EditedTimes(pts, np.array(in_pauses, dtype=np.int64))


def _shown_packets(opened: InputContainer, stream_index: int) -> list[tuple[int, int]]:
    """The pts and the position in the file of each packet that is shown, in the order of decoding."""
    with opened as container:
        (stream,) = (each for each in container.streams.video if each.index == stream_index)
        packets = (each for each in packets_of(container, stream) if each.size and not each.is_discard)
        return [(packet.pts or 0, packet.pos or 0) for packet in packets]


def _other_frames(path: str) -> EncodeError:
    return EncodeError(
        f"{path} has several edits, and FFmpeg shows other frames than they say, or the file is damaged; "
        f"{WITHOUT_EDITS_REMEDY}",
        file=path,
    )
