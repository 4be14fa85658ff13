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
    """uint8, (3, height, width), or as `shortgop.open` was told."""
    pts_seconds: float
    """When it is shown, in seconds from the start of the video."""
    duration_seconds: float
    """For how many seconds it is shown."""

    def __post_init__(self) -> None:
        # Planes are not RGB, and have two.
        if self.data.ndim not in {2, 3}:
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
    """uint8, (frames, 3, height, width), or as `shortgop.open` was told."""
    pts_seconds: torch.Tensor
    """float64, (frames,), on the CPU: when each is shown, in seconds from the start of the video."""
    duration_seconds: torch.Tensor
    """float64, (frames,), on the CPU: for how many seconds each is shown."""

    def __post_init__(self) -> None:
        _check(self)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[FrameBatch]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, key: Any) -> FrameBatch:
        return FrameBatch(self.data[key], self.pts_seconds[key], self.duration_seconds[key])

    def __repr__(self) -> str:
        return _repr(self)


@dataclass(eq=False)
class ClipBatch:
    """Clips of as many frames each. `len`, iteration and indexing go along the clips; a clip is a FrameBatch."""

    data: torch.Tensor
    """uint8, (clips, frames, 3, height, width), or as `shortgop.open` was told."""
    pts_seconds: torch.Tensor
    """float64, (clips, frames), on the CPU: when each is shown, in seconds from the start of its video."""
    duration_seconds: torch.Tensor
    """float64, (clips, frames), on the CPU: for how many seconds each is shown."""

    def __post_init__(self) -> None:
        _check(self)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[FrameBatch]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> FrameBatch:
        return FrameBatch(self.data[index], self.pts_seconds[index], self.duration_seconds[index])

    def __repr__(self) -> str:
        return _repr(self)


def _check(frames: FrameBatch | ClipBatch) -> None:
    leading, times, durations = (
        tuple(tensor.shape) for tensor in (frames.data, frames.pts_seconds, frames.duration_seconds)
    )
    if len(leading) - len(times) not in {2, 3} or not leading[: len(times)] == times == durations:
        raise ValueError(
            f"the leading dimensions differ: data {leading}, pts_seconds {times}, duration_seconds {durations}"
        )


def _repr(frames: Frame | FrameBatch | ClipBatch) -> str:
    """Shapes and times, never pixels."""
    lines = [f"{type(frames).__name__}:"]
    for field in dataclasses.fields(frames):
        value = getattr(frames, field.name)
        lines.append(f"  data (shape): {tuple(value.shape)}" if field.name == "data" else f"  {field.name}: {value}")
    return "\n".join(lines)
