"""Which frames a clip has from its start on, how far they reach, and so where it may start."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Any

import numpy as np

from ...errors import UsageError
from ...manifests.ragged import Array
from .ends import frames_within
from .keyed import below, hashes, key
from .offsets import Spacing, frame_offsets, nearest_frames
from .placed_clips import PlacedClips
from .video_table import VideoTable

# By so many frames a frame of a clip may be before or behind its start: places are then counted with 64 bits.
_FARTHEST = 1 << 48
# Of a frame. Floats such as 1 / 30 miss the time that is meant by less.
_ROUNDING = Fraction(1, 1_000_000)


def columns_of(videos: VideoTable) -> list[Array]:
    """What the frames of clips depend on, of each video."""
    first_frames = [] if videos.first_frames is None else [videos.first_frames]
    return [videos.num_frames, videos.fps_num, videos.fps_den, *first_frames]


def fingerprint_of(values: list[Any], columns: list[Array]) -> str:
    """A hash of columns, and of values whose repr says all of them."""
    digest = hashlib.blake2b(repr(values).encode(), digest_size=8)
    for column in columns:
        digest.update(np.ascontiguousarray(column, dtype="<i8").data)
    return digest.hexdigest()


def from_place(spaced: Spacing, start: Any, fps: Fraction, num_frames: int) -> tuple[int, Array]:
    """A clip's start and its frames, from a frame number or from a time in seconds."""
    if not isinstance(start, Fraction):
        return int(start), wanted_frames(spaced, int(start), fps, num_frames)
    (frame,) = nearest_frames([start], fps, num_frames)
    if spaced.seconds is None:
        return frame, wanted_frames(spaced, frame, fps, num_frames)
    # Each frame is rounded once, from its own time.
    times = [start + offset for offset in spaced.seconds]
    return frame, np.array(nearest_frames(times, fps, num_frames), dtype=np.int64)


def wanted_frames(spaced: Spacing, start: int, fps: Fraction, num_frames: int) -> Array:
    """The frames of a clip that starts at this frame."""
    frames = np.array(frame_offsets(spaced, fps), dtype=np.int64) + start
    if spaced.seconds is not None:
        for place in np.flatnonzero(frames == num_frames).tolist():
            # A time before the end has a frame.
            if start + floor(spaced.seconds[place] * fps + _ROUNDING) < num_frames:
                frames[place] = num_frames - 1
    return frames


def jitter_frames(common: PlacedClips, fps: Fraction) -> int:
    """By how many frames jitter moves a frame of a clip at most."""
    return floor(common.jitter * fps) if common.spaced.needs_rate else int(common.jitter)


def frames_of_draw(  # noqa: PLR0917  # the clip, the draw, and the video
    common: PlacedClips, wanted: Array, seed: int, draw: int, fps: Fraction, num_frames: int
) -> tuple[Array, Array | None]:
    """The frames of a draw whose clip calls for the `wanted` ones, moved by jitter and by the rule for the ends of the
    video; and its mask, None where the policy never replaces any."""
    jitter = jitter_frames(common, fps)
    if jitter:
        wanted = wanted + below(hashes(key(seed, "jitter", draw), np.arange(len(wanted))), jitter + 1)
    frames, mask = frames_within(wanted, num_frames, common.ends)
    return frames, mask if common.pads else None


def start_range(common: PlacedClips, low: int, high: int, shown: int, num_frames: int) -> tuple[int, int]:
    """The frames [first, stop) where a clip may start; at least one where the rule pads and nothing is skipped."""
    if not common.whole:
        return common.skip[0], num_frames - common.skip[1]
    first, stop = max(0, -low), num_frames - max(0, high)
    if stop <= first:
        stop = min(first + 1, num_frames - max(0, shown))
    if common.pads and stop <= first:
        first = min(first, num_frames - 1)
        stop = first + 1
    return first, stop


def start_ranges(common: PlacedClips, videos: VideoTable) -> tuple[Array, Array]:
    """The same for all videos, without what the rule does to those that are too short."""
    num_frames = videos.num_frames.astype(np.int64)
    if not common.whole:
        return np.full_like(num_frames, common.skip[0]), num_frames - common.skip[1]
    low, high, shown = extents(common, videos)
    first, stop = np.zeros_like(num_frames) + np.maximum(0, -low), num_frames - np.maximum(0, high)
    # A clip that just fits by its times has one start.
    return first, np.where(stop <= first, np.minimum(first + 1, num_frames - np.maximum(0, shown)), stop)


def extents(common: PlacedClips, videos: VideoTable) -> tuple[Array, Array, Array]:
    """The least and the greatest offset of a clip's frames, jitter included, and how many frames a video has to have
    behind the start for the last one to exist; one for all videos or one each."""
    if not common.spaced.needs_rate:
        low_of_all, high_of_all, shown_of_all = map(np.array, extent(common, Fraction(1)))
        return low_of_all, high_of_all, shown_of_all
    # Corpora have few rates; each is worked out once.
    rates, which = rates_of(videos)
    low, high, shown = np.array([extent(common, rate) for rate in rates], dtype=np.int64).reshape(-1, 3).T
    return low[which], high[which], shown[which]


def rates_of(videos: VideoTable) -> tuple[list[Fraction], Array]:
    """The rates that there are, and which of them each video has."""
    numerators, which_numerator = np.unique(videos.fps_num, return_inverse=True)
    denominators, which_denominator = np.unique(videos.fps_den, return_inverse=True)
    pairs = which_numerator * len(denominators) + which_denominator
    there = np.bincount(pairs, minlength=len(numerators) * len(denominators)) > 0
    places = zip(*np.divmod(np.flatnonzero(there), max(1, len(denominators))), strict=True)
    rates = [Fraction(int(numerators[place]), int(denominators[other])) for place, other in places]
    return rates, (np.cumsum(there) - 1)[pairs]


@lru_cache(maxsize=4096)
def extent(common: PlacedClips, fps: Fraction) -> tuple[int, int, int]:
    """The same for one rate."""
    offsets, jitter = frame_offsets(common.spaced, fps), jitter_frames(common, fps)
    high = max(offsets) + jitter
    if max(high, -min(offsets)) > _FARTHEST:
        raise UsageError(
            f"frames of a clip are more than {_FARTHEST} frames away from its start, which are more than a video has: "
            "give it another stride, fps, jitter or other offsets"
        )
    # Jitter counts from the nearest frame. Without it the last time has to lie before the end: see nearest_frames.
    times = None if jitter else common.spaced.seconds
    return min(offsets), high, high if times is None else floor(max(times) * fps + _ROUNDING)
