"""Copies of batches to a CUDA device, and the page-locked memory that they come from."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...errors import UsageError
from .arena import Arena
from .delivery import Delivered


def _event() -> Any:
    """An event behind all that was given to the current stream."""
    cuda: Any = torch.cuda
    event = cuda.Event()
    event.record(cuda.current_stream())
    return event


@dataclass(frozen=True)
class DeviceCopies:
    """Copies each batch to `device` while the one before is in use; without a device it hands batches on."""

    device: torch.device | None
    pins: bool

    @staticmethod
    def of(device: torch.device | str | None, *, pin_memory: bool) -> DeviceCopies:
        """UsageError for a device that is not CUDA's, and where there is no CUDA."""
        chosen = None if device is None else torch.device(device)
        if chosen is not None and chosen.type == "cpu":
            chosen = None
        if chosen is not None and chosen.type != "cuda":
            raise UsageError(f'device is {str(chosen)!r}; batches are copied to CUDA devices, such as "cuda"')
        if (chosen is not None or pin_memory) and not torch.cuda.is_available():
            what = f"device is {str(chosen)!r}" if chosen is not None else "pin_memory is for CUDA devices"
            raise UsageError(f"{what}, and this torch finds no CUDA device here")
        if str(chosen) == "cuda":
            # For all of the loader's life, whatever device is current later.
            chosen = torch.device("cuda", torch.cuda.current_device())
        return DeviceCopies(chosen, pin_memory or chosen is not None)

    def pin(self, arena: Arena) -> None:
        """Lock the pages of an arena for as long as anything shares them."""
        if not self.pins or not arena.bytes.size:
            return
        cuda: Any = torch.cuda
        cudart = cuda.cudart()
        address = arena.bytes.ctypes.data
        # Elsewhere each rank would begin to use the first GPU as well.
        with torch.cuda.device(self.device):
            failure = cudart.cudaHostRegister(address, arena.bytes.size, 0)
        if int(failure):
            raise UsageError(
                f"CUDA cannot lock {arena.bytes.size / 1e6:.0f} MB of memory (error {int(failure)}): give the loader "
                "less prefetch_bytes, or leave pin_memory and device out"
            )
        weakref.finalize(arena.bytes, cudart.cudaHostUnregister, address).atexit = False
        if self.device is None:
            # The consumer's own copies may not have ended when it drops a batch, and torch looks after memory only that
            # it locked itself.
            arena.fence = _event

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
            batch = {
                name: value.to(self.device, non_blocking=True) if isinstance(value, torch.Tensor) else value
                for name, value in host.batch.items()
            }
            event.record(stream)
        return replace(host, batch=batch), event

    def _for_current_stream(self, copied: Delivered, event: Any) -> Delivered:
        """The stream that the consumer uses waits for the copy, and its memory stays until that stream has used it."""
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for value in copied.batch.values():
            if isinstance(value, torch.Tensor):
                value.record_stream(current)
        return copied
