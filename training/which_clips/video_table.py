"""The videos that clips are taken from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...manifests.ragged import Array
from .references import ReferencedFrames


@dataclass(frozen=True, eq=False)
class VideoTable:
    """The videos that clips are taken from: their rows in the manifest, None for all of it, and columns of these rows.

    Where clips are taken from stretches of videos, each stretch has an entry: `num_frames` is its length, and
    `first_frames` says where in its video it begins. `references` is needed where clips are aligned. `name` gives the
    id of a video by its place in the table.
    """

    chosen: Array | None
    num_frames: Array
    fps_num: Array
    fps_den: Array
    name: Callable[[int], str]
    references: Callable[[], ReferencedFrames]
    first_frames: Array | None = None

    def __len__(self) -> int:
        return len(self.num_frames)

    @property
    def rows(self) -> Array:
        """Their rows in the manifest, int64. That is an array of its own where all are meant."""
        return np.arange(len(self)) if self.chosen is None else self.chosen

    def row(self, video: int) -> int:
        return video if self.chosen is None else int(self.chosen[video])

    def part(self, start: int, stop: int) -> VideoTable:
        """The videos [start, stop)."""
        if (start, stop) == (0, len(self)):
            return self
        return VideoTable(
            chosen=np.arange(start, stop) if self.chosen is None else self.chosen[start:stop],
            num_frames=self.num_frames[start:stop],
            fps_num=self.fps_num[start:stop],
            fps_den=self.fps_den[start:stop],
            name=lambda place: self.name(start + place),
            references=self.references,
            first_frames=None if self.first_frames is None else self.first_frames[start:stop],
        )

    @property
    def nouns(self) -> str:
        """What entries are, for messages."""
        return "videos" if self.first_frames is None else "stretches"

    def first_frame(self, video: int) -> int:
        """The frame of the video with which this entry begins."""
        return 0 if self.first_frames is None else int(self.first_frames[video])

    def within(self, first_frames: Array, num_frames: Array) -> VideoTable:
        """The same entries, each a stretch of its video."""
        return replace(self, first_frames=first_frames, num_frames=num_frames)

    def fps(self, video: int) -> Fraction:
        return Fraction(int(self.fps_num[video]), int(self.fps_den[video]))
