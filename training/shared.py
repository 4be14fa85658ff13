"""A few numbers that the processes of a DataLoader share: the epoch, and counts of what was read and skipped."""

from __future__ import annotations

import torch
from torch.utils.data import get_worker_info

# Each process of a loader adds to counters of its own, so that none needs a lock: the first is the main process's.
_PROCESSES = 129
_SKIPPED, _READ = 0, 1


class SharedNumbers:
    """Lies in shared memory: what one process writes, forked and spawned workers read at once."""

    def __init__(self) -> None:
        self._epoch = _shared_zeros(1)
        self._counts = _shared_zeros(2, _PROCESSES)

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

    def count_skipped(self) -> None:
        self._counts[_SKIPPED, _process()] += 1

    def count_read(self, count: int) -> None:
        self._counts[_READ, _process()] += count


def _process() -> int:
    worker = get_worker_info()
    return 0 if worker is None else 1 + worker.id % (_PROCESSES - 1)


def _shared_zeros(*shape: int) -> torch.Tensor:
    zeros: torch.Tensor = torch.zeros(shape, dtype=torch.int64, device="cpu")
    return zeros.share_memory_()  # type: ignore[no-untyped-call,no-any-return]
