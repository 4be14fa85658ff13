"""Clips that have numbers and no frames."""

from __future__ import annotations

from dataclasses import dataclass

from shortgop.training.which_clips.clips import Clips
from shortgop.training.which_clips.policies import AllClips
from video_tables import clips_of


@dataclass(frozen=True)
class NoFrames:
    """Clips that have numbers and no frames: a sampler needs no more."""

    clip_index: Clips
    snapshot: str = "1"
    videos_fingerprint: str = "videos"
    made_as: str = "numbered"

    def __len__(self) -> int:
        return len(self.clip_index)


def numbered(*lengths: int) -> NoFrames:
    return NoFrames(clips_of(AllClips(1), lengths), videos_fingerprint=str(lengths))
