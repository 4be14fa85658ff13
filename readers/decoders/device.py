"""Decodes into the memory of a device: open decoders from a pool, a conversion there, and the order of its streams."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence

import torch

from ...errors import ToolError, UsageError
from ...manifests.records import CodecConfig
from ...warned import warn
from ..frame_format import Geometry, PixelFormat
from ..gpu.cuda_driver import lasting_error
from ..gpu.decoder_pool import DecoderPool, same
from ..gpu.stream_order import Gpu, gop_order, request_order
from ..gpu.surfaces import Surface
from .base import DecodeCost, DeviceFailsError, GopRequest, Target
from .surface_source import Pictures, SurfaceSource

# An open decoder of a 1080p stream takes up to 400 MB of a GPU. These are about 4 GB.
_MAX_IDLE_PIXELS = 20_000_000
_MAX_IDLE_DECODERS = 64
# What to do where a process was forked from one that uses CUDA. Not every such process is a worker of a DataLoader.
HOW_TO_START = 'start it by "spawn" or "forkserver" (workers of a DataLoader by multiprocessing_context="forkserver")'

Convert = Callable[[Sequence[Surface], Sequence[Geometry], Sequence[torch.Tensor], PixelFormat], None]


class DeviceDecoder:
    """See `Decoder`. Any number of threads decode at the same time, each with a decoder of the pool."""

    def __init__(
        self,
        device: torch.device,
        *,
        gpu: Callable[[], Gpu],
        open_source: Callable[[CodecConfig], SurfaceSource],
        convert: Convert,
        kind: Callable[[CodecConfig], Hashable] = same,
    ) -> None:
        """`gpu` is called at the first request, in the process that reads.

        An open source decodes the configurations of its `kind`.
        """
        self.name = f"device {device}"
        self.device = device
        self._start_gpu = gpu
        self._gpu: Gpu | None = None
        self._starting = threading.Lock()
        self._convert = convert
        self._pool = DecoderPool(open_source, max_idle=_MAX_IDLE_DECODERS, max_idle_pixels=_MAX_IDLE_PIXELS, kind=kind)
        self._process = os.getpid()
        self._has_told = False

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """See `Decoder.request`."""
        with self._lasting_errors_named(), request_order(self._started()):
            yield

    def decode(self, request: GopRequest, targets: Sequence[Target]) -> DecodeCost:
        """See `Decoder.decode`.

        What fails at the device is tried once more when there is all the memory that can be had without other
        processes: idle decoders are closed, and what torch keeps and does not use goes back to the driver.
        """
        try:
            return self._decode(request, targets)
        except DeviceFailsError as error:
            failed = error.message
        # Not within the handler, where the error keeps the decoder that failed.
        self._pool.shrink()
        self._started().free_memory()
        cost = self._decode(request, targets)
        if not self._has_told:
            self._has_told = True
            warn(
                f"{self.name} did not decode a GOP until idle decoders were closed and unused memory was freed, of "
                f"which this is told once: {failed}"
            )
        return cost

    def _decode(self, request: GopRequest, targets: Sequence[Target]) -> DecodeCost:
        order = gop_order(self._started())
        with order, self._lasting_errors_named(), self._pool.taken(request.config) as (source, warm):
            seconds = 0.0

            def write(pictures: Pictures) -> None:
                nonlocal seconds
                started = time.perf_counter()
                self._write(pictures, request.geometries, targets)
                seconds += time.perf_counter() - started

            packets = source.decode(request, write)
            # Seconds of launching: the device converts later.
            return DecodeCost(packets, seconds, warm)

    @contextlib.contextmanager
    def _lasting_errors_named(self) -> Iterator[None]:
        """torch's errors, where the GPU is lost to this process, as a ToolError that says so."""
        try:
            yield
        except RuntimeError as error:
            if lasting := lasting_error():
                first = str(error).strip().partition("\n")[0]
                raise ToolError(f"{self.name} fails ({first}), as every call to it does now: {lasting}") from error
            raise

    def _write(self, pictures: Pictures, geometries: Sequence[Geometry], targets: Sequence[Target]) -> None:
        """Convert pictures of a GOP: one launch for each target."""
        for number, target in enumerate(targets):
            work = [
                (surface, geometries[place.geometry], target.slot(place.slot))
                for surface, places in pictures
                for place in places
                if place.output == number
            ]
            if work:
                surfaces, chosen, slots = zip(*work, strict=True)
                self._convert(surfaces, chosen, slots, target.pixels)

    def check_process(self) -> None:
        """See `Decoder.check_process`."""
        if os.getpid() != self._process:
            raise UsageError(
                f"this process was forked from one that opened the dataset on {self.device}, and CUDA does not survive "
                f"a fork: {HOW_TO_START}, or open the dataset in it"
            )

    def _started(self) -> Gpu:
        self.check_process()
        # Two objects could have two streams, and a request waits for one.
        with self._starting:
            if self._gpu is None:
                self._gpu = self._start_gpu()
            return self._gpu
