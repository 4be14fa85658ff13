"""From an item's number to the frames that it has: the index over all clips of a dataset.

An item is asked for by a **draw**: round * N + index, where N is the number of clips. The index says which clip it is,
the round which time it is asked for, so that what is random about a clip differs from one epoch to the next and is the
same wherever and whenever the draw is read. A plain Sampler yields indices, which are draws of round 0; ElasticSampler
yields draws.

Per video the index holds one running count of 8 bytes at most, per clip nothing: `running_counts.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Any, Protocol

import numpy as np

from ..arguments import integer
from ..errors import UsageError
from ..manifests.ragged import Array, lazy, offsets_of
from ..readers.times import seconds_of
from ..wording import counted
from .ends import frames_within
from .keyed import below, hashes, key, permuted
from .offsets import Spacing, exact_seconds, frame_offsets, nearest_frames
from .policies import (
    AllClips,
    ClipsAt,
    PlacedClips,
    Placement,
    RandomClips,
    RandomFrames,
    clips_of,
    placed_clips,
    start_of,
)
from .running_counts import BLOCK_VIDEOS, RunningCounts, running_counts
from .video_table import VideoTable


class Draw(int):
    """A draw of a sampler that knows of epochs. Plain integers below N may be indices of any epoch."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Clip:
    """What a draw stands for. `start` is the frame that offsets count from. `mask` is True where a frame is the one
    that was called for, and None where the policy never replaces any."""

    draw: int
    video: int
    start: int
    frames: Array
    mask: Array | None


class Clips(Protocol):
    """Every clip of a dataset by its number, from 0 to `len` - 1, and which belong to the same video."""

    @property
    def firsts(self) -> Array:
        """Running counts of the clips of each video, int64, (videos + 1,): in the order that `clip_numbers` gives."""

    @property
    def too_short(self) -> Array:
        """The places in the table of videos of those that have fewer frames than a clip spans, int64."""

    @property
    def pads(self) -> bool:
        """Whether clips may have frames that stand in for missing ones."""

    @property
    def fingerprint(self) -> str:
        """Differs where some draw stands for another place in the table of videos, or for other frames of it."""

    def __len__(self) -> int: ...

    def clip_numbers(self, places: Array) -> Array:
        """The clips at these places in the order of videos: the places themselves, unless a table has another order."""

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        """What these draws stand for."""

    def video_name(self, place: int) -> str:
        """The id of the video at this place in the order of `firsts`, for messages."""


@dataclass(frozen=True, eq=False)
class PlacedIndex:
    """The clips of a policy that places them at starts."""

    policy: Placement
    common: PlacedClips
    videos: VideoTable
    seed: int
    counts: RunningCounts
    too_short: Array
    scattered: bool

    def __len__(self) -> int:
        return len(self.counts)

    @lazy
    def firsts(self) -> Array:
        """All running counts. They may be an array that is made for this: reading clips does without."""
        return self.counts.all()

    @property
    def pads(self) -> bool:
        return self.common.pads

    @lazy
    def fingerprint(self) -> str:
        details = [getattr(self.policy, name, None) for name in ("step", "clips_per_video")]
        kind = "RandomFrames" if self.scattered else type(self.policy).__name__
        return _fingerprint([kind, self.common, details, self.seed], [*_columns(self.videos), self.firsts])

    def video_name(self, place: int) -> str:
        return self.videos.name(place)

    def clip_numbers(self, places: Array) -> Array:
        return places

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        rounds, indices = split_draws(draws, len(self))
        if self.scattered:
            indices = self._scattered(rounds, indices)
        videos, numbers = self.counts.located(indices)
        random = isinstance(self.policy, RandomClips)
        bits = hashes(key(self.seed, "start"), draws).tolist() if random else [0] * len(draws)
        return [self._clip(*place) for place in zip(draws, videos.tolist(), numbers.tolist(), bits, strict=True)]

    def _scattered(self, rounds: Array, indices: Array) -> Array:
        result = np.empty_like(indices)
        for each in np.unique(rounds).tolist():
            same = rounds == each
            result[same] = permuted(key(self.seed, "frames", each), len(self), indices[same])
        return result

    def _clip(self, draw: int, video: int, number: int, bits: int) -> Clip:
        num_frames, fps = int(self.videos.num_frames[video]), self.videos.fps(video)
        first, stop = _start_range(self.common, *_extent(self.common, fps), num_frames)
        row = self.videos.row(video)
        if self.common.align:
            references = self.videos.references()
            starts = references.count(row, stop)
            start = references.frame(row, start_of(self.policy, starts, number, bits))
        else:
            start = first + start_of(self.policy, stop - first, number, bits)
        wanted = _wanted(self.common.spaced, start, fps, num_frames)
        jitter = _jitter_frames(self.common, fps)
        if jitter:
            wanted = wanted + _jittered(self.seed, draw, len(wanted), jitter)
        frames, mask = frames_within(wanted, num_frames, self.common.ends)
        return Clip(draw, row, start, frames, mask if self.common.pads else None)


