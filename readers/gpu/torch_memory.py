"""Memory of a decoder's surfaces as torch's tensors, and marks in torch's streams. Has not run on a GPU."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import torch

from .cuda_driver import primary_context, started_driver
from .dlpack import tensor_at
from .mapped_surfaces import Event


class SurfaceMemory(Protocol):
    """What a decoder that maps its surfaces needs of its device."""

    def stream(self) -> int:
        """CUDA's handle of the stream that the calling thread's work goes to."""
        ...

    def record(self) -> Event:
        """An event behind all work that this stream has so far."""
        ...

    def tensor_at(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> torch.Tensor:
        """A tensor in memory that is there already, which it does not keep. Strides are in bytes."""
        ...

    def context(self) -> contextlib.AbstractContextManager[None]:
        """The device's context is current in the calling thread."""
        ...


class TorchMemory:
    """See `SurfaceMemory`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._driver = started_driver()

    def stream(self) -> int:
        return int(torch.cuda.current_stream(self._device).cuda_stream)

    def record(self) -> Event:
        # `blocking` lets a waiting thread sleep; without it the thread would use a core.
        cuda: Any = torch.cuda
        event = cuda.Event(blocking=True)
        event.record(torch.cuda.current_stream(self._device))
        made: Event = event
        return made

    def tensor_at(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> torch.Tensor:
        return tensor_at(self._device, address, shape, strides, dtype)

    def context(self) -> contextlib.AbstractContextManager[None]:
        return primary_context(self._driver, self._device.index)
