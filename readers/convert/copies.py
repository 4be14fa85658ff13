"""Copies of frames that use none of torch's threads.

On the CPU, torch copies tensors of a frame's size with OpenMP. OpenMP's threads do not survive a fork, so a forked data
loader would wait for them forever.
"""

from __future__ import annotations

import torch

from ...manifests.ragged import Array


def array_of(tensor: torch.Tensor) -> Array:
    """The memory of a tensor on the CPU. bfloat16, which numpy does not have, comes as its bits: uint16."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def copy_frame(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy `source` into `target`, which has the same shape, dtype and device."""
    if source.device.type == "cpu":
        array_of(target)[...] = array_of(source)
    else:
        target.copy_(source)


def cloned(frame: torch.Tensor) -> torch.Tensor:
    """A copy in memory of its own, with the same strides."""
    target = torch.empty_like(frame)
    copy_frame(frame, target)
    return target