@dataclass(frozen=True, eq=False)
class TableIndex:
    """The clips of a ClipsAt, in the order of its table."""

    common: PlacedClips
    videos: VideoTable
    seed: int
    places: Array
    starts: Array | list[Fraction]
    order: Array
    firsts: Array
    too_short: Array

    def __len__(self) -> int:
        return len(self.places)

    @property
    def pads(self) -> bool:
        return self.common.pads

    @lazy
    def fingerprint(self) -> str:
        starts = self.starts if isinstance(self.starts, list) else self.starts.tolist()
        return _fingerprint(["ClipsAt", self.common, self.seed, starts], [*_columns(self.videos), self.places])

    def video_name(self, place: int) -> str:
        return self.videos.name(place)

    def clip_numbers(self, places: Array) -> Array:
        return self.order[places]

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        _, indices = split_draws(draws, len(self))
        return [self._clip(draw, index) for draw, index in zip(draws, indices.tolist(), strict=True)]

    def _clip(self, draw: int, index: int) -> Clip:
        video = int(self.places[index])
        num_frames, fps = int(self.videos.num_frames[video]), self.videos.fps(video)
        start, wanted = _from_place(self.common.spaced, self.starts[index], fps, num_frames)
        jitter = _jitter_frames(self.common, fps)
        if jitter:
            wanted = wanted + _jittered(self.seed, draw, len(wanted), jitter)
        frames, mask = frames_within(wanted, num_frames, self.common.ends)
        return Clip(draw, self.videos.row(video), start, frames, mask if self.common.pads else None)


def in_epoch(draws: Sequence[int], epoch: int, count: int) -> list[int]:
    """Draws, where integers below `count` that are no Draw stand for clips of this epoch."""
    shift = epoch * count
    return [int(each) if not shift or isinstance(each, Draw) or each >= count else each + shift for each in draws]


def draw_from_start(number: int, count: int) -> int:
    """A draw, where a negative number counts from the end of the first epoch; UsageError when it has no such clip."""
    if number < -count:
        raise UsageError(f"there is no clip {number}: the dataset has {counted(count, 'clip')}")
    return number + count if number < 0 else number


def split_draws(draws: Sequence[int], count: int) -> tuple[Array, Array]:
    """Rounds and indices of draws; UsageError for a draw below 0, and where there are no clips."""
    if not count:
        raise UsageError("the dataset has no clips; ClipDataset.too_short names videos that are left out")
    rounds, indices = np.divmod(np.asarray(draws, dtype=np.int64), count)
    if len(rounds) and rounds.min() < 0:
        raise UsageError(f"there is no clip {min(draws)}; draws count from 0")
    return rounds, indices


def placed_index(policy: Placement | RandomFrames, videos: VideoTable, seed: int) -> PlacedIndex:
    """Count the clips of each video; UsageError when videos are too short and the policy's rule is "error"."""
    scattered = isinstance(policy, RandomFrames)
    placement = AllClips(1) if isinstance(policy, RandomFrames) else policy
    common = placed_clips(placement)
    too_short = _too_short(common, videos)
    if len(too_short) and common.ends == "error":
        raise UsageError(_too_short_text(videos, too_short, placement))

    def count(start: int, stop: int) -> Array:
        return _num_clips(placement, common, videos.part(start, stop))

    # To count where frames are referred to means to sum up over all GOPs.
    counts = running_counts(len(videos), count, may_count_again=not common.align)
    return PlacedIndex(placement, common, videos, seed, counts, too_short, scattered)


def _num_clips(placement: Placement, common: PlacedClips, videos: VideoTable) -> Array:
    first, stop = _start_ranges(common, videos)
    if common.pads:
        # One clip, from the first frame that can be a start.
        first = np.minimum(first, videos.num_frames - 1)
        stop = np.maximum(stop, first + 1)
    starts = np.maximum(stop - first, 0)
    if common.align:
        starts = videos.references().counts(videos.rows, np.maximum(stop, 0))
    return clips_of(placement, starts)


