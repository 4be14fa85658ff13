"""What becomes of a ClipLoader whose training loop is interrupted, as Ctrl-C does it, wherever it stands."""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
import pytest
import torch

import shortgop
import shortgop.training.loader
from left_open import open_files
from loader_helpers import Shown, all_shown, loader_of, own_workers
from shortgop.loans import Loans
from shortgop.readers.memory_pool import MemoryPool
from sweep import SWEEP

pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("no_other_loaders"),
    # Passes are compared with each other, so all are over one epoch.
    pytest.mark.filterwarnings("ignore:epoch 0 begins for the third time"),
]

LOADER = str(Path(shortgop.training.loader.__file__).parent)


class InterruptsAt:
    """Raises KeyboardInterrupt at the line number `line` that this process runs of the loader, as a handler may; with
    `within`, only lines of the functions with this name count."""

    def __init__(self, line: int | None = None, *, within: str = "") -> None:
        self.line, self.lines, self.within = line, 0, within

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(LOADER):
            return None
        if event == "line" and frame.f_code.co_qualname.endswith(self.within):
            self.lines += 1
            if self.lines == self.line:
                raise KeyboardInterrupt
        return self._trace


def run_through(loader: shortgop.ClipLoader) -> None:
    """Take all batches, and keep none."""
    deque(loader, maxlen=0)


def lines_of_a_pass(loader: shortgop.ClipLoader, within: str = "") -> int:
    with InterruptsAt(within=within) as counts:
        run_through(loader)
    return counts.lines


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_may_be_interrupted_at_any_line(
    clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown], workers: int
) -> None:
    loader = loader_of(clips_dataset, workers)
    assert all_shown(loader) == clips_shown
    lines = lines_of_a_pass(loader)
    assert lines > 500
    # Each pass has a number of lines of its own: which answers come together differs.
    for line in np.linspace(1, 0.9 * lines, num=200 if SWEEP else 20 if workers == 0 else 10, dtype=int).tolist():
        with pytest.raises(KeyboardInterrupt), InterruptsAt(line):
            run_through(loader)
        assert all_shown(loader) == clips_shown, line
    assert len(own_workers()) == workers


def test_batches_that_were_interrupted_on_their_way_do_not_take_up_the_loaders_memory(
    clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]
) -> None:
    loader = loader_of(clips_dataset, 0)
    where = "Delivery.ready"
    # More often than the loader has room for batches.
    for line in range(1, lines_of_a_pass(loader, where)):
        with pytest.raises(KeyboardInterrupt), InterruptsAt(line, within=where):
            run_through(loader)
    assert all_shown(loader) == clips_shown


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are looked up in /proc")
def test_interrupted_passes_leave_nothing_open(clips_dataset: shortgop.ClipDataset) -> None:
    loader = loader_of(clips_dataset)
    lines = lines_of_a_pass(loader)
    loader.close()
    before, threads = open_files(), set(threading.enumerate())
    for line in range(1, lines // 2, lines // 8 + 1):
        with pytest.raises(KeyboardInterrupt), InterruptsAt(line):
            run_through(loader)
    loader.close()
    assert not own_workers()
    # Frames of the interruptions, which refer to each other, hold memory.
    gc.collect()
    # What earlier tests left behind may end meanwhile.
    assert set(threading.enumerate()) <= threads
    assert len(open_files()) <= len(before), (open_files(), before)


# Memory returns at any moment, and Python drops what a handler raises within a finalizer


class Calls:
    """Notes the functions of Python that run meanwhile. Handlers of signals run between those."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is not Calls.__exit__.__code__:
            self.names.append(frame.f_code.co_qualname)


def test_no_python_runs_where_a_batch_of_a_loader_returns(clips_dataset: shortgop.ClipDataset) -> None:
    batch = next(iter(loader_of(clips_dataset, 1)))
    frames, others = batch.pop("frames"), [batch]
    with Calls() as calls:
        del frames
    assert not calls.names
    assert others


def test_no_python_runs_where_memory_of_the_pool_returns() -> None:
    pool = MemoryPool(1 << 24)
    tensor, _ = pool.empty((1 << 20,), torch.uint8)
    with Calls() as calls:
        del tensor
    assert not calls.names
    again, used = pool.empty((1 << 20,), torch.uint8)
    assert used
    assert again.shape == (1 << 20,)


def test_loans_come_back_in_the_order_in_which_their_arrays_went() -> None:
    loans: Loans[str] = Loans()
    first, second, third = np.zeros(4), np.zeros(4), np.zeros(4)
    loans.lend(first, "first")
    loans.lend(second, "second")
    loans.lend(third, "third")
    assert loans.take_back() == []
    part = third[1:]
    del third, first
    assert loans.take_back() == ["first"]
    del part, second
    assert loans.take_back() == ["third", "second"]
    assert loans.take_back() == []
