"""Memory for batches, used again: a bounded pool, to which memory returns with the last tensor that shares it.

The system clears and maps new memory page by page when it is first written. Memory that held a batch before is mapped
already.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import threading
import weakref
from collections import deque

import numpy as np
import torch

from ..arguments import integer
from ..errors import UsageError
from ..manifests.ragged import Array

# The pages of x86-64: the system maps a huge one as fast as a few small ones.
_PAGE_BYTES, _HUGE_PAGE_BYTES = 1 << 12, 1 << 21
# malloc keeps smaller pieces mapped, and hands them out faster.
_MIN_BYTES = 1 << 20
# A tensor takes a block that is at most so many times as large as a new one would be.
_MAX_WASTE = 2


class _Block:
    """Memory that begins at a huge page; the system gets it back when nothing refers to the block any more."""

    def __init__(self, num_bytes: int) -> None:
        """OSError when the system has none."""
        self.num_bytes = num_bytes
        # Private: a forked process keeps what it sees in it, whatever the parent writes there later.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, num_bytes + _HUGE_PAGE_BYTES, flags=flags)
        self._start = -np.frombuffer(self._memory, dtype=np.uint8).ctypes.data % _HUGE_PAGE_BYTES
        whole_pages = num_bytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        # A kernel without huge pages refuses; small ones do as well. A last one in part would hold more than is used.
        with contextlib.suppress(OSError):
            self._memory.madvise(mmap.MADV_HUGEPAGE, self._start, whole_pages)

    def array(self, num_bytes: int) -> Array:
        """A new array over the first bytes: uint8, (num_bytes,)."""
        return np.frombuffer(self._memory, dtype=np.uint8, count=num_bytes, offset=self._start)


class _Blocks:
    """The blocks of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.returned: deque[_Block] = deque()
        """Blocks that no tensor shares any more. The last tensor may go in any thread and at any moment, even while
        that thread holds the lock: so they are appended, which takes no lock, and sorted in by the next `take`."""
        self._lock = threading.Lock()
        self._free: list[_Block] = []
        self._num_bytes = 0

    def take(self, num_bytes: int, max_bytes: int) -> tuple[_Block | None, bool]:
        """A block of at least so many bytes, and whether it was used before.

        None where all blocks together, those in use included, would come to more than `max_bytes`.
        """
        size = -(-num_bytes // _PAGE_BYTES) * _PAGE_BYTES
        with self._lock:
            while self.returned:
                self._free.append(self.returned.popleft())
            fitting = [block for block in self._free if size <= block.num_bytes <= _MAX_WASTE * size]
            if fitting:
                # The caches may still hold the one that was returned last.
                block = min(reversed(fitting), key=lambda block: block.num_bytes)
                self._free.remove(block)
                return block, True
            excess = self._num_bytes + size - max_bytes
            if excess > sum(block.num_bytes for block in self._free):
                return None, False
            while excess > 0:
                removed = self._free.pop(0).num_bytes
                self._num_bytes -= removed
                excess -= removed
            try:
                block = _Block(size)
            except OSError:
                return None, False
            self._num_bytes += size
            return block, False


def _return(block: _Block, blocks: weakref.ref[_Blocks]) -> None:
    """To where it was taken from, if that is still there."""
    owner = blocks()
    if owner is not None:
        owner.returned.append(block)


class MemoryPool:
    """Makes tensors whose memory is used again once nothing shares it: no tensor, no view, no array, no DLPack capsule.

    May be used by any number of threads. A forked process has a pool of its own, and leaves its parent's blocks alone.
    """

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` bounds all memory of the pool, in use or not; 0 is no pool. UsageError for less."""
        self.max_bytes = integer(max_bytes, "pool_bytes")
        if self.max_bytes < 0:
            raise UsageError(f"pool_bytes is {max_bytes!r}; it is how much memory the pool may have, 0 or more")
        self._blocks = _Blocks()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, bool | None]:
        """A contiguous tensor on the CPU, whose content is arbitrary, and whether its memory was used before.

        None for memory that never comes from the pool: a tensor of less than 1 MB, or a pool of 0 bytes. Where the
        pool has no room, the memory is torch's own as well.
        """
        num_bytes = math.prod(shape) * dtype.itemsize
        pooled = self.max_bytes > 0 and num_bytes >= _MIN_BYTES
        if pooled:
            blocks = self._blocks_of_this_process()
            block, used = blocks.take(num_bytes, self.max_bytes)
            if block is not None:
                array = block.array(num_bytes)
                # The storage holds the array as long as any tensor shares it. A tensor may go before its views do.
                weakref.finalize(array, _return, block, weakref.ref(blocks)).atexit = False
                return torch.from_numpy(array).view(dtype).view(shape), used
        return torch.empty(shape, dtype=dtype, device="cpu"), False if pooled else None

    def _blocks_of_this_process(self) -> _Blocks:
        blocks = self._blocks
        if blocks.process != os.getpid():
            # With the old object goes all that was free in the parent, and where inherited tensors would return to.
            blocks = self._blocks = _Blocks()
        return blocks
