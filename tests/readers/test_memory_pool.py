"""Memory of batches that is used again: never while anything still shares it, and never more than was allowed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch.utils import dlpack

import shortgop
from datasets import make_dataset
from shortgop.readers.memory_pool import MemoryPool
from synthetic import constant_rate_pts, make_video, read_number

MB = 1 << 20
HUGE_PAGE_BYTES = 1 << 21
SHAPE = (3, MB)

# What may still share the memory of a tensor that is gone.
ALIASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "the tensor": lambda tensor: tensor,
    "a frame": lambda tensor: tensor[1],
    "a slice of a slice": lambda tensor: tensor[1:, ::2][:, 5:9],
    "a view of another shape": lambda tensor: tensor.view(-1),
    "a view of another dtype": lambda tensor: tensor.view(torch.int32),
    "a detached tensor": lambda tensor: tensor.detach(),
    "one of several parts": lambda tensor: tensor.unbind()[2],
    "a transposed view": lambda tensor: tensor.T,
    "the storage": lambda tensor: tensor.untyped_storage(),
    "an array": lambda tensor: tensor.numpy(),
    "a slice of an array": lambda tensor: tensor.numpy()[1:][::2],
    "an array of another dtype": lambda tensor: tensor.numpy().view(np.int64),
    "bytes of an array": lambda tensor: tensor.numpy().data[2:],
    "a tensor of an array": lambda tensor: torch.from_numpy(tensor.numpy()[1:]),
    "an array by DLPack": np.from_dlpack,
    "a tensor by DLPack": dlpack.from_dlpack,
    "a DLPack capsule": lambda tensor: tensor.__dlpack__(),
    "a tensor of a capsule": lambda tensor: dlpack.from_dlpack(tensor.__dlpack__()),
    "a shortgop batch": lambda tensor: shortgop.FrameBatch(
        tensor.view(2, 3, 512, 1024), torch.zeros(2), torch.zeros(2)
    )[1],
}


@pytest.mark.first_case_short
@pytest.mark.parametrize("alias", ALIASES.values(), ids=ALIASES)
@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
def test_memory_is_used_again_when_the_last_alias_is_gone(alias: Callable[[Any], Any], *, inference: bool) -> None:
    pool = MemoryPool(64 * MB)
    with torch.inference_mode(mode=inference):
        first, used = pool.empty(SHAPE, torch.uint8)
        assert used is False
        address = first.data_ptr()
        kept = alias(first)
        del first
        gc.collect()
        second, used = pool.empty(SHAPE, torch.uint8)
        assert used is False
        assert second.data_ptr() != address
        del kept
        third, used = pool.empty(SHAPE, torch.uint8)
        assert used is True
        assert third.data_ptr() == address


def test_memory_that_torch_moved_to_other_processes_is_used_again() -> None:
    pool = MemoryPool(64 * MB)
    tensor, _ = pool.empty(SHAPE, torch.uint8)
    tensor.fill_(7)
    tensor.share_memory_()  # type: ignore[no-untyped-call]
    other, used = pool.empty(SHAPE, torch.uint8)
    assert used is True
    other.fill_(8)
    assert (tensor == 7).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32])
def test_what_a_tensor_of_the_pool_looks_like(dtype: torch.dtype) -> None:
    tensor, _ = MemoryPool(64 * MB).empty((2, 3, 800, 600), dtype)
    assert (tensor.shape, tensor.dtype, tensor.device.type) == ((2, 3, 800, 600), dtype, "cpu")
    assert tensor.is_contiguous()
    assert not tensor.requires_grad
    assert tensor.data_ptr() % HUGE_PAGE_BYTES == 0
    assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_whole_huge_pages_are_asked_for() -> None:
    tensor, _ = MemoryPool(64 * MB).empty((5 * MB,), torch.uint8)
    smaps = Path("/proc/self/smaps")
    if not smaps.exists() or "VmFlags" not in smaps.read_text():
        pytest.skip("this kernel does not say how memory is mapped")
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel has no transparent huge pages")
    advised = []
    for line in smaps.read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            start, stop = (int(part, 16) for part in first.split("-"))
        elif first == "VmFlags:" and "hg" in line.split():
            advised.append((start, stop))
    assert (tensor.data_ptr(), tensor.data_ptr() + 4 * MB) in advised


def test_small_tensors_and_a_pool_of_nothing_are_torchs_own() -> None:
    for pool, num_bytes in ((MemoryPool(64 * MB), MB - 1), (MemoryPool(0), 8 * MB), (MemoryPool(64 * MB), 0)):
        for _ in range(2):
            tensor, used = pool.empty((num_bytes,), torch.uint8)
            assert tensor.shape == (num_bytes,)
            assert used is None


def test_the_pool_never_has_more_than_it_may() -> None:
    pool = MemoryPool(10 * MB)
    held = [pool.empty((3 * MB,), torch.uint8)[0] for _ in range(3)]
    # There is room for no fourth one, in use or not.
    more = [pool.empty((3 * MB,), torch.uint8) for _ in range(2)]
    assert [used for _, used in more] == [False, False]
    addresses = {tensor.data_ptr() for tensor in held}
    held.clear()
    more.clear()
    again = [pool.empty((3 * MB,), torch.uint8) for _ in range(4)]
    assert [used for _, used in again] == [True, True, True, False]
    assert {tensor.data_ptr() for tensor, _ in again[:3]} == addresses
    again.clear()
    # Another size takes the place of what is not in use; too large a one is torch's own, and leaves the rest alone.
    assert pool.empty((11 * MB,), torch.uint8)[1] is False
    assert pool.empty((3 * MB,), torch.uint8)[1] is True
    assert pool.empty((10 * MB,), torch.uint8)[1] is False
    assert pool.empty((10 * MB,), torch.uint8)[1] is True
    assert pool.empty((3 * MB,), torch.uint8)[1] is False


def test_a_block_serves_what_is_a_little_smaller() -> None:
    pool = MemoryPool(64 * MB)
    pool.empty((8 * MB,), torch.uint8)
    assert pool.empty((4 * MB,), torch.uint8)[1] is True
    assert pool.empty((2 * MB,), torch.uint8)[1] is False
    # The best fit is taken.
    small = pool.empty((2 * MB,), torch.uint8)[0]
    assert pool.empty((5 * MB,), torch.uint8)[1] is True
    assert small.nbytes == 2 * MB


SHARED: dict[str, Callable[[torch.Tensor], Any]] = {
    "view": lambda tensor: tensor[-1:],
    "array": lambda tensor: tensor.numpy(),
    "slice of an array": lambda tensor: tensor.numpy()[::2, 5:],
    "DLPack": dlpack.from_dlpack,
    "array by DLPack": np.from_dlpack,
    "another dtype and back": lambda tensor: tensor.view(torch.int8).view(torch.uint8),
}


class KeptAliases(RuleBasedStateMachine):
    """Tensors taken, shared in all ways and let go in any order: what is kept holds what was written into it."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = MemoryPool(8 * MB)
        self.kept: list[tuple[int, Any]] = []
        self.written = 0

    @rule(num_bytes=st.sampled_from([MB, MB + 4096, 2 * MB, 3 * MB, 5 * MB]))
    def take(self, num_bytes: int) -> None:
        tensor, _ = self.pool.empty((num_bytes // 4096, 4096), torch.uint8)
        self.written = self.written % 250 + 1
        tensor.numpy()[...] = self.written
        self.kept.append((self.written, tensor))

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), kind=st.sampled_from(sorted(SHARED)))
    def share(self, data: st.DataObject, kind: str) -> None:
        value, held = data.draw(st.sampled_from(self.kept))
        tensor = held if isinstance(held, torch.Tensor) else torch.from_numpy(held)
        self.kept.append((value, SHARED[kind](tensor)))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        self.kept.pop(data.draw(st.integers(0, len(self.kept) - 1)))

    @invariant()
    def what_is_kept_is_as_it_was(self) -> None:
        for value, held in self.kept:
            assert (np.asarray(held) == value).all()


