"""Tables of videos that clips are taken from, made up on the spot: there are no files behind them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from shortgop.training.which_clips.clips import PlacedIndex, placed_index
from shortgop.training.which_clips.references import ReferencedFrames
from shortgop.training.which_clips.video_table import VideoTable


def video_table(
    lengths: Sequence[int], rates: Sequence[Fraction] = (Fraction(30),), references: ReferencedFrames | None = None
) -> VideoTable:
    """Videos v0, v1, ... of so many frames each; the rates are taken in turn."""

    def wanted() -> ReferencedFrames:
        assert references is not None
        return references

    of_each = [rates[video % len(rates)] for video in range(len(lengths))]
    return VideoTable(
        chosen=None,
        num_frames=np.array(lengths, dtype=np.int64),
        fps_num=np.array([rate.numerator for rate in of_each], dtype=np.int64),
        fps_den=np.array([rate.denominator for rate in of_each], dtype=np.int64),
        name=lambda video: f"v{video}",
        references=wanted,
    )


def clips_of(policy: Any, lengths: Sequence[int], **options: Any) -> PlacedIndex:
    return placed_index(policy, video_table(lengths, **options), seed=0)


def listed(index: Any, draws: Sequence[int] | None = None) -> list[tuple[int, list[int]]]:
    """(video, frames) of each clip."""
    clips = index.clips(range(len(index)) if draws is None else draws)
    return [(clip.video, clip.frames.tolist()) for clip in clips]
