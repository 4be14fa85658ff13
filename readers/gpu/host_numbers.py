"""Numbers of the host as tensors on a device. Nothing waits for the copy."""

from __future__ import annotations

import torch

from ...manifests.ragged import Array


def tensor_on(device: torch.device, numbers: Array) -> torch.Tensor:
    """A copy on a device, for use on the current stream.

    The copy to a GPU begins in page-locked memory, which torch keeps until it has ended. From other memory the host
    would wait for all work that the stream has so far.
    """
    # numpy has no bfloat16, and torch cannot tell a dtype from numpy's. torch's default device may be a GPU.
    dtype = torch.from_numpy(numbers[:0].copy()).dtype
    staged = torch.empty(numbers.shape, dtype=dtype, device="cpu", pin_memory=device.type == "cuda")
    staged.numpy()[...] = numbers
    return staged.to(device, non_blocking=True)
