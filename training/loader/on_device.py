"""Batches of a dataset that is decoded on a GPU: threads of this process read ahead of training, on streams of their
own.

Worker processes would each have a CUDA context, and a GPU runs those in turns.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from ...errors import UsageError
from ...readers.gpu.stream_order import Gpu
from ..datasets.drawn_items import noting_draws
from ..pixels.rows import Rows
from ..sampling.slices import BatchKind, PlannedBatch
from .batch_memory import room_on_device
from .batch_rows import lies_at
from .collating import collated
from .delivery import Delivered
from .loader_stats import LoaderStats
from .messages import ReadsItems
from .nested import is_followed, with_values

# One batch begins while the last GOPs of the one before are decoded, so that no engine waits.
_AT_THE_SAME_TIME = 2
_MOST_AHEAD = 8


class ReadingGpu(Gpu, Protocol):
    """What reading ahead needs of a GPU besides the order of a request."""

    def new_stream(self) -> Any:
        """A stream that runs beside all others."""
        ...

    def used_on(self, tensor: torch.Tensor, stream: Any) -> None:
        """Once nothing shares the tensor, its memory is used again only behind the work that `stream` has then."""
        ...


def gpu_of(device: torch.device) -> ReadingGpu:
    """The GPU of a device. ToolError when there is none."""
    from ...readers.gpu.torch_streams import TorchGpu

    return TorchGpu(device)


def check_options(
    dataset: ReadsItems,
    *,
    workers: int | None,
    threads: int | None,
    device: torch.device | str | None,
    pin_memory: bool,
    collate: object = None,
) -> None:
    """UsageError for options of a loader that make no sense with a dataset that is decoded on a device."""
    if workers:
        raise UsageError(
            f"workers is {workers}, and the dataset is decoded on {dataset.device}: threads of this process read it: "
            "leave workers out"
        )
    if threads is not None:
        raise UsageError(
            f"threads is {threads}, and the dataset is decoded on {dataset.device}, on as many threads as it was "
            f"opened with: give threads={threads} to shortgop.open, or to ClipDataset where that gets a path"
        )
    given = dataset.device if device is None else torch.device(device)
    if given.type != dataset.device.type or given.index not in (None, dataset.device.index):
        raise UsageError(f"device is {str(device)!r}, and the dataset is decoded on {dataset.device}: leave device out")
    if pin_memory:
        raise UsageError(f"pin_memory is for batches on the CPU, and the dataset is decoded on {dataset.device}")
    if collate:
        raise UsageError(
            f"collate is for batches on the CPU, and the dataset is decoded on {dataset.device}: make tensors of one "
            "shape in `items` of a subclass"
        )
    if dataset.has_transform:
        raise UsageError(
            "the dataset has a transform, which would draw from the training loop's random numbers while that runs: "
            f"with a dataset that is decoded on {dataset.device}, call it on the batch in the training loop"
        )


@dataclass(frozen=True)
class DeviceColumns:
    """The entries of items that are tensors on the device, by name: shape and dtype."""

    entries: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
    device: torch.device

    @staticmethod
    def of(item: Mapping[str, Any], device: torch.device) -> DeviceColumns:
        tensors = {name: value for name, value in item.items() if isinstance(value, torch.Tensor)}
        return DeviceColumns(
            {
                name: (tuple(value.shape), value.dtype)
                for name, value in tensors.items()
                if value.device.type == device.type and value.dim() > 1
            },
            device,
        )

    def num_bytes(self, clips: int) -> int:
        return clips * sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.entries.values())

    def empty(self, clips: int) -> dict[str, torch.Tensor]:
        return {
            name: torch.empty((clips, *shape), dtype=dtype, device=self.device)
            for name, (shape, dtype) in self.entries.items()
        }


class DeviceReads:
    """Reads the batches of passes ahead, in order, in at most `prefetch_bytes` of the device's memory."""

    def __init__(self, dataset: ReadsItems, gpu: ReadingGpu, device: torch.device, prefetch_bytes: int | None) -> None:
        self._dataset, self._gpu, self._device, self._prefetch_bytes = dataset, gpu, device, prefetch_bytes
        self._streams = [gpu.new_stream() for _ in range(_AT_THE_SAME_TIME)]
        self._threads = ThreadPoolExecutor(_AT_THE_SAME_TIME, thread_name_prefix="shortgop-loader")
        self._columns: tuple[DeviceColumns, ...] = ()
        self._counts = LoaderStats(on_device=True)
        self._before, self._skipped_before = dataset.stats(), dataset.skipped_here

    def delivered(self, batches: Iterator[PlannedBatch], kinds: Sequence[BatchKind]) -> Generator[Delivered]:
        """The batches of a pass, of these kinds. The consumer's current stream waits for each; the host does not."""
        ahead = self._num_ahead(kinds)
        reading: deque[tuple[PlannedBatch, Future[tuple[dict[str, Any], Any]]]] = deque()
        numbers = itertools.count()
        used: deque[Any] = deque()
        try:
            while True:
                _wait_for_memory(used, len(reading), ahead)
                for batch in itertools.islice(batches, ahead - len(reading)):
                    stream = self._streams[next(numbers) % len(self._streams)]
                    reading.append((batch, self._threads.submit(self._read, batch, stream)))
                if not reading:
                    return
                batch, future = reading.popleft()
                whole, event = future.result()
                self._counts = replace(
                    self._counts, batches=self._counts.batches + 1, clips=self._counts.clips + len(batch.draws)
                )
                yield Delivered(self._for_consumer(whole, event), batch.state, False)
                del whole, future
                used.append(self._gpu.record(self._gpu.current_stream()))
        finally:
            # What runs still writes into memory that is given back here.
            for _, future in reading:
                future.cancel()
            for _, future in reading:
                if not future.cancelled():
                    future.exception()

    def _num_ahead(self, kinds: Sequence[BatchKind]) -> int:
        """How many batches are read before they are asked for. UsageError when not even one fits."""
        if not self._columns:
            self._columns = tuple(DeviceColumns.of(self._dataset.example(kind.example), self._device) for kind in kinds)
        batch_bytes = max(
            columns.num_bytes(kind.batch_size) for columns, kind in zip(self._columns, kinds, strict=True)
        )
        # The training loop has one.
        room = room_on_device(batch_bytes, self._prefetch_bytes)
        fitting = room // max(1, batch_bytes) - 1
        if fitting < 1:
            raise UsageError(
                f"prefetch_bytes is {room}, and a batch on {self._device} has {batch_bytes}: training "
                f"has one while another is read, so give it {2 * batch_bytes} or more"
            )
        return min(fitting, _MOST_AHEAD)

    def _read(self, planned: PlannedBatch, stream: Any) -> tuple[dict[str, Any], Any]:
        """Read a batch on a stream: the batch, and an event behind all that was launched for it."""
        with self._gpu.launching_on(stream), noting_draws(self._dataset, planned.draws):
            tensors = self._columns[planned.kind].empty(len(planned.draws))
            items = self._dataset.items(planned.draws, Rows(tensors, range(len(planned.draws))))
            return _whole(items, tensors), self._gpu.record(stream)

    def _for_consumer(self, batch: dict[str, Any], event: Any) -> dict[str, Any]:
        consumer = self._gpu.current_stream()
        self._gpu.wait(consumer, event)

        def kept(value: Any) -> Any:
            if is_followed(value) and value.device.type == self._device.type:
                self._gpu.used_on(value, consumer)
            return value

        whole: dict[str, Any] = with_values(batch, kept)
        return whole

    def count_step(self, wait_seconds: float, step_seconds: float, *, starts: bool) -> None:
        """As Core.count_step."""
        self._counts = self._counts.with_step(wait_seconds, step_seconds, starts=starts)

    def stats(self) -> LoaderStats:
        read = self._dataset.stats() - self._before
        busy = read.io_seconds + read.decode_seconds + read.conversion_seconds
        return replace(
            self._counts,
            bytes_seconds=read.io_seconds,
            decode_seconds=read.decode_seconds + read.conversion_seconds,
            busy_seconds=busy,
            skipped=self._dataset.skipped_here - self._skipped_before,
        )

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def _wait_for_memory(used: deque[Any], num_reading: int, ahead: int) -> None:
    """Wait until another batch has memory. `used` are events behind the training loop's work with batches that it had:
    their memory is taken until then, however far ahead of the device the host is."""
    while used and used[0].query():
        used.popleft()
    while used and num_reading + len(used) > ahead:
        used.popleft().synchronize()


def _whole(items: list[dict[str, Any]], tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The items as one batch. What was read in place is whole already."""
    batch: dict[str, Any] = {}
    # Of all items: `collated` refuses a name that some lack.
    for name in dict.fromkeys(name for item in items for name in item):
        tensor = tensors.get(name)
        in_place = tensor is not None and all(
            lies_at(item.get(name), tensor[place]) for place, item in enumerate(items)
        )
        batch[name] = tensor if in_place else collated(name, items)
    return batch
