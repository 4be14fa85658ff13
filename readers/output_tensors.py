"""The tensors that frames are written to: new ones on a device, and those that callers give."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import UsageError, WrongTypeError
from .clip_output import ClipOutput
from .frame_shapes import buckets_by


def empty_on(device: torch.device, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A new tensor in a device's memory. UsageError when it does not fit."""
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except torch.OutOfMemoryError as error:
        size = math.prod(shape) * dtype.itemsize / 1e9
        raise UsageError(
            f"{device} has no memory for frames of {size:.2f} GB ({shape}, {dtype}): ask for fewer at a time, or for "
            "smaller ones"
        ) from error


def check_out(out: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """UsageError or WrongTypeError when frames of this shape cannot be written to what a caller gave as `out`."""
    if not isinstance(out, torch.Tensor):
        raise WrongTypeError(f"out is a {type(out).__name__}; it has to be a tensor")
    if out.requires_grad or out.layout != torch.strided:
        raise UsageError("out requires a gradient or is sparse; it has to be an ordinary tensor")
    if tuple(out.shape) != shape or out.dtype != dtype or out.device != device or not out.is_contiguous():
        contiguous = "" if out.is_contiguous() else ", not contiguous"
        raise UsageError(
            f"out is {out.dtype} {tuple(out.shape)} on {out.device}{contiguous}; the frames take {dtype} {shape} on "
            f"{device}, contiguous"
        )


def wrong_rows(output: ClipOutput, shape: tuple[int, ...], tensor: torch.Tensor, *, video: str) -> UsageError:
    """The error for clips of this shape, one of them of `video`, that do not go into the rows of a tensor."""
    time = output.layout.index("T")
    if tensor.dim() != 1 + len(shape) or shape == tuple(tensor.shape[1:]):
        # Videos differ in sizes and in numbers of frames alone.
        remedy = (
            "all clips of a batch have as many dimensions and one dtype; where `items` of a subclass gives this entry "
            "other frames or none, let it call super().items(draws), without rows"
        )
    elif shape[time] == tensor.shape[1 + time]:
        remedy = (
            "open the dataset with size=(height, width), or give its shortgop.Output that; where sizes are to differ, "
            f"take {buckets_by('size')}"
        )
    else:
        remedy = (
            f"all clips of a batch have as many frames; where lengths are to differ, take {buckets_by('length')}, or a "
            "DataLoader with a collate_fn that takes several"
        )
    return UsageError(
        f"clips of video {video!r} are {output.pixels.dtype} {shape}, and do not go into rows of {tensor.dtype} "
        f"{tuple(tensor.shape[1:])}: {remedy}",
        video=video,
    )
