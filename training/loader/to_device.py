"""Copies of batches to a CUDA device, and the page-locked memory that they come from."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from ...errors import ToolError, UsageError
from ...readers.decoders.choose import cuda_device, device_of
from ...readers.gpu.cuda_driver import devices_in_use, started_driver
from .arena import Arena
from .delivery import Delivered
from .nested import is_followed, with_values


@dataclass(frozen=True)
class _Events:
    """A fence behind work of several GPUs."""

    events: Sequence[Any]

    def query(self) -> bool:
        return all(event.query() for event in self.events)

    def synchronize(self) -> None:
        for event in self.events:
            event.synchronize()


def _devices_in_use() -> list[int]:
    """The GPUs that may have work of this process: the current one alone where torch finds libcuda, and we do not."""
    try:
        return devices_in_use(started_driver())
    except ToolError:
        return [torch.cuda.current_device()]


def _fence() -> _Events:
    """Behind all that was given to the current stream of each GPU: a copy runs on the stream of the GPU that it goes
    to, which need not be the current one."""
    cuda: Any = torch.cuda
    events = []
    for device in _devices_in_use():
        events.append(cuda.Event())
        events[-1].record(torch.cuda.current_stream(device))
    return _Events(events)


def _used_device() -> int:
    """A GPU that the process uses already, if it uses any. Pages are locked for all GPUs, and the first call to another
    one would take its memory for a context: in each rank of a machine the first GPU's."""
    current, in_use = torch.cuda.current_device(), _devices_in_use()
    return current if current in in_use or not in_use else in_use[0]


def _unlock(cudart: Any, locked_on: int, address: int) -> None:
    """Have the pages of an arena unlocked, before they are unmapped. CUDA does not say that it waits for copies from
    them."""
    with contextlib.suppress(RuntimeError):
        for device in _devices_in_use():
            torch.cuda.synchronize(device)
        with torch.cuda.device(locked_on):
            cudart.cudaHostUnregister(address)


def _forget_error() -> None:
    """Have CUDA forget that its last call failed: torch asks for such an error behind each kernel
    (C10_CUDA_KERNEL_LAUNCH_CHECK in its c10/cuda/CUDAException.h), and would raise it for a kernel of the caller's."""
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device="cuda")


@dataclass(frozen=True)
class DeviceCopies:
    """Copies each batch to `device` while the one before is in use; without a device it hands batches on."""

    device: torch.device | None
    pins: bool

    @staticmethod
    def of(device: torch.device | str | None, *, pin_memory: bool) -> DeviceCopies:
        """Errors are those of `device_of`, also for `pin_memory` where there is no CUDA device."""
        # For all of the loader's life, whatever device is current later.
        chosen = device_of(device)
        if pin_memory and chosen.type == "cpu":
            cuda_device(torch.device("cuda", 0), "pin_memory is for CUDA devices")
        return DeviceCopies(chosen if chosen.type == "cuda" else None, pin_memory or chosen.type == "cuda")

    def pin(self, arena: Arena) -> None:
        """Lock the pages of an arena for as long as anything shares them."""
        if not self.pins or not arena.bytes.size:
            return
        cuda: Any = torch.cuda
        cudart, address = cuda.cudart(), arena.bytes.ctypes.data
        device = _used_device() if self.device is None else self.device.index
        with torch.cuda.device(device):
            failure = cudart.cudaHostRegister(address, arena.bytes.size, 0)
            if int(failure):
                _forget_error()
        if int(failure):
            raise UsageError(
                f"CUDA cannot lock {arena.bytes.size / 1e6:.0f} MB of memory (error {int(failure)}): give the loader "
                "less prefetch_bytes, or leave pin_memory and device out"
            )
        # The consumer's own copies may not have ended when it drops a batch, or the last one of a loader. torch looks
        # after memory only that it locked itself.
        weakref.finalize(arena.bytes, _unlock, cudart, device, address).atexit = False
        if self.device is None:
            arena.fence = _fence

    def ahead(self, batches: Iterator[Delivered]) -> Iterator[Delivered]:
        """The same batches, on the device, each copied while the consumer has the one before."""
        if self.device is None:
            yield from batches
            return
        cuda: Any = torch.cuda
        stream = cuda.Stream(self.device)
        # What is copied must not be filled anew before that has ended.
        copying: deque[tuple[Any, Delivered]] = deque()
        before: tuple[Delivered, Any] | None = None
        failure: BaseException | None = None
        try:
            while failure is None:
                following = None
                try:
                    host = next(batches, None)
                except Exception as error:  # noqa: BLE001  # it is raised in its turn, after the batch before
                    failure, host = error, None
                if host is not None:
                    following = self._copied(host, stream)
                    copying.append((following[1], host))
                    del host
                if before is not None:
                    yield self._for_current_stream(*before)
                while copying and copying[0][0].query():
                    copying.popleft()
                before = following
                if before is None:
                    break
            if failure is not None:
                raise failure
        finally:
            # After the pass their memory is used again.
            for event, _ in copying:
                event.synchronize()

    def _copied(self, host: Delivered, stream: Any) -> tuple[Delivered, Any]:
        cuda: Any = torch.cuda
        event = cuda.Event()
        with torch.cuda.stream(stream):
            batch = {name: with_values(entry, self._on_device) for name, entry in host.batch.items()}
            event.record(stream)
        return replace(host, batch=batch), event

    def _on_device(self, value: Any) -> Any:
        if isinstance(value, PackedSequence):
            packed: Any = value if value.is_cuda else value.pin_memory()
            return packed.to(self.device, non_blocking=True)
        if not is_followed(value):
            return value
        if value.device.type == "cpu" and value.layout == torch.strided and not value.is_pinned():
            # Small columns lie in other memory, from which the host would wait until those in front are copied. A copy
            # by `pin_memory` has the strides of the tensor: it fails for an expanded one, and of one with gaps the
            # host would wait for the next copy.
            value = torch.empty_like(value, pin_memory=True).copy_(value)
        return value.to(self.device, non_blocking=True)

    def _for_current_stream(self, copied: Delivered, event: Any) -> Delivered:
        """The stream that the consumer uses waits for the copy, and its memory stays until that stream has used it."""
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)

        def kept(value: Any) -> Any:
            for tensor in value if isinstance(value, PackedSequence) else (value,):
                if is_followed(tensor) and tensor.is_cuda:
                    tensor.record_stream(current)
            return value

        return replace(copied, batch=with_values(copied.batch, kept))
