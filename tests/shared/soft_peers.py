"""Other libraries' decoders on the GPU in software: TorchCodec 0.16 and PyNvVideoCodec 2.2.4, as benchmarks call them.

TorchCodec's own decoder on the CPU gives the frames. All else is as the sources of these libraries have it: which
arguments they take, what they give, and that they use memory again. Only that they need a CUDA context is stricter.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import sys
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torchcodec import decoders

from shortgop.readers.gpu.cuda_driver import load
from soft_torch import SoftTensor

_CpuDecoder = decoders.VideoDecoder  # type: ignore[attr-defined]
ON_CPU = "[CUDA] Fallback status: Falling back due to: NVcuvid unavailable"


class Peers:
    """What the libraries do otherwise than they should, and how many decoders they have opened in which threads."""

    def __init__(self) -> None:
        self.late = 0
        """By how many frames they give later ones."""
        self.on_cpu = False
        """TorchCodec finds no NVDEC."""
        self.fail_at = sys.maxsize
        """The decoder that cannot be opened any more, by its number."""
        self.opened: list[int] = []

    def open(self) -> None:
        """Needs a current CUDA context: TorchCodec 0.16.0 makes one current itself, and another release may not."""
        current = ctypes.c_void_p()
        load("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(current))
        if not current:
            raise RuntimeError("Failed to create a decoder: CUDA_ERROR_INVALID_CONTEXT (201)")
        if len(self.opened) >= self.fail_at:
            raise RuntimeError("cuvidCreateDecoder: CUDA_ERROR_OUT_OF_MEMORY (2)")
        self.opened.append(threading.get_ident())

    def frames_of(self, decoder: Any, indices: Sequence[int]) -> torch.Tensor:
        found: torch.Tensor = decoder.get_frames_at([min(each + self.late, len(decoder) - 1) for each in indices]).data
        return found

    @contextlib.contextmanager
    def installed(self) -> Iterator[Peers]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(decoders, "VideoDecoder", self._torchcodec())
            patched.setitem(sys.modules, "PyNvVideoCodec", self._pynvvideocodec())
            yield self

    def _torchcodec(self) -> Any:
        peers = self

        class VideoDecoder:
            def __init__(self, source: str | bytes, *, device: str) -> None:
                assert device == "cuda"
                peers.open()
                self._decoder = _CpuDecoder(source)
                self.cpu_fallback = ON_CPU if peers.on_cpu else ""

            def get_frames_at(self, indices: list[int]) -> Any:
                return SimpleNamespace(data=peers.frames_of(self._decoder, indices).as_subclass(SoftTensor))

            def get_frames_in_range(self, start: int, stop: int) -> Any:
                return self.get_frames_at(list(range(start, stop)))

        return VideoDecoder

    def _pynvvideocodec(self) -> Any:
        peers = self

        class OutputColorType(enum.Enum):
            NATIVE, RGB, RGBP = range(3)

        class SimpleDecoder:
            def __init__(self, enc_file_path: str, gpu_id: int, output_color_type: OutputColorType) -> None:
                assert (gpu_id, output_color_type) == (0, OutputColorType.RGBP)
                peers.open()
                self._decoder = _CpuDecoder(enc_file_path)
                self._memory = torch.empty(0, dtype=torch.uint8)

            def get_batch_frames_by_index(self, indices: list[int]) -> list[torch.Tensor]:
                """Planes below each other, in memory that the next frames overwrite."""
                found = peers.frames_of(self._decoder, indices).flatten(1, 2)
                if self._memory.numel() < found.numel():
                    self._memory = torch.empty(found.numel(), dtype=torch.uint8)
                given = self._memory[: found.numel()].view(found.shape)
                given.copy_(found)
                return list(given)

        module: Any = ModuleType("PyNvVideoCodec")
        module.OutputColorType, module.SimpleDecoder = OutputColorType, SimpleDecoder
        return module
