"""From a draw to the frames that its clip has: the index over all clips of a dataset. `draws.py` says what a draw is.

Per video the index holds one running count of 8 bytes at most, per clip nothing: `running_counts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from ...errors import UsageError
from ...lazy import lazy
from ...manifests.ragged import Array, offsets_of
from .clip_reach import (
    columns_of,
    extent,
    fingerprint_of,
    frames_of_draw,
    rates_of,
    start_range,
    start_ranges,
    wanted_frames,
)
from .draws import split_draws
from .keyed import hashes, key, permuted
from .placed_clips import PlacedClips, placed_clips
from .policies import AllClips, Placement, RandomClips, RandomFrames
from .running_counts import BLOCK_VIDEOS, RunningCounts, running_counts
from .starts import clips_each, clips_of, identity_of, start_of
from .video_table import VideoTable

NO_CLIPS = (
    "the dataset has no clips: no video has a frame where one may start, since all have fewer frames than a clip "
    "spans, or align and skip leave none (ClipDataset.too_short names the videos)"
)


@dataclass(frozen=True, eq=False)
class Clip:
    """What a draw stands for. `place` is that of its video, or stretch of one, in the table of videos. `start` is the
    frame that offsets count from. `mask` is True where a frame is the one that was called for, and None where the
    policy never replaces any. `stretch` is the number of the stretch that the clip is taken from, and None where that
    is the whole video."""

    draw: int
    place: int
    video: int
    start: int
    frames: Array
    mask: Array | None
    stretch: int | None = None


class Clips(Protocol):
    """Every clip of a dataset by its number, from 0 to `len` - 1, and which belong to the same video."""

    @property
    def firsts(self) -> Array:
        """Running counts of the clips of each video, int64, (videos + 1,): in the order that `clip_numbers` gives."""

    @property
    def too_short(self) -> Array:
        """The places in the table of videos of those without a start, int64: they have fewer frames than a clip spans,
        or align leaves none."""

    @property
    def pads(self) -> bool:
        """Whether clips may have frames that stand in for missing ones."""

    @property
    def is_unordered(self) -> bool:
        """Whether the clips of a video do not follow one another in time, since chance places each anywhere."""

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


class OfVideos:
    """What indices over one table of videos have in common; their clips are in the order of videos, unless they say
    otherwise."""

    videos: VideoTable

    @property
    def is_unordered(self) -> bool:
        return False

    def clip_numbers(self, places: Array) -> Array:
        return places

    def video_name(self, place: int) -> str:
        return self.videos.name(place)

    def clip_of(self, draw: int, video: int, start: int, frames: Array, mask: Array | None = None) -> Clip:
        """The clip of a draw. `video` is a place in the table of videos, and `start` and `frames` count from the first
        frame of that entry, which may be a stretch of a video."""
        origin, stretch = self.videos.first_frame(video), None if self.videos.first_frames is None else video
        return Clip(draw, video, self.videos.row(video), origin + start, origin + frames, mask, stretch)


class OfTable(OfVideos):
    """What indices over a table of clips have in common: clips have the numbers of its rows, and `places` says at which
    place in the table of videos the video of each is."""

    places: Array

    @lazy
    def firsts(self) -> Array:
        return offsets_of(np.bincount(self.places, minlength=len(self.videos)))

    @lazy
    def _by_videos(self) -> Array:
        return np.argsort(self.places, kind="stable")

    def clip_numbers(self, places: Array) -> Array:
        return np.asarray(self._by_videos[places])


@dataclass(frozen=True, eq=False)
class PlacedIndex(OfVideos):
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

    @property
    def is_unordered(self) -> bool:
        return self.scattered or (isinstance(self.policy, RandomClips) and not self.policy.spread)

    @lazy
    def fingerprint(self) -> str:
        details = identity_of(self.policy, self.common.skip)
        kind = "RandomFrames" if self.scattered else type(self.policy).__name__
        return fingerprint_of([kind, self.common, details, self.seed], [*columns_of(self.videos), self.firsts])

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
        first, stop = start_range(self.common, *extent(self.common, fps), num_frames)
        if self.common.align:
            references = self.videos.references()
            row, origin = self.videos.row(video), self.videos.first_frame(video)
            before = references.count(row, origin)
            starts = references.count(row, origin + stop) - before
            start = references.frame(row, before + start_of(self.policy, starts, number, bits, fps)) - origin
        else:
            start = first + start_of(self.policy, stop - first, number, bits, fps)
        wanted = wanted_frames(self.common.spaced, start, fps, num_frames)
        frames, mask = frames_of_draw(self.common, wanted, self.seed, draw, fps, num_frames)
        return self.clip_of(draw, video, start, frames, mask)


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
    first, stop = start_ranges(common, videos)
    if common.pads and common.whole:
        # One clip, from the first frame that can be a start.
        first = np.minimum(first, videos.num_frames - 1)
        stop = np.maximum(stop, first + 1)
    starts = _num_starts(common, videos, first, stop)
    if isinstance(placement, AllClips) and placement.exact_step is not None:
        return _clips_each(placement.exact_step, videos, starts)
    return clips_of(placement, starts)


def _num_starts(common: PlacedClips, videos: VideoTable, first: Array, stop: Array) -> Array:
    """How many of the frames [first, stop) of each video are starts: with `align`, where `first` is 0, those that
    others refer to."""
    if not common.align:
        return np.asarray(np.maximum(stop - first, 0))
    references, rows, stop = videos.references(), videos.rows, np.maximum(stop, 0)
    origins = np.zeros_like(stop) if videos.first_frames is None else videos.first_frames
    return np.asarray(references.counts(rows, origins + stop) - references.counts(rows, origins))


def _clips_each(step: Fraction, videos: VideoTable, starts: Array) -> Array:
    """How many clips start every so many seconds; UsageError where clips would start at the same frame."""
    rates, which = rates_of(videos)
    counts = np.zeros(len(videos), dtype=np.int64)
    for number, rate in enumerate(rates):
        same = which == number
        if step * rate < 1:
            name = videos.name(int(np.flatnonzero(same)[0]))
            raise UsageError(
                f"step_seconds is {float(step)}, less than a frame of video {name!r}, which has {float(rate)} frames/s"
                ", so that clips would start at the same frame; give step=1 for every start"
            )
        counts[same] = clips_each(step, rate, starts[same])
    return counts


def _too_short(common: PlacedClips, videos: VideoTable) -> Array:
    """The places of videos without a start, but for one that the rule for the ends makes."""
    found = [np.zeros(0, dtype=np.int64)]
    # To count where frames are referred to means to sum up over all GOPs.
    at_once = max(1, len(videos)) if common.align else BLOCK_VIDEOS
    for start in range(0, len(videos), at_once):
        part = videos.part(start, min(start + at_once, len(videos)))
        found.append(start + np.flatnonzero(_num_starts(common, part, *start_ranges(common, part)) == 0))
    return np.concatenate(found)


def _too_short_text(videos: VideoTable, too_short: Array, policy: Placement) -> str:
    common = placed_clips(policy)
    lacking = []
    for place in too_short[:5].tolist():
        earliest, _, last = extent(common, videos.fps(place))
        has, needed = int(videos.num_frames[place]), last - earliest + 1
        why = f"{has} of {needed}" if has < needed else "no frame that others refer to where a clip fits"
        lacking.append(f"{videos.name(place)!r} has {why}")
    named = ", ".join(lacking)
    more = ", ..." if len(too_short) > 5 else ""
    which = f"{len(too_short)} of {len(videos)} {videos.nouns}"
    if common.align:
        return (
            f"{which} have no frame where a clip of {policy!r} may start: {named}{more}; give "
            'ends="drop" to leave them out, or leave align out; where others refer to the first frame, a rule that '
            'pads, such as "repeat_last", makes it a start'
        )
    return (
        f"{which} have fewer frames than a clip of {policy!r} spans: {named}{more}; "
        'give ends="drop" to leave them out, or a rule that pads them, such as "repeat_last"'
    )
