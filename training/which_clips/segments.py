"""The index over clips that are spread over whole videos: one frame of each of some equal segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...lazy import lazy
from ...manifests.ragged import Array
from .clip_reach import columns_of, fingerprint_of
from .clips import Clip, OfVideos
from .draws import split_draws
from .keyed import below, hashes, key
from .policies import SegmentFrames
from .video_table import VideoTable


@dataclass(frozen=True, eq=False)
class SegmentIndex(OfVideos):
    """The clips of a SegmentFrames: one of each video, so that clips have the numbers of videos."""

    policy: SegmentFrames
    videos: VideoTable
    seed: int

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def firsts(self) -> Array:
        return np.arange(len(self) + 1)

    @property
    def too_short(self) -> Array:
        """None: short videos have some frames several times."""
        return np.zeros(0, dtype=np.int64)

    @property
    def pads(self) -> bool:
        return False

    @lazy
    def fingerprint(self) -> str:
        return fingerprint_of([self.policy, self.seed], columns_of(self.videos))

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        _, indices = split_draws(draws, len(self))
        return [self._clip(draw, video) for draw, video in zip(draws, indices.tolist(), strict=True)]

    def _clip(self, draw: int, video: int) -> Clip:
        num_frames, count = int(self.videos.num_frames[video]), self.policy.num_frames
        segments = np.arange(count)
        if self.policy.place == "middle":
            frames = (2 * segments + 1) * num_frames // (2 * count)
        else:
            bounds = np.arange(count + 1) * num_frames // count
            sizes = np.maximum(np.diff(bounds), 1)
            frames = bounds[:-1] + below(hashes(key(self.seed, "segments", draw), segments), sizes)
        return self.clip_of(draw, video, int(frames[0]), frames)
