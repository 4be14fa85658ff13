"""Arrays that are filled piece by piece, in memory or in a file: what a column is decoded into, or put together in."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from ..ragged import Array


class NewRows(Protocol):
    """An array that is being made. Its rows come in pieces, in any order, and from several threads."""

    def put(self, start: int, rows: Array) -> None:
        """Store these rows, the first as row `start`. OSError where there is no room."""

    def made(self) -> Array:
        """The array, when all of its rows have been put. It is read-only, since all readers of an open dataset share
        its tables."""


# Each has a block in memory.
_MAX_THREADS = 8
# Makes the array that rows are put into: the path of a Zarr array, its number of rows and its dtype.
NewArray = Callable[[str, int, str], NewRows]


def in_threads(fill: Callable[..., None], blocks: Sequence[tuple[int, ...]]) -> None:
    """Call `fill` with the numbers of each block, such as its start and its stop, on as many threads as there are
    processors: copying, decoding and writing release the GIL. An error ends it, and so does one that is raised in this
    thread meanwhile, such as KeyboardInterrupt. Of errors of several threads one is raised."""
    # Most arrays have one block, and then there is no need to count processors.
    num_threads = 1 if len(blocks) < 2 else min(len(blocks), os.cpu_count() or 1, _MAX_THREADS)
    if num_threads == 1:
        for block in blocks:
            fill(*block)
        return
    left = deque(blocks)

    def fill_some() -> None:
        # Each thread takes one block after the other: a future for each takes a second of a billion frames.
        while left:
            try:
                block = left.popleft()
            except IndexError:
                # Another thread took the last one.
                return
            try:
                fill(*block)
            except BaseException:
                left.clear()
                raise

    with ThreadPoolExecutor(num_threads) as threads:
        try:
            for done in [threads.submit(fill_some) for _ in range(num_threads)]:
                done.result()
        finally:
            left.clear()


class _InMemory:
    def __init__(self, rows: int, dtype: str) -> None:
        self._array: Array = np.empty(rows, dtype)

    def put(self, start: int, rows: Array) -> None:
        self._array[start : start + len(rows)] = rows

    def made(self) -> Array:
        self._array.flags.writeable = False
        return self._array


def in_memory(_path: str, rows: int, dtype: str) -> NewRows:
    """A new array in this process's own memory."""
    return _InMemory(rows, dtype)
