"""The calls of `stream_order.Gpu`, made through torch and the driver. Has not run on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .cuda_driver import preload_video_libraries, primary_context, started_driver


class TorchGpu:
    """One CUDA device. libavcodec writes surfaces on CUDA's legacy default stream, which is torch's default one too:
    libavutil/hwcontext_cuda.c leaves its `stream` at 0. libnvcuvid writes them on any stream that it is given."""

    def __init__(self, device: torch.device, *, own_stream: bool = False) -> None:
        """`own_stream`: decoders write on a stream of their own, so that no other work is in front of theirs.

        ToolError when there is no GPU.
        """
        self._device = device
        self._driver = started_driver()
        preload_video_libraries()
        self._decoder_stream = self.new_stream() if own_stream else torch.cuda.default_stream(device)

    def current_stream(self) -> Any:
        return torch.cuda.current_stream(self._device)

    def new_stream(self) -> Any:
        cuda: Any = torch.cuda
        return cuda.Stream(self._device)

    def used_on(self, tensor: torch.Tensor, stream: Any) -> None:
        tensor.record_stream(stream)

    def decoder_stream(self) -> Any:
        return self._decoder_stream

    @contextlib.contextmanager
    def launching_on(self, stream: Any) -> Iterator[None]:
        context = primary_context(self._driver, self._device.index)
        with torch.cuda.device(self._device), torch.cuda.stream(stream), context:
            yield

    def record(self, stream: Any) -> Any:
        cuda: Any = torch.cuda
        event = cuda.Event()
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def free_memory(self) -> None:
        torch.cuda.empty_cache()
