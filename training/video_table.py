"""The videos that clips are taken from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..manifests.ragged import Array
from .references import ReferencedFrames


@dataclass(frozen=True, eq=False)
class VideoTable:
    """The videos that clips are taken from: their rows in the manifest, None for all of it, and columns of these rows.

    `references` is needed where clips are aligned, `name` for messages.
    """

    chosen: Array | None
    num_frames: Array
    fps_num: Array
    fps_den: Array
    name: Callable[[int], str]
    references: Callable[[], ReferencedFrames]

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
        )

    def fps(self, video: int) -> Fraction:
        return Fraction(int(self.fps_num[video]), int(self.fps_den[video]))
