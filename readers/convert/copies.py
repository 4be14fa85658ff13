"""Copies of frames that use none of torch's threads.

On the CPU, torch copies tensors of a frame's size with OpenMP. OpenMP's threads do not survive a fork, so a forked data
loader would wait for them forever.
"""

from __future__ import annotations

import torch


def copy_frame(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy `source` into `target`, which has the same shape, dtype and device."""
    if source.device.type == "cpu":
        target.numpy()[...] = source.numpy()
    else:
        target.copy_(source)


def cloned(frame: torch.Tensor) -> torch.Tensor:
    """A copy in memory of its own, with the same strides."""
    target = torch.empty_like(frame)
    copy_frame(frame, target)
    return target