def _too_short(common: PlacedClips, videos: VideoTable) -> Array:
    found = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(videos), BLOCK_VIDEOS):
        first, stop = _start_ranges(common, videos.part(start, min(start + BLOCK_VIDEOS, len(videos))))
        found.append(start + np.flatnonzero(stop <= first))
    return np.concatenate(found)


def table_index(policy: ClipsAt, videos: VideoTable, places: Array, seed: int) -> TableIndex:
    """Order a table's clips by their videos; `places` are the videos' places in the table of videos.

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
            f"which has {counted(int(num_frames[clip]), 'frame')}"
        )
    beyond = np.flatnonzero((low < 0) | (high >= num_frames))
    if len(beyond) and common.ends == "error":
        clip = int(beyond[0])
        raise UsageError(
            f"clip {clip} of the table calls for frames {int(low[clip])} to {int(high[clip])} of video "
            f"{videos.name(int(places[clip]))!r}, which has {int(num_frames[clip])}; give ends= a rule that pads, or "
            "correct the table"
        )
    firsts = offsets_of(np.bincount(places, minlength=len(videos)))
    order = np.argsort(places, kind="stable")
    return TableIndex(common, videos, seed, places, starts, order, firsts, np.unique(places[beyond]))


def _places_of(policy: ClipsAt) -> Array | list[Fraction]:
    """Where the clips of a table start: frame numbers, or times in seconds."""
    if policy.frames is None:
        return [exact_seconds(each, "a time of the table") for each in policy.seconds or ()]
    frames = np.asarray(policy.frames)
    if frames.dtype.kind in "iu" or not len(frames):
        return frames.astype(np.int64)
    return np.array([integer(each, "a frame of the table") for each in policy.frames], dtype=np.int64)


def _check_times(videos: VideoTable, places: Array, starts: Array | list[Fraction]) -> None:
    """UsageError for a time that is not within its video."""
    if not isinstance(starts, list):
        return
    for clip, (place, start) in enumerate(zip(places.tolist(), starts, strict=True)):
        num_frames, fps = int(videos.num_frames[place]), videos.fps(place)
        # As for get_frame_played_at, a video ends at the float nearest to its end, too.
        if start < 0 or start >= num_frames / fps or float(start) >= seconds_of(num_frames, fps):
            raise UsageError(
                f"clip {clip} of the table starts at {float(start)} s of video {videos.name(place)!r}, which lasts "
                f"from 0 s to just before {seconds_of(num_frames, fps)} s"
            )


def _reach(
    common: PlacedClips, videos: VideoTable, places: Array, starts: Array | list[Fraction]
) -> tuple[Array, Array, Array]:
    """The first frame, and the least and the greatest one, jitter included, of each clip of a table."""
    if not isinstance(starts, list):
        low, high, shown = (np.broadcast_to(each, len(videos))[places] for each in _extents(common, videos))
        num_frames = videos.num_frames[places]
        last = np.where(starts + shown == num_frames - 1, num_frames - 1, starts + high)
        return starts, starts + low, last
    reach = np.zeros((3, len(starts)), dtype=np.int64)
    for clip, (video, start) in enumerate(zip(places.tolist(), starts, strict=True)):
        fps = videos.fps(video)
        frame, wanted = _from_place(common.spaced, start, fps, int(videos.num_frames[video]))
        reach[:, clip] = frame, wanted.min(), wanted.max() + _jitter_frames(common, fps)
    return reach[0], reach[1], reach[2]


def _columns(videos: VideoTable) -> list[Array]:
    return [videos.num_frames, videos.fps_num, videos.fps_den]


def _fingerprint(values: list[Any], columns: list[Array]) -> str:
    """A hash of columns, and of values whose repr says all of them."""
    digest = hashlib.blake2b(repr(values).encode(), digest_size=8)
    for column in columns:
        digest.update(np.ascontiguousarray(column, dtype="<i8").data)
    return digest.hexdigest()


def _from_place(spaced: Spacing, start: Any, fps: Fraction, num_frames: int) -> tuple[int, Array]:
    """A clip's start and its frames, from a frame number or from a time in seconds."""
    if not isinstance(start, Fraction):
        return int(start), _wanted(spaced, int(start), fps, num_frames)
    (frame,) = nearest_frames([start], fps, num_frames)
    if spaced.seconds is None:
        return frame, _wanted(spaced, frame, fps, num_frames)
    # Each frame is rounded once, from its own time.
    times = [start + offset for offset in spaced.seconds]
    return frame, np.array(nearest_frames(times, fps, num_frames), dtype=np.int64)


