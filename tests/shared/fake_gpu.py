"""A GPU for tests of the order of its streams: work runs in order within a stream, and otherwise in any order.

Nothing runs before `run_some` or `finish` is called, so work that relies on luck is found out. Decoders write their
pictures into a few cells of memory that they use again as soon as a surface is dropped, as libavcodec does.
"""

from __future__ import annotations

import contextlib
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.readers.dataset import Dataset
from shortgop.readers.decoders.base import Decoder, GopRequest
from shortgop.readers.decoders.device import DeviceDecoder
from shortgop.readers.decoders.pyav_upload import PyavUpload
from shortgop.readers.decoders.surface_source import Pictures
from shortgop.readers.frame_format import FrameFormat, Geometry, PixelFormat
from shortgop.readers.gpu.mapped_surfaces import Event, MappedSurfaces
from shortgop.readers.gpu.surface_conversion import convert
from shortgop.readers.reader import ReadOptions, SnapshotReader
from shortgop.storage.disk import DiskStorage

DECODER, CONSUMER, OTHER, ENGINE = "decoder", "consumer", "other", "engine"


@dataclass
class FakeEvent:
    gpu: FakeGpu
    passed: bool = False

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        self.gpu.run_until(self)


@dataclass
class FakeStream:
    """Work that has not run yet, in order: functions, events to mark, and events to wait for."""

    work: deque[tuple[str, Any]] = field(default_factory=deque)

    @property
    def can_go_on(self) -> bool:
        return bool(self.work) and not (self.work[0][0] == "wait" and not self.work[0][1].passed)

    def step(self) -> None:
        kind, what = self.work.popleft()
        if kind == "run":
            what()
        elif kind == "mark":
            what.passed = True


class FakeGpu:
    """See `Gpu`. `runs_ahead` is how likely it is that work runs before more of it is given."""

    def __init__(self, seed: int, runs_ahead: float = 0.3) -> None:
        self._rng = random.Random(seed)  # no secrets
        self._runs_ahead = runs_ahead
        self._lock = threading.RLock()
        self._streams = {name: FakeStream() for name in (DECODER, CONSUMER, OTHER, ENGINE)}
        self._thread = threading.local()
        self.kept: list[tuple[int, str]] = []
        """The memory of tensors that was to be kept for a stream's work."""

    def current_stream(self) -> str:
        return getattr(self._thread, "stream", CONSUMER)

    def decoder_stream(self) -> str:
        return DECODER

    def new_stream(self) -> str:
        name = f"reading {len(self._streams)}"
        self._streams[name] = FakeStream()
        return name

    def used_on(self, tensor: torch.Tensor, stream: str) -> None:
        self.kept.append((tensor.data_ptr(), stream))

    def launching_on(self, stream: str) -> contextlib.AbstractContextManager[None]:
        return self._going_to(stream)

    @contextlib.contextmanager
    def _going_to(self, stream: str) -> Iterator[None]:
        before = self.current_stream()
        self._thread.stream = stream
        try:
            yield
        finally:
            self._thread.stream = before

    def record(self, stream: str) -> FakeEvent:
        event = FakeEvent(self)
        self._add(stream, "mark", event)
        return event

    def wait(self, stream: str, event: FakeEvent) -> None:
        self._add(stream, "wait", event)

    def free_memory(self) -> None:
        """It has none that it keeps."""

    def launch(self, function: Callable[[], None], stream: str | None = None) -> None:
        """Give work to a stream, by default the calling thread's."""
        self._add(stream or self.current_stream(), "run", function)

    def _add(self, stream: str, kind: str, what: Any) -> None:
        with self._lock:
            self._streams[stream].work.append((kind, what))
            while self._rng.random() < self._runs_ahead and self._step():
                pass

    def run_until(self, event: FakeEvent) -> None:
        """The host waits for an event: work runs, in any order, until that has passed."""
        with self._lock:
            while not event.passed:
                assert self._step(), "the host waits for what never happens"

    def finish(self) -> None:
        """Run all work, in an order that no stream and no event forbids."""
        with self._lock:
            while self._step():
                pass
            left = [name for name, stream in self._streams.items() if stream.work]
            assert not left, f"the streams {left} wait for each other"

    def _step(self) -> bool:
        ready = [stream for stream in self._streams.values() if stream.can_go_on]
        if ready:
            self._rng.choice(ready).step()
        return bool(ready)


class WritesTooEarly(FakeGpu):
    """Breaks rule 1: the decoder stream does not wait for those who still read the batch's memory."""

    def wait(self, stream: str, event: FakeEvent) -> None:
        if stream != DECODER:
            super().wait(stream, event)


class ConvertsElsewhere(FakeGpu):
    """Breaks rule 2: conversions run on a stream of their own."""

    def launching_on(self, stream: str) -> contextlib.AbstractContextManager[None]:
        return super().launching_on(OTHER)


class ReadsTooEarly(FakeGpu):
    """Breaks rule 3: the consumer's stream does not wait for the conversions."""

    def wait(self, stream: str, event: FakeEvent) -> None:
        if stream != CONSUMER:
            super().wait(stream, event)


@dataclass(eq=False)
class Cell:
    """Memory for a picture: the value of all its pixels."""

    value: int = 0


