"""The index over the clips of a table: those whose starts are given one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...arguments import exact_number, fits_int64, integer
from ...errors import UsageError
from ...lazy import lazy
from ...manifests.ragged import Array
from ...readers.times import seconds_of
from ...wording import and_others, counted
from .clip_reach import columns_of, extents, fingerprint_of, frames_of_draw, from_place, jitter_frames
from .clips import Clip, OfTable
from .draws import split_draws
from .placed_clips import PlacedClips, placed_clips
from .policies import ClipsAt
from .video_table import VideoTable


@dataclass(frozen=True, eq=False)
class TableIndex(OfTable):
    """The clips of a ClipsAt, in the order of its table."""

    common: PlacedClips
    videos: VideoTable
    seed: int
    places: Array
    starts: Array | list[Fraction]
    too_short: Array

    def __len__(self) -> int:
        return len(self.places)

    @property
    def pads(self) -> bool:
        return self.common.pads

    @lazy
    def fingerprint(self) -> str:
        starts = self.starts if isinstance(self.starts, list) else self.starts.tolist()
        return fingerprint_of(["ClipsAt", self.common, self.seed, starts], [*columns_of(self.videos), self.places])

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        _, indices = split_draws(draws, len(self))
        return [self._clip(draw, index) for draw, index in zip(draws, indices.tolist(), strict=True)]

    def _clip(self, draw: int, index: int) -> Clip:
        video = int(self.places[index])
        num_frames, fps = int(self.videos.num_frames[video]), self.videos.fps(video)
        start, wanted = from_place(self.common.spaced, self.starts[index], fps, num_frames)
        frames, mask = frames_of_draw(self.common, wanted, self.seed, draw, fps, num_frames)
        return self.clip_of(draw, video, start, frames, mask)


def table_index(policy: ClipsAt, videos: VideoTable, places: Array, seed: int) -> TableIndex:
    """The index over a table's clips; `places` are their videos' places in the table of videos.

    UsageError for a clip that starts outside its video, or reaches beyond it and the rule is "error".
    """
    common = placed_clips(policy)
    starts = _places_of(policy)
    _check_times(videos, places, starts)
    first, low, high = _reach(common, videos, places, starts)
    num_frames = videos.num_frames[places]
    outside = np.flatnonzero((first < 0) | (first >= num_frames))
    if len(outside):
        clip = int(outside[0])
        raise UsageError(
            f"clip {clip} of the table starts at frame {int(first[clip])} of video {videos.name(int(places[clip]))!r}, "
            f"which has {counted(int(num_frames[clip]), 'frame')}{_and_others(outside, places)}; correct the table"
        )
    beyond = np.flatnonzero((low < 0) | (high >= num_frames))
    if len(beyond) and common.ends == "error":
        clip = int(beyond[0])
        raise UsageError(
            f"clip {clip} of the table calls for frames {int(low[clip])} to {int(high[clip])} of video "
            f"{videos.name(int(places[clip]))!r}, which has {int(num_frames[clip])}{_and_others(beyond, places)}; give "
            "ends= a rule that pads, or correct the table"
        )
    return TableIndex(common, videos, seed, places, starts, np.unique(places[beyond]))


def _places_of(policy: ClipsAt) -> Array | list[Fraction]:
    """Where the clips of a table start: frame numbers, or times in seconds."""
    if policy.frames is None:
        seconds = () if policy.seconds is None else policy.seconds
        return [exact_number(each, "a time of the table") for each in seconds]
    frames = np.asarray(policy.frames)
    if frames.dtype.kind in "iu" or not len(frames):
        return frames.astype(np.int64)
    starts = [integer(each, "a frame of the table") for each in policy.frames]
    try:
        return np.array(starts, dtype=np.int64)
    except OverflowError:
        clip = next(number for number, start in enumerate(starts) if not fits_int64(start))
        raise UsageError(f"clip {clip} of the table starts at frame {starts[clip]}, which no video has") from None


def _check_times(videos: VideoTable, places: Array, starts: Array | list[Fraction]) -> None:
    """UsageError for a time that is not within its video."""
    if not isinstance(starts, list):
        return
    outside = []
    for clip, (place, start) in enumerate(zip(places.tolist(), starts, strict=True)):
        num_frames, fps = int(videos.num_frames[place]), videos.fps(place)
        # As for get_frame_played_at, a video ends at the float nearest to its end, too.
        if start < 0 or start >= num_frames / fps or float(start) >= seconds_of(num_frames, fps):
            outside.append(clip)
    if outside:
        clip, place = outside[0], int(places[outside[0]])
        end = seconds_of(int(videos.num_frames[place]), videos.fps(place))
        raise UsageError(
            f"clip {clip} of the table starts at {float(starts[clip])} s of video {videos.name(place)!r}, which lasts "
            f"from 0 s to just before {end} s{_and_others(outside, places)}; correct the table"
        )


def _and_others(clips: Sequence[int] | Array, places: Array) -> str:
    return and_others([int(clip) for clip in clips], len(places), "clips")


def _reach(
    common: PlacedClips, videos: VideoTable, places: Array, starts: Array | list[Fraction]
) -> tuple[Array, Array, Array]:
    """The first frame, and the least and the greatest one, jitter included, of each clip of a table. UsageError where
    frames of a clip are farther from its start than any video is long."""
    of_videos = extents(common, videos)
    if not isinstance(starts, list):
        low, high, shown = (np.broadcast_to(each, len(videos))[places] for each in of_videos)
        num_frames = videos.num_frames[places]
        last = np.where(starts + shown == num_frames - 1, num_frames - 1, starts + high)
        return starts, starts + low, last
    reach = np.zeros((3, len(starts)), dtype=np.int64)
    for clip, (video, start) in enumerate(zip(places.tolist(), starts, strict=True)):
        fps = videos.fps(video)
        frame, wanted = from_place(common.spaced, start, fps, int(videos.num_frames[video]))
        reach[:, clip] = frame, wanted.min(), wanted.max() + jitter_frames(common, fps)
    return reach[0], reach[1], reach[2]
