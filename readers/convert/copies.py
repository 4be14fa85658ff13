"""Copying frames without torch's threads.

On the CPU torch copies anything as large as a frame with OpenMP, whose threads do not survive a fork: a forked data
loader would wait for them forever.
"""

from __future__ import annotations

import torch


def copy_frame(source: torch.Tensor, target: torch.Tensor) -> None:
    """Fill `target` with `source`; same shape, dtype and device."""
    if source.device.type == "cpu":
        target.numpy()[...] = source.numpy()
    else:
        target.copy_(source)


def cloned(frame: torch.Tensor) -> torch.Tensor:
    """The same in memory of its own, laid out alike."""
    target = torch.empty_like(frame)
    copy_frame(frame, target)
    return target
