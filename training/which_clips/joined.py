"""The index over items that have all clips of a video, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...manifests.ragged import Array
from .clips import Clip, Clips
from .draws import split_draws


@dataclass(frozen=True, eq=False)
class JoinedIndex:
    """The clips of a policy that makes `count` of each video that has any, as one clip of each such video.

    Draw d has those of the draws d * count to d * count + count - 1 of `parts`, so that each is drawn by itself.
    """

    parts: Clips
    count: int

    def __len__(self) -> int:
        return len(self.parts) // self.count

    @property
    def firsts(self) -> Array:
        return self.parts.firsts // self.count

    @property
    def too_short(self) -> Array:
        return self.parts.too_short

    @property
    def pads(self) -> bool:
        return self.parts.pads

    @property
    def is_unordered(self) -> bool:
        return self.parts.is_unordered

    @property
    def fingerprint(self) -> str:
        return f"{self.count} joined of {self.parts.fingerprint}"

    def video_name(self, place: int) -> str:
        return self.parts.video_name(place)

    def clip_numbers(self, places: Array) -> Array:
        return places

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        split_draws(draws, len(self))
        parts = self.parts.clips([draw * self.count + part for draw in draws for part in range(self.count)])
        each = [parts[first : first + self.count] for first in range(0, len(parts), self.count)]
        return [_joined(draw, own) for draw, own in zip(draws, each, strict=True)]


def _joined(draw: int, parts: Sequence[Clip]) -> Clip:
    masks = [part.mask for part in parts if part.mask is not None]
    return replace(
        parts[0],
        draw=draw,
        frames=np.concatenate([part.frames for part in parts]),
        mask=np.concatenate(masks) if masks else None,
    )
