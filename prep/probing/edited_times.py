"""When the frames of a track with several edits are shown: FFmpeg shows some of them at other times than edits say.

It gives the time at which an edit begins to the frame that is decoded first of those that the edit shows. With
B-frames that is not the first one, so that all of the edit comes some frames late, or early. And in place of a pause
after some of the video it shows the beginning of the video again. Parts that are to be slower or faster it shows as
they were recorded; such a track is read without its edits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream

from ...errors import EncodeError
from ...manifests.ragged import Array
from .containers.edit_list import USUAL_RATE, WITHOUT_EDITS_REMEDY, Edit, TrackEdits, offset_runs
from .opening import open_source, open_without_edits, stream_at


@dataclass(frozen=True, eq=False)
class EditedTimes:
    """`pts`: when the frames of all edits are shown, int64, rising. `in_pauses`: the numbers of other frames, which
    FFmpeg shows in place of pauses or between parts, counted among all that it shows. `last_duration`: how
    long the last frame is shown, 0 where it is as long as others."""

    pts: Array
    in_pauses: Array
    last_duration: int = 0


def edited_times(path: str, stream: VideoStream, edits: TrackEdits) -> EditedTimes | None:
    """The times of a track's frames by its edits; None where FFmpeg's times are as good. EncodeError where FFmpeg shows
    other frames than the edits say."""
    parts = edits.in_units
    if sum(edit.duration > 0 for edit in parts) < 2:
        return None
    decoded = _listed(open_without_edits(path), stream.index)
    delays = _delays(path, stream.id, len(decoded))
    delay_of = {place: delay for (place, _), delay in zip(decoded, delays, strict=True)}
    recorded = {place: dts + delay_of[place] for place, dts in decoded}
    shown = [(place, dts) for place, dts in _listed(open_source(path), stream.index) if place in recorded]
    edited = _in_edits(parts, recorded, [place for place, _ in shown])
    media = list(recorded.values())
    is_in_order = media == sorted(media)
    if edited is None or not len(edited.pts):
        if is_in_order and not any(edit.is_pause for edit in parts):
            # FFmpeg's times are wrong by less than a frame then.
            return None
        raise EncodeError(
            f"{path} has several edits, and FFmpeg shows other frames than they say, or the file is damaged; "
            f"{WITHOUT_EDITS_REMEDY}",
            file=path,
        )
    stated = np.sort(np.array([dts + delay_of[place] for place, dts in shown], dtype=np.int64))
    pts = edited.pts + stated[0] - edited.pts[0]
    interval = np.median(np.diff(sorted(media)))
    if not len(edited.in_pauses) and np.abs(pts - stated).max() <= interval / 2:
        return None
    return replace(edited, pts=pts)


def retimed(path: str, edits: TrackEdits, recorded: Array) -> EditedTimes:
    """The times of a track that is read without its edits, where these show parts of it slower or faster; `recorded`:
    when its frames were recorded, int64, rising. EncodeError where that cannot be told."""
    begin, end, times = 0, 0, []
    is_shown = np.zeros(len(recorded), dtype=bool)
    for edit in edits.in_units:
        if not edit.is_pause:
            due = slice(*np.searchsorted(recorded, [edit.begin, edit.end]).tolist())
            times.append(begin + (recorded[due] - edit.begin) * USUAL_RATE // edit.rate)
            is_shown[due] = True
            end = begin + edit.duration
        begin += edit.duration
    pts = np.concatenate(times)
    if not len(pts) or (np.diff(pts) <= 0).any():
        raise EncodeError(
            f"{path} has an edit list that shows nothing of its video, or too much of it at once; "
            f"{WITHOUT_EDITS_REMEDY}",
            file=path,
        )
    return EditedTimes(pts, np.flatnonzero(~is_shown), max(0, end - int(pts[-1])))


def _in_edits(parts: Sequence[Edit], media: dict[int, int], shown: list[int]) -> EditedTimes | None:
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


def _listed(opened: InputContainer, stream_index: int) -> list[tuple[int, int]]:
    """The place in the file of each sample that is shown, and when it is decoded, by FFmpeg's index."""
    with opened as container:
        entries = stream_at(container, stream_index).index_entries
        return [(entry.pos, entry.timestamp) for entry in entries if not entry.is_discard]


def _delays(path: str, track_id: int, samples: int) -> list[int]:
    """How much later than FFmpeg decodes it each sample of a track is shown."""
    runs = offset_runs(path, track_id)
    if runs is None or not len(runs):
        return [0] * samples
    # Samples behind the last run have no offset.
    offsets = np.append(runs[:, 1], 0)[np.searchsorted(np.cumsum(runs[:, 0]), np.arange(samples), side="right")]
    # Where some are shown before they are decoded, FFmpeg decodes all of them sooner.
    delays: list[int] = (offsets - min(0, int(runs[:, 1].min()))).tolist()
    return delays
