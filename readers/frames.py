"""What reading returns: a frame, or a batch of frames, with the time at which each is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import numpy as np
import torch

from ..arguments import integer
from ..errors import WrongTypeError
from ..manifests.ragged import Array

# Dimensions of a frame: channels, height and width in either order, or one of planes, lines and columns.
_FRAME_DIMENSIONS = 3


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
        if self.data.ndim != _FRAME_DIMENSIONS:
            raise ValueError(f"data must have 3 dimensions, its shape is {tuple(self.data.shape)}")
        self.pts_seconds = float(self.pts_seconds)
        self.duration_seconds = float(self.duration_seconds)

    def __iter__(self) -> Iterator[torch.Tensor | float]:
        yield from (self.data, self.pts_seconds, self.duration_seconds)

    def __repr__(self) -> str:
        return _repr(self)


@dataclass(eq=False)
class FrameBatch:
    """Several frames. `len`, iteration and indexing go along the first dimension; each item is a FrameBatch too."""

    data: torch.Tensor
    """uint8, (frames, 3, height, width), or as `shortgop.open` was told."""
    pts_seconds: torch.Tensor
    """float64, (frames,), on the CPU: when each is shown, in seconds from the start of the video."""
    duration_seconds: torch.Tensor
    """float64, (frames,), on the CPU: for how many seconds each is shown."""

    def __post_init__(self) -> None:
        # A batch indexed by a number has no leading dimension, as in TorchCodec.
        _check(self, (0, 1))

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[FrameBatch]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, key: Any) -> FrameBatch:
        return FrameBatch(*_indexed(self, key))

    def __repr__(self) -> str:
        return _repr(self)


@dataclass(eq=False)
class ClipBatch:
    """Clips with the same number of frames. `len`, iteration and indexing go along the clips.

    A number selects a clip, as a FrameBatch; a slice, a list or a tensor of numbers gives a ClipBatch. A second index
    goes along the frames: `clips[:, 0]` is a FrameBatch with the first frame of each clip.
    """

    data: torch.Tensor
    """uint8, (clips, frames, 3, height, width), or as `shortgop.open` was told."""
    pts_seconds: torch.Tensor
    """float64, (clips, frames), on the CPU: when each is shown, in seconds from the start of its video."""
    duration_seconds: torch.Tensor
    """float64, (clips, frames), on the CPU: for how many seconds each is shown."""

    def __post_init__(self) -> None:
        _check(self, (2,))

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[FrameBatch]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, key: SupportsIndex) -> FrameBatch: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int]) -> ClipBatch: ...
    @overload
    def __getitem__(self, key: torch.Tensor | Array | tuple[Any, ...]) -> FrameBatch | ClipBatch: ...
    def __getitem__(self, key: Any) -> FrameBatch | ClipBatch:
        data, pts_seconds, duration_seconds = _indexed(self, key)
        kind = FrameBatch if pts_seconds.ndim < 2 else ClipBatch
        return kind(data, pts_seconds, duration_seconds)

    def __repr__(self) -> str:
        return _repr(self)


def _indexed(batch: FrameBatch | ClipBatch, key: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The three tensors indexed by `key`, as torch does it. A boolean is refused; a tensor of booleans is a mask."""
    parts = tuple(map(_plain, key if isinstance(key, tuple) else (key,)))
    # These have fewer dimensions than the data, so that too many indices are an error here.
    pts_seconds, duration_seconds = batch.pts_seconds[parts], batch.duration_seconds[parts]
    return batch.data[parts], pts_seconds, duration_seconds


def _plain(key: Any) -> Any:
    """One index, on the CPU whatever torch's default device is."""
    if isinstance(key, slice) or key is Ellipsis:
        return key
    if isinstance(key, (list, range)):
        numbers = [integer(each, "what a batch is indexed by") for each in key]
        return torch.tensor(numbers, dtype=torch.int64, device="cpu")
    if isinstance(key, np.ndarray):
        key = torch.from_numpy(key)
    if isinstance(key, torch.Tensor):
        if key.ndim or key.dtype != torch.bool:
            return key.cpu()
    elif hasattr(key, "__index__") and not isinstance(key, (bool, np.bool_)):
        return int(key)
    raise WrongTypeError(f"a batch is indexed by {key!r}; it takes integers, slices, and lists or tensors of integers")


def _check(frames: FrameBatch | ClipBatch, dimensions: tuple[int, ...]) -> None:
    leading, times, durations = (
        tuple(tensor.shape) for tensor in (frames.data, frames.pts_seconds, frames.duration_seconds)
    )
    if len(leading) - len(times) != _FRAME_DIMENSIONS or not leading[: len(times)] == times == durations:
        raise ValueError(
            f"the leading dimensions differ: data {leading}, pts_seconds {times}, duration_seconds {durations}"
        )
    if len(times) not in dimensions:
        raise ValueError(f"the times of a {type(frames).__name__} have {dimensions[-1]} dimensions, not {len(times)}")


def _repr(frames: Frame | FrameBatch | ClipBatch) -> str:
    """A repr with shapes and times, without pixels."""
    lines = [f"{type(frames).__name__}:"]
    for field in dataclasses.fields(frames):
        value = getattr(frames, field.name)
        lines.append(f"  data (shape): {tuple(value.shape)}" if field.name == "data" else f"  {field.name}: {value}")
    return "\n".join(lines)
