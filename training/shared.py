"""A few numbers that the processes of a DataLoader share: the epoch, and how many clips were skipped."""

from __future__ import annotations

import torch
from torch.utils.data import get_worker_info

# Each process of a loader adds to a counter of its own, so that none needs a lock: the first is the main process's.
_COUNTERS = 257


class SharedNumbers:
    """Lies in shared memory: what one process writes, forked and spawned workers read at once."""

    def __init__(self) -> None:
        numbers = torch.zeros(1 + _COUNTERS, dtype=torch.int64, device="cpu")
        self._numbers: torch.Tensor = numbers.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        return int(self._numbers[0])

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._numbers[0] = epoch

    @property
    def skipped(self) -> int:
        """How many clips were skipped, in all processes."""
        return int(self._numbers[1:].sum())

    def count_skipped(self) -> None:
        worker = get_worker_info()
        self._numbers[1 if worker is None else 2 + worker.id % (_COUNTERS - 1)] += 1
