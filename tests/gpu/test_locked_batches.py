"""Page-locked memory of batches, which a training loop copies from without waiting: it is used again, or unlocked, only
when the copies to all GPUs have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from shortgop.errors import ToolError
from shortgop.training.loader import to_device
from shortgop.training.loader.arena import Arena
from shortgop.training.loader.batch_rows import Areas, rows_for
from shortgop.training.loader.to_device import DeviceCopies

GPUS = (0, 1)


class TwoGpus:
    """A torch.cuda of a process that uses two GPUs, and whose current one is the first. Work on a GPU ends when a test
    says so, or when the host waits for it."""

    def __init__(self) -> None:
        self.in_use, self.current = list(GPUS), 0
        self.busy: set[int] = set()
        self.locked: set[int] = set()
        self.calls: list[str] = []

    def current_stream(self, device: int = 0) -> int:
        return device

    @contextlib.contextmanager
    def device(self, device: int) -> Iterator[None]:
        before, self.current = self.current, device
        yield
        self.current = before

    def synchronize(self, device: int) -> None:
        self.calls.append(f"synchronize {device}")
        self.busy.discard(device)

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int) -> int:  # noqa: N802  # CUDA's name
        assert self.current in self.in_use, "another GPU gets a context"
        self.locked.add(address)
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        assert self.current in self.in_use, "another GPU gets a context"
        self.calls.append("unlock")
        self.locked.remove(address)
        return 0

    def event(self) -> Any:
        return _Event(self)


class _Event:
    def __init__(self, gpus: TwoGpus) -> None:
        self._gpus, self._device = gpus, -1

    def record(self, stream: int) -> None:
        self._device = stream

    def query(self) -> bool:
        return self._device not in self._gpus.busy

    def synchronize(self) -> None:
        self._gpus.busy.discard(self._device)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> TwoGpus:
    gpus = TwoGpus()
    monkeypatch.setattr(to_device, "started_driver", lambda: "the driver")
    monkeypatch.setattr(to_device, "devices_in_use", lambda driver: gpus.in_use)
    for name, value in {
        "Event": gpus.event,
        "current_stream": gpus.current_stream,
        "synchronize": gpus.synchronize,
        "cudart": lambda: gpus,
        "current_device": lambda: gpus.current,
        "device": gpus.device,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return gpus


def locked_arena() -> Arena:
    """Memory for two batches, of which each is one item."""
    arena = Arena(Areas.of([rows_for({"frames": torch.zeros(3, 200, 200)}, 1)], 2))
    DeviceCopies(None, pins=True).pin(arena)
    return arena


@pytest.mark.parametrize("device", GPUS)
def test_a_dropped_batch_is_filled_again_only_when_it_was_copied_to_whichever_gpu(gpus: TwoGpus, device: int) -> None:
    """`frames.to("cuda:1", non_blocking=True)` runs on a stream of that GPU, whichever is the current one."""
    arena = locked_arena()
    batches = [arena.lease(arena.take(), 1) for _ in range(2)]
    gpus.busy = {device}
    batches.pop()
    assert arena.num_leased == 1
    assert gpus.busy == {device}, "the host waited"
    assert arena.has_free(1)
    assert not gpus.busy, "the batch is filled while it is copied"
    arena.close()


def test_a_dropped_batch_is_filled_again_without_waiting_once_it_was_copied(gpus: TwoGpus) -> None:
    arena = locked_arena()
    arena.lease(arena.take(), 1).clear()
    gpus.busy = {1}
    assert arena.num_leased == 0
    gpus.busy.clear()
    assert arena.has_free(2)
    arena.close()


def test_memory_is_unlocked_only_when_copies_to_all_gpus_have_ended(gpus: TwoGpus) -> None:
    """A loop may drop its loader and the last batch while the GPU is behind."""
    arena = locked_arena()
    batch = arena.lease(arena.take(), 1)
    arena.close()
    del arena
    assert len(gpus.locked) == 1
    gpus.busy = {1}
    del batch
    assert gpus.locked == set()
    assert gpus.calls == ["synchronize 0", "synchronize 1", "unlock"]


def test_where_libcuda_is_not_found_memory_is_locked_for_the_current_gpu(
    gpus: TwoGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has CUDA there, so an error would be in the way of what works."""

    def started() -> None:
        raise ToolError("libcuda.so.1 cannot be loaded")

    monkeypatch.setattr(to_device, "started_driver", started)
    arena = locked_arena()
    arena.lease(arena.take(), 1).clear()
    assert arena.num_leased == 0
    arena.close()
    del arena
    assert gpus.locked == set()
    assert gpus.calls == ["synchronize 0", "unlock"]


def test_a_gpu_that_the_process_does_not_use_gets_no_context(gpus: TwoGpus) -> None:
    """As in each rank of a machine that never sets its device: all would take memory of the first GPU."""
    gpus.in_use = [1]
    arena = locked_arena()
    arena.close()
    del arena
    assert gpus.locked == set()
    assert gpus.calls == ["synchronize 1", "unlock"]
