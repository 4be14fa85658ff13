"""A few numbers that the processes of a loader share: the epoch, and counts of what was read and skipped."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np

from ...unnamed_files import unnamed_file
from .ranks import num_ranks

# Each process of a loader adds to counters of its own, so that none needs a lock: the first is the main process's.
_PROCESSES = 129
_SKIPPED, _READ = 0, 1
_NUM_BYTES = 8 * (2 + 2 * _PROCESSES)
# Of so many indices, spread over all of them, each is counted by itself.
_MOST_WATCHED = 1024


class SharedNumbers:
    """Lies in shared memory: what one process writes, processes that it forks or starts read at once.

    A pickled copy that is not sent to a process while that starts has the numbers of that time, and is on its own.
    """

    def __init__(self, file: int | None = None, owner: int | None = None, owner_ranks: int = 1) -> None:
        """In the memory of another process, whose file this is and which has so many ranks; without one, in memory of
        its own."""
        self._owner = os.getpid() if owner is None else owner
        self._owner_ranks = owner_ranks
        self._file = unnamed_file(_NUM_BYTES + _MOST_WATCHED) if file is None else file
        weakref.finalize(self, os.close, self._file).atexit = False
        self._memory = mmap.mmap(self._file, _NUM_BYTES + _MOST_WATCHED)
        self._epoch = np.frombuffer(self._memory, dtype=np.int64, count=1)
        self._sampler_ranks = np.frombuffer(self._memory, dtype=np.int64, count=1, offset=8)
        self._counts = np.frombuffer(self._memory, np.int64, 2 * _PROCESSES, 16).reshape(2, _PROCESSES)
        # Processes write it without a lock: a count that is lost by chance does no harm.
        self._times_read = np.frombuffer(self._memory, dtype=np.uint8, offset=_NUM_BYTES)

    def __reduce__(self) -> Any:
        # It is None, except while a process is started.
        if get_spawning_popen() is not None:
            return _attached, (reduction.DupFd(self._file), self._owner, self.ranks)
        return _copied, (self._memory[:_NUM_BYTES],)

    @property
    def epoch(self) -> int:
        """The epoch that plain indices stand for."""
        return int(self._epoch[0])

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch[0] = epoch
        self._counts[_READ] = 0
        self._times_read[:] = 0

    @property
    def ranks(self) -> int:
        """How many ranks there are: a process that was started by a rank is told, as it may know of none itself. Ranks
        that torch did not start are known to their sampler alone."""
        return max(self._owner_ranks, num_ranks(), int(self._sampler_ranks[0]))

    @property
    def are_divided_by_sampler(self) -> bool:
        """Whether a sampler divides the indices among ranks, so that nobody else does."""
        return int(self._sampler_ranks[0]) > 1

    def note_ranks(self, ranks: int) -> None:
        """Note among how many ranks a sampler divides the indices."""
        self._sampler_ranks[0] = max(ranks, int(self._sampler_ranks[0]))

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

    def count_read(self, indices: Sequence[int], num_indices: int) -> int:
        """Count these different indices, of which there are `num_indices`. Returns how often one of them was read since
        the epoch was set, as far as they are counted by themselves."""
        self._counts[_READ, self._process] += len(indices)
        apart = -(-num_indices // _MOST_WATCHED)
        watched = [index // apart for index in indices if index % apart == 0]
        self._times_read[watched] += self._times_read[watched] < np.iinfo(np.uint8).max
        return int(self._times_read[watched].max(initial=0))

    @property
    def _process(self) -> int:
        """The number of this process's counters. Those of two processes are the same only by an unlikely chance."""
        process = os.getpid()
        return 0 if process == self._owner else 1 + process % (_PROCESSES - 1)


def _attached(file: Any, owner: int, owner_ranks: int) -> SharedNumbers:
    return SharedNumbers(file.detach(), owner, owner_ranks)


def _copied(content: bytes) -> SharedNumbers:
    numbers = SharedNumbers()
    numbers._memory[:_NUM_BYTES] = content  # noqa: SLF001  # another way to make one
    return numbers