def _wanted(spaced: Spacing, start: int, fps: Fraction, num_frames: int) -> Array:
    """The frames of a clip that starts at this frame."""
    frames = np.array(frame_offsets(spaced, fps), dtype=np.int64) + start
    if spaced.seconds is not None and (frames == num_frames).any():
        frames = np.array(nearest_frames([start / fps + each for each in spaced.seconds], fps, num_frames))
    return frames


def _jitter_frames(common: PlacedClips, fps: Fraction) -> int:
    return floor(common.jitter * fps) if common.spaced.needs_rate else int(common.jitter)


def _jittered(seed: int, draw: int, count: int, jitter: int) -> Array:
    return below(hashes(key(seed, "jitter", draw), np.arange(count)), jitter + 1)


def _start_range(common: PlacedClips, low: int, high: int, shown: int, num_frames: int) -> tuple[int, int]:
    """The frames [first, stop) where a clip may start; at least one where the rule pads."""
    if not common.whole:
        return 0, num_frames
    first, stop = max(0, -low), num_frames - max(0, high)
    if stop <= first:
        stop = min(first + 1, num_frames - max(0, shown))
    if common.pads and stop <= first:
        first = min(first, num_frames - 1)
        stop = first + 1
    return first, stop


def _start_ranges(common: PlacedClips, videos: VideoTable) -> tuple[Array, Array]:
    """The same for all videos, without what the rule does to those that are too short."""
    num_frames = videos.num_frames.astype(np.int64)
    if not common.whole:
        return np.zeros_like(num_frames), num_frames
    low, high, shown = _extents(common, videos)
    first, stop = np.zeros_like(num_frames) + np.maximum(0, -low), num_frames - np.maximum(0, high)
    # A clip that just fits by its times has one start.
    return first, np.where(stop <= first, np.minimum(first + 1, num_frames - np.maximum(0, shown)), stop)


def _extents(common: PlacedClips, videos: VideoTable) -> tuple[Array, Array, Array]:
    """The least and the greatest offset of a clip's frames, jitter included, and how many frames a video has to have
    behind the start for the last one to exist; one for all videos or one each."""
    if not common.spaced.needs_rate:
        low_of_all, high_of_all, shown_of_all = map(np.array, _extent(common, Fraction(1)))
        return low_of_all, high_of_all, shown_of_all
    # Corpora have few rates; each is worked out once.
    numerators, which_numerator = np.unique(videos.fps_num, return_inverse=True)
    denominators, which_denominator = np.unique(videos.fps_den, return_inverse=True)
    low = np.zeros((len(numerators), len(denominators)), dtype=np.int64)
    high, shown = np.zeros_like(low), np.zeros_like(low)
    present = np.zeros(low.shape, dtype=bool)
    present[which_numerator, which_denominator] = True
    for place in zip(*np.nonzero(present), strict=True):
        rate = Fraction(int(numerators[place[0]]), int(denominators[place[1]]))
        low[place], high[place], shown[place] = _extent(common, rate)
    which = which_numerator, which_denominator
    return low[which], high[which], shown[which]


@lru_cache(maxsize=4096)
def _extent(common: PlacedClips, fps: Fraction) -> tuple[int, int, int]:
    offsets, jitter = frame_offsets(common.spaced, fps), _jitter_frames(common, fps)
    high = max(offsets) + jitter
    # Jitter counts from the nearest frame. Without it the last time has to lie before the end: see nearest_frames.
    times = None if jitter else common.spaced.seconds
    return min(offsets), high, high if times is None else floor(max(times) * fps)


def _too_short_text(videos: VideoTable, too_short: Array, policy: Placement) -> str:
    named = ", ".join(repr(videos.name(place)) for place in too_short[:5].tolist())
    more = ", ..." if len(too_short) > 5 else ""
    return (
        f"{len(too_short)} of {len(videos)} videos have fewer frames than a clip of {policy!r} spans: {named}{more}; "
        'give ends="drop" to leave them out, or a rule that pads them, such as "repeat_last"'
    )
