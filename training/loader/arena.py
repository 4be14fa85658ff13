"""Memory that worker processes fill and the consumer's tensors share: a file without a name, and slots for batches.

A slot is free, being filled, or leased: in a batch that was delivered. It returns to the free ones when no tensor,
array or DLPack capsule shares it any more.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Protocol

import numpy as np
import torch

from ...errors import UsageError
from ...loans import Loans
from ...unnamed_files import unnamed_file
from .batch_rows import Areas

# The columns of an area for batches of a kind: by names of items' entries, (rows, ...).
Tensors = Callable[[int, int], Mapping[str, torch.Tensor]]


# The bytes of the files that were not closed.
_HELD: dict[int, int] = {}


def bytes_held() -> int:
    """How much memory the loaders of this process that were not closed hold for batches."""
    # A list, since another thread may begin with a loader meanwhile.
    return sum(list(_HELD.values()))


class Fence(Protocol):
    """Passed once all that a GPU was told to do before has ended. A CUDA event is one."""

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...


class Arena:
    """Slots for batches, in memory that has no name and ends with its last user."""

    def __init__(self, areas: Areas) -> None:
        """UsageError when the system does not have the memory."""
        self.areas, self.num_slots = areas, areas.num_slots
        size = max(1, areas.num_bytes)
        self.file = _file_of(size)
        _HELD[self.file] = size
        self._close_file = weakref.finalize(self, _close, self.file)
        self._memory = _mapped(self.file, size)
        _prefer_huge_pages(self._memory)
        # All tensors share this array: a finalizer of it runs when the last of them is gone.
        self.bytes = np.frombuffer(self._memory, dtype=np.uint8)
        self.tensors: Tensors = cache(partial(areas.tensors, self.bytes))
        self._free = list(range(self.num_slots))
        self.fence: Callable[[], Fence] | None = None
        """Makes a fence where a slot is returned: the slot is free only when that has been passed."""
        self._fenced: deque[tuple[Fence, int]] = deque()
        self._loans: Loans[int] = Loans()
        self._lent_columns: dict[int, int] = {}
        """By leased slot, how many of its columns the consumer's tensors share."""

    def close(self) -> None:
        """Close the file. Memory that tensors share stays until they are gone."""
        self._close_file()
        self.file = -1

    @property
    def num_leased(self) -> int:
        """How many slots the consumer's tensors share."""
        self._collect_returned()
        return len(self._lent_columns)

    def has_free(self, count: int) -> bool:
        """Whether so many slots are free. Waits for copies from returned ones where only these are missing."""
        self._collect_returned()
        while len(self._free) < count and self._fenced:
            self._fenced[0][0].synchronize()
            self._collect_returned()
        return len(self._free) >= count

    def _collect_returned(self) -> None:
        for slot in self._loans.take_back():
            self._lent_columns[slot] -= 1
            if self._lent_columns[slot]:
                continue
            del self._lent_columns[slot]
            if self.fence is None:
                self._free.append(slot)
            else:
                self._fenced.append((self.fence(), slot))
        while self._fenced and self._fenced[0][0].query():
            self._free.append(self._fenced.popleft()[1])

    def take(self) -> int:
        """A free slot, to be filled; there has to be one. The last returned comes first: caches may still have it."""
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        """A slot that was taken and is not to be leased."""
        self._free.append(slot)

    def copied(self, slot: int, size: int, kind: int = 0) -> dict[str, torch.Tensor]:
        """The batch of a slot, of `size` clips and of this kind, as copies. The slot is free then."""
        area, first = self.areas.place(slot)
        tensors = self.tensors(area, kind)
        batch = {name: tensor[first : first + size].clone() for name, tensor in tensors.items()}
        self.give_back(slot)
        return batch

    def lease(self, slot: int, size: int, kind: int = 0) -> dict[str, torch.Tensor]:
        """The batch of a slot: its large columns as they lie there, copies of the small ones."""
        rows, batch_size = self.areas.kinds[kind], self.areas.batch_sizes[kind]
        area, first = self.areas.place(slot)
        leased = {column.name: column for column in rows.leased(batch_size)}
        tensors = self.tensors(area, kind)
        batch = {name: tensor[first : first + size].clone() for name, tensor in tensors.items() if name not in leased}
        if not leased:
            self.give_back(slot)
            return batch
        self._lent_columns[slot] = len(leased)
        for name, column in leased.items():
            first_byte = area * self.areas.area_bytes + column.offset + first * column.row_bytes
            array = self.bytes[first_byte : first_byte + batch_size * column.row_bytes]
            # The storage holds the array. The tensor may go while views of it exist.
            self._loans.lend(array, slot)
            batch[name] = torch.from_numpy(array).view(column.dtype).view(batch_size, *column.shape)[:size]
        return {name: batch[name] for name in tensors}


class MappedArena:
    """An arena of another process."""

    def __init__(self, file: int, areas: Areas) -> None:
        """Closes the file: the mapping holds the memory."""
        try:
            self._memory = mmap.mmap(file, max(1, areas.num_bytes))
        finally:
            os.close(file)
        _prefer_huge_pages(self._memory)
        self.areas = areas
        self.tensors: Tensors = cache(partial(areas.tensors, self._memory))


def _close(file: int) -> None:
    # Once it is closed, another file may have its number.
    del _HELD[file]
    os.close(file)


def _mapped(file: int, num_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(file, num_bytes)
    except OSError as error:
        raise _too_little(num_bytes, error) from error


def _file_of(num_bytes: int) -> int:
    try:
        return unnamed_file(num_bytes)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise UsageError(
                "the process has as many open files as it may, so the loader gets no memory for batches: raise the "
                "limit (`ulimit -n`)"
            ) from error
        raise _too_little(num_bytes, error) from error


def _too_little(num_bytes: int, error: OSError) -> UsageError:
    return UsageError(
        f"the system has no {num_bytes / 1e6:.0f} MB of memory for batches ({error.strerror}): give the loader less "
        "prefetch_bytes, or take smaller batches"
    )


def _prefer_huge_pages(memory: mmap.mmap) -> None:
    # Many kernels have none for shared memory and refuse.
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
