"""A bounded pool of memory for batches. Memory returns to it when nothing shares it any more.

The system clears and maps new memory page by page when it is first written. Memory that held an earlier batch is mapped
already.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import threading

import numpy as np
import torch

from ..arguments import integer
from ..errors import UsageError
from ..loans import Loans
from ..manifests.ragged import Array

# Pages of x86-64, and of most aarch64. The system maps a huge page about as fast as a few small ones.
_PAGE_BYTES, _HUGE_PAGE_BYTES = 1 << 12, 1 << 21
# Smaller tensors come from malloc, which keeps such memory mapped and takes less time.
_MIN_BYTES = 1 << 20
# A tensor takes a free block of at most this many times the size that it needs.
_MAX_WASTE = 2


class _Block:
    """Memory that begins at a huge page. The system gets it back when nothing refers to the block any more."""

    def __init__(self, num_bytes: int) -> None:
        """OSError when the system has no memory left."""
        self.num_bytes = num_bytes
        # Private, so that a forked process keeps the content when its parent writes there again.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, num_bytes + _HUGE_PAGE_BYTES, flags=flags)
        self._start = -np.frombuffer(self._memory, dtype=np.uint8).ctypes.data % _HUGE_PAGE_BYTES
        whole_pages = num_bytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        # Only whole huge pages: the last one would take more memory than is used. Some kernels have none and refuse,
        # and macOS does not know them.
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):
                self._memory.madvise(mmap.MADV_HUGEPAGE, self._start, whole_pages)

    def array(self, num_bytes: int) -> Array:
        """A new array over the first bytes: uint8, (num_bytes,)."""
        return np.frombuffer(self._memory, dtype=np.uint8, count=num_bytes, offset=self._start)


class _Blocks:
    """The blocks of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loans: Loans[_Block] = Loans()
        self._lock = threading.Lock()
        self._free: list[_Block] = []
        self._num_bytes = 0

    def take(self, num_bytes: int, max_bytes: int) -> tuple[_Block | None, bool]:
        """A block of at least `num_bytes`, and whether it was used before.

        None when all blocks together, free or in use, would exceed `max_bytes`.
        """
        size = -(-num_bytes // _PAGE_BYTES) * _PAGE_BYTES
        with self._lock:
            self._free += self.loans.take_back()
            fitting = [block for block in self._free if size <= block.num_bytes <= _MAX_WASTE * size]
            if fitting:
                # Of equal ones the last returned: the processor's caches may still have it.
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


class MemoryPool:
    """Makes tensors, and uses their memory again once no tensor, view, array or DLPack capsule shares it.

    Any number of threads may use it. A forked process starts without blocks and never uses its parent's.
    """

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` bounds the memory of the pool, free or in use; 0 turns it off. UsageError for less."""
        self.max_bytes = integer(max_bytes, "pool_bytes")
        if self.max_bytes < 0:
            raise UsageError(f"pool_bytes is {max_bytes!r}; it is how much memory the pool may have, 0 or more")
        self._blocks = _Blocks()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, bool | None]:
        """A contiguous tensor on the CPU with undefined content, and whether its memory was used before.

        torch allocates the tensor when it has less than 1 MB or the pool is off, with None as the second value, and
        when the pool has no room, with False.
        """
        num_bytes = math.prod(shape) * dtype.itemsize
        pooled = self.max_bytes > 0 and num_bytes >= _MIN_BYTES
        if pooled:
            blocks = self._blocks_of_this_process()
            block, used = blocks.take(num_bytes, self.max_bytes)
            if block is not None:
                array = block.array(num_bytes)
                # The storage holds the array. The tensor may go while views of it exist.
                blocks.loans.lend(array, block)
                return torch.from_numpy(array).view(dtype).view(shape), used
        return torch.empty(shape, dtype=dtype, device="cpu"), False if pooled else None

    def _blocks_of_this_process(self) -> _Blocks:
        blocks = self._blocks
        if blocks.process != os.getpid():
            # This drops the parent's free blocks. Inherited tensors then have no place to return their memory to.
            blocks = self._blocks = _Blocks()
        return blocks
