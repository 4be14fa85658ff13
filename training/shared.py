"""A few numbers that the processes of a loader share: the epoch, and counts of what was read and skipped."""

from __future__ import annotations

import mmap
import os
import weakref
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np

from ..unnamed_files import unnamed_file

# Each process of a loader adds to counters of its own, so that none needs a lock: the first is the main process's.
_PROCESSES = 129
_SKIPPED, _READ = 0, 1
_NUM_BYTES = 8 * (1 + 2 * _PROCESSES)


class SharedNumbers:
    """Lies in shared memory: what one process writes, processes that it forks or starts read at once.

    A pickled copy that is not sent to a process while that starts has the numbers of that time, and is on its own.
    """

    def __init__(self, file: int | None = None, owner: int | None = None) -> None:
        """In the memory of another process, whose file this is; without one, in memory of its own."""
        self._owner = os.getpid() if owner is None else owner
        self._file = unnamed_file(_NUM_BYTES) if file is None else file
        weakref.finalize(self, os.close, self._file).atexit = False
        self._memory = mmap.mmap(self._file, _NUM_BYTES)
        self._epoch = np.frombuffer(self._memory, dtype=np.int64, count=1)
        self._counts = np.frombuffer(self._memory, dtype=np.int64, offset=8).reshape(2, _PROCESSES)

    def __reduce__(self) -> Any:
        # None but while a process is started.
        if get_spawning_popen() is not None:
            return _attached, (reduction.DupFd(self._file), self._owner)
        return _copied, (self._memory[:],)

    @property
    def epoch(self) -> int:
        """The epoch that plain indices stand for."""
        return int(self._epoch[0])

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch[0] = epoch
        self._counts[_READ] = 0

    @property
    def skipped(self) -> int:
        """How many clips were skipped, in all processes."""
        return int(self._counts[_SKIPPED].sum())

    @property
    def read(self) -> int:
        """How many plain indices were read since the epoch was set, in all processes."""
        return int(self._counts[_READ].sum())

    @property
    def skipped_here(self) -> int:
        """How many clips were skipped in this process."""
        return int(self._counts[_SKIPPED, self._process])

    def count_skipped(self, count: int = 1) -> None:
        self._counts[_SKIPPED, self._process] += count

    def count_read(self, count: int) -> None:
        self._counts[_READ, self._process] += count

    @property
    def _process(self) -> int:
        """The number of this process's counters. Those of two processes are the same only by an unlikely chance."""
        process = os.getpid()
        return 0 if process == self._owner else 1 + process % (_PROCESSES - 1)


def _attached(file: Any, owner: int) -> SharedNumbers:
    return SharedNumbers(file.detach(), owner)


def _copied(content: bytes) -> SharedNumbers:
    numbers = SharedNumbers()
    numbers._memory[:] = content  # noqa: SLF001  # another way to make one
    return numbers