@dataclass(eq=False)
class FakeSurface:
    """A picture in a cell, which is free again when the surface is dropped."""

    cell: Cell


class FakeSource:
    """See `SurfaceSource`. Picture k of a GOP has the value of the GOP's only byte, times 16, plus k."""

    def __init__(self, gpu: FakeGpu, num_cells: int) -> None:
        self._gpu = gpu
        self._free = deque(Cell() for _ in range(num_cells))
        self._user: int | None = None

    def decode(self, request: GopRequest, convert: Callable[[Pictures], None]) -> int:
        assert self._user is None, "two threads use one decoder"
        self._user = threading.get_ident()
        pictures: list[Any] = []
        for frame, places in zip(request.frames, request.places, strict=True):
            if request.data == b"\xff":
                raise RuntimeError("damaged")
            cell = self._free.popleft()
            self._gpu.launch(_setting(cell, int(request.data[0]) * 16 + frame), DECODER)
            surface = FakeSurface(cell)
            weakref.finalize(surface, self._free.appendleft, cell)
            pictures.append((surface, places))
        self._user = None
        convert(pictures)
        return len(request.frames)


class MappingSource:
    """See `SurfaceSource`. As FakeSource, from a decoder that lends its surfaces and writes them on an engine of its
    own: pictures are converted in pairs, and the memory of a surface is the decoder's again once it is unmapped."""

    def __init__(self, gpu: FakeGpu, num_surfaces: int, mapped: Callable[..., MappedSurfaces] = MappedSurfaces) -> None:
        self._gpu = gpu
        self._cells = [Cell() for _ in range(num_surfaces)]
        self._free = list(range(num_surfaces))
        self._mapped = mapped(self._free.append, most=num_surfaces)

    def decode(self, request: GopRequest, convert: Callable[[Pictures], None]) -> int:
        pictures: list[Any] = []
        for frame, places in zip(request.frames, request.places, strict=True):
            if request.data == b"\xff":
                raise RuntimeError("damaged")
            self._mapped.make_room()
            # The last one that was unmapped: its memory is the most likely to be in use still.
            number = self._free.pop()
            self._gpu.launch(_setting(self._cells[number], int(request.data[0]) * 16 + frame), ENGINE)
            self._gpu.wait(DECODER, self._gpu.record(ENGINE))
            self._mapped.add(number)
            pictures.append((FakeSurface(self._cells[number]), places))
            if len(pictures) == 2 or frame == request.frames[-1]:
                convert(pictures)
                self._mapped.read_before(self._gpu.record(DECODER))
                pictures = []
        return len(request.frames)


class UnmapsTooEarly(MappedSurfaces):
    """Breaks the rule that a surface is unmapped only after its conversion has read it."""

    def read_before(self, event: Event) -> None:
        super().read_before(_Passed())


class _Passed:
    def synchronize(self) -> None:
        """No host thread waits."""


def _setting(cell: Cell, value: int) -> Callable[[], None]:
    def run() -> None:
        cell.value = value

    return run


def late_convert(gpu: FakeGpu) -> Callable[..., None]:
    """The real conversion, when the calling thread's stream comes to it."""

    def late(*arguments: Any) -> None:
        gpu.launch(lambda: convert(*arguments))

    return late


def fake_convert(gpu: FakeGpu) -> Callable[..., None]:
    """A conversion that fills each slot with its surface's value, on the calling thread's stream."""

    def convert(
        surfaces: Sequence[Any], geometries: Sequence[Geometry], slots: Sequence[torch.Tensor], pixels: PixelFormat
    ) -> None:
        # A kernel has the address of the memory, and keeps nothing alive.
        for cell, slot in [(surface.cell, slot) for surface, slot in zip(surfaces, slots, strict=True)]:
            gpu.launch(_filling(slot, cell))

    return convert


def _filling(slot: torch.Tensor, cell: Cell) -> Callable[[], None]:
    def run() -> None:
        slot.fill_(cell.value)

    return run


class OneStream:
    """The CPU as a device: work has run when it is given. See `Gpu`."""

    def current_stream(self) -> str:
        return DECODER

    def decoder_stream(self) -> str:
        return DECODER

    def launching_on(self, stream: str) -> contextlib.AbstractContextManager[None]:
        assert stream == DECODER
        return contextlib.nullcontext()

    def record(self, stream: str) -> None:
        """No other stream waits."""

    def wait(self, stream: str, event: None) -> None:
        """No other stream waits."""

    def free_memory(self) -> None:
        """It has none that it keeps."""


def device_decoder_on_cpu() -> DeviceDecoder:
    """All of a device's decoder but NVDEC and CUDA: libavcodec decodes, and the surfaces are converted by torch."""
    cpu = torch.device("cpu")
    return DeviceDecoder(cpu, gpu=OneStream, open_source=lambda config: PyavUpload(config, cpu), convert=convert)


def opened_through(decoder: Decoder, folder: Path, threads: int = 1, **options: Any) -> Dataset:
    """As shortgop.open, with this decoder."""
    read = ReadOptions(FrameFormat(**options), threads, pool_bytes=1 << 30)
    root, manifest = open_current(DiskStorage(folder))
    reader = SnapshotReader(DiskStorage(folder), str(root.snapshot), read, manifest, decoder)
    return Dataset(reader, root.profile)
