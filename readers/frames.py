"""What reading returns: a frame, or a batch of them, with the time at which each is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(eq=False)
class Frame:
    """One frame. Unpacks into its three fields."""

    data: torch.Tensor
    """uint8, (3, height, width), or (height, width, 3) where NHWC was asked for."""
    pts_seconds: float
    """When it is shown, in seconds from the start of the video."""
    duration_seconds: float
    """For how many seconds it is shown."""

    def __post_init__(self) -> None:
        if self.data.ndim != 3:
            raise ValueError(f"data must have 3 dimensions, its shape is {tuple(self.data.shape)}")
        self.pts_seconds = float(self.pts_seconds)
        self.duration_seconds = float(self.duration_seconds)

    def __iter__(self) -> Iterator[torch.Tensor | float]:
        yield from (self.data, self.pts_seconds, self.duration_seconds)

    def __repr__(self) -> str:
        return _repr(self)


@dataclass(eq=False)
class FrameBatch:
    """Several frames. `len`, iteration and indexing go along the first dimension; each item is a FrameBatch again."""

    data: torch.Tensor
    """uint8, (frames, 3, height, width), or (frames, height, width, 3) where NHWC was asked for."""
    pts_seconds: torch.Tensor
    """float64, (frames,), on the CPU: when each is shown, in seconds from the start of the video."""
    duration_seconds: torch.Tensor
    """float64, (frames,), on the CPU: for how many seconds each is shown."""

    def __post_init__(self) -> None:
        if self.data.ndim < 3:
            raise ValueError(f"data must have at least 3 dimensions, its shape is {tuple(self.data.shape)}")
        leading = self.data.shape[:-3]
        if not leading == self.pts_seconds.shape == self.duration_seconds.shape:
            raise ValueError(
                f"the leading dimensions differ: data {tuple(leading)}, pts_seconds {tuple(self.pts_seconds.shape)}, "
                f"duration_seconds {tuple(self.duration_seconds.shape)}"
            )

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[FrameBatch]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, key: Any) -> FrameBatch:
        return FrameBatch(self.data[key], self.pts_seconds[key], self.duration_seconds[key])

    def __repr__(self) -> str:
        return _repr(self)


def _repr(frames: Frame | FrameBatch) -> str:
    """Shapes and times, never pixels."""
    lines = [f"{type(frames).__name__}:"]
    for field in dataclasses.fields(frames):
        value = getattr(frames, field.name)
        lines.append(f"  data (shape): {tuple(value.shape)}" if field.name == "data" else f"  {field.name}: {value}")
    return "\n".join(lines)
