"""At which starts of a video a policy has clips: pure functions of the policy and of how many starts there are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, assert_never

import numpy as np

from ...manifests.ragged import Array
from .offsets import nearest_frame
from .policies import AllClips, CenterClips, Placement, RandomClips, UniformClips


def clips_of(policy: Placement, starts: Array) -> Array:
    """How many clips videos with so many starts have, but for an AllClips with `step_seconds`: int64, (videos,)."""
    match policy:
        case AllClips(step=step):
            return -(-starts // step)
        case CenterClips():
            return np.minimum(starts, 1)
        case RandomClips(clips_per_video=count) | UniformClips(clips_per_video=count):
            return np.where(starts > 0, count, 0)
    assert_never(policy)


def clips_each(seconds: Fraction, fps: Fraction, starts: Array) -> Array:
    """How many clips start every so many seconds in videos of this rate, at the nearest of so many starts each: int64,
    (videos,)."""
    # Clip i starts at frame floor(i * step + 1/2), so those exist with i * step < starts - 1/2. Python's integers: the
    # products may exceed int64.
    step = seconds * fps
    halves = np.maximum(2 * starts.astype(np.int64) - 1, 0).astype(object)
    return np.asarray(-(-halves * step.denominator // (2 * step.numerator)), dtype=np.int64)


def start_of(policy: Placement, starts: int, clip: int, random_bits: int, fps: Fraction) -> int:
    """Which start of a video a clip has, by its number among the video's clips, 64 random bits, and the video's rate: 0
    to starts - 1."""
    match policy:
        case AllClips(exact_step=Fraction() as seconds):
            return nearest_frame(clip * seconds, fps)
        case AllClips(step=step):
            return clip * step
        case CenterClips():
            return (starts - 1) // 2
        case UniformClips(clips_per_video=count):
            return clip * (starts - 1) // max(1, count - 1)
        case RandomClips(spread=True, clips_per_video=count):
            return ((clip << 64) + random_bits) * starts // count >> 64
        case RandomClips():
            return starts * random_bits >> 64
    assert_never(policy)


def identity_of(policy: Placement, skip: tuple[int, int]) -> list[Any]:
    """What tells apart the starts that two policies of one kind take, for fingerprints. Those of policies without a
    later option are what they were before there was such a thing."""
    skipped = [] if skip == (0, 0) else [skip]
    match policy:
        case AllClips(step=step, exact_step=seconds):
            return [step, None, *skipped, *([] if seconds is None else [seconds])]
        case RandomClips(clips_per_video=count, spread=spread):
            return [None, count, *(["spread"] if spread else []), *skipped]
        case UniformClips(clips_per_video=count):
            return [None, count, *skipped]
        case CenterClips():
            return [None, None, *skipped]
    assert_never(policy)