TestKeptAliases = KeptAliases.TestCase
TestKeptAliases.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_threads_never_get_the_same_memory() -> None:
    pool = MemoryPool(16 * MB)

    def use(number: int) -> bool:
        tensor, _ = pool.empty((MB + number % 7 * 4096,), torch.uint8)
        tensor.numpy()[...] = number % 251
        view = tensor[5::4096]
        del tensor
        return bool((view.numpy() == number % 251).all())

    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(use, range(2000)))


def test_a_tensor_that_goes_while_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector may run anywhere, also where the pool is being changed by the same thread."""
    pool = MemoryPool(16 * MB)

    class Node:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor, self.itself = tensor, self

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            Node(pool.empty(SHAPE, torch.uint8)[0])
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert [pool.empty(SHAPE, torch.uint8)[1] for _ in range(3)] == [True] * 3


def in_a_fork(child: Callable[[Any], None]) -> Any:
    """Fork, and give the pipe to the child and the process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    return process, ours


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_and_its_parent_leave_each_others_memory_alone() -> None:
    pool = MemoryPool(64 * MB)
    kept = pool.empty(SHAPE, torch.uint8)[0]
    kept.numpy()[...] = 1
    address = kept.data_ptr()
    free = pool.empty(SHAPE, torch.uint8)[0]
    del free
    inherited: list[torch.Tensor] = [kept]

    def child(pipe: Any) -> None:
        # Neither what was free in the parent nor what the parent gets back is this process's.
        first, used = pool.empty(SHAPE, torch.uint8)
        first.numpy()[...] = 3
        seen: list[Any] = [used]
        pipe.send("ready")
        pipe.recv()
        # By now the parent has used the memory again.
        seen.append(bool((inherited[0].numpy() == 1).all()))
        inherited.clear()
        second, used = pool.empty(SHAPE, torch.uint8)
        seen += [used, second.data_ptr() != first.data_ptr()]
        second.numpy()[...] = 4
        seen.append(bool((first.numpy() == 3).all()))
        del first
        seen.append(pool.empty(SHAPE, torch.uint8)[1])
        pipe.send(seen)

    process, pipe = in_a_fork(child)
    assert pipe.poll(30)
    assert pipe.recv() == "ready"
    inherited.clear()
    del kept
    again = [pool.empty(SHAPE, torch.uint8) for _ in range(2)]
    assert [used for _, used in again] == [True, True]
    assert address in {tensor.data_ptr() for tensor, _ in again}
    for tensor, _ in again:
        tensor.numpy()[...] = 2
    pipe.send("written")
    assert pipe.poll(30)
    assert pipe.recv() == [False, True, False, True, True, True]
    process.join(30)
    assert process.exitcode == 0
    assert all((tensor.numpy() == 2).all() for tensor, _ in again)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_goes_on_while_other_threads_take_memory() -> None:
    """What another thread holds at the moment of the fork is held forever in the child."""
    pool, stop = MemoryPool(64 * MB), threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            pool.empty(SHAPE, torch.uint8)

    def child(pipe: Any) -> None:
        pipe.send([pool.empty(SHAPE, torch.uint8)[1] for _ in range(2)])

    threads = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            process, pipe = in_a_fork(child)
            assert pipe.poll(30)
            assert pipe.recv() == [False, True]
            process.join(30)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_memory_goes_back_to_the_system_with_the_pool() -> None:
    def mapped_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    pool = MemoryPool(256 * MB)
    before = mapped_bytes()
    kept = pool.empty((100 * MB,), torch.uint8)[0]
    pool.empty((100 * MB,), torch.uint8)
    assert mapped_bytes() - before >= 200 * MB
    del pool
    assert 100 * MB <= mapped_bytes() - before < 200 * MB
    del kept
    assert mapped_bytes() - before < 100 * MB


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of 64 numbered frames, of which 50 and more are more than 1 MB."""
    root = tmp_path_factory.mktemp("pool")
    make_video(root / "a.mp4", pts=constant_rate_pts(Fraction(30), 64), timebase=Fraction(1, 30), size=(98, 66))
    make_dataset([root / "a.mp4"], root / "dataset")
    return root / "dataset"


def numbers(pictures: torch.Tensor) -> list[int]:
    return [read_number(picture) for picture in pictures]


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_that_are_kept_stay_as_they_were(folder: Path, threads: int) -> None:
    dataset = shortgop.open(folder, threads=threads)
    kept: list[tuple[list[int], torch.Tensor]] = []
    for start in range(12):
        frames = [*range(start, 64), *range(start)]
        batch = dataset.get_clips([(0, frames)]).data[0]
        kept.append((frames[3:5], batch[3:5]))
        if start % 3 == 2:
            kept.pop(0)
        assert all(numbers(pictures) == expected for expected, pictures in kept)
    stats = dataset.stats()
    assert stats.pool_hits + stats.pool_misses == 12
    assert 1 <= stats.pool_hits <= 4


def test_a_loop_reads_into_the_same_two_pieces_of_memory(folder: Path) -> None:
    dataset = shortgop.open(folder)
    batch = None
    for _ in range(10):
        batch = dataset[0].get_all_frames()
        assert numbers(batch.data) == list(range(64))
    stats = dataset.stats()
    assert (stats.pool_hits, stats.pool_misses) == (8, 2)


def test_outputs_of_the_caller_and_small_ones_count_as_neither(folder: Path) -> None:
    dataset = shortgop.open(folder)
    out = torch.empty((1, 64, 3, 66, 98), dtype=torch.uint8)
    dataset.get_clips([(0, range(64))], out=out)
    dataset[0].get_frame_at(3)
    dataset.get_clips([])
    stats = dataset.stats()
    assert (stats.pool_hits, stats.pool_misses) == (0, 0)


def test_the_pool_can_be_turned_off_or_bounded(folder: Path) -> None:
    for pool_bytes, hits in ((0, 0), (MB, 0), (2 * MB, 2)):
        dataset = shortgop.open(folder, pool_bytes=pool_bytes)
        for _ in range(3):
            assert numbers(dataset[0].get_all_frames().data) == list(range(64))
        assert dataset.stats().pool_hits == hits
    for wrong in (-1, 1.5, "1", None, True):
        with pytest.raises(shortgop.UsageError, match="pool_bytes is"):
            shortgop.open(folder, pool_bytes=wrong)  # type: ignore[arg-type]
