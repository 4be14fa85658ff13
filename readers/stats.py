"""What reading took so far: counts and times, added up for each process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Stats:
    """What a dataset's readers did in this process since it was opened, or forked.

    The difference of two says what was done between them. Seconds are those of all threads together.
    """

    reads: int = 0
    """Reads of files; neighbouring GOPs take one."""
    bytes_read: int = 0
    packets_read: int = 0
    """Packets in the GOPs that were read."""
    gops_decoded: int = 0
    packets_decoded: int = 0
    """Those that were needed."""
    frames_delivered: int = 0
    """Frames that were returned, repeated ones included."""
    io_seconds: float = 0.0
    """Reading, and comparing checksums."""
    decode_seconds: float = 0.0
    conversion_seconds: float = 0.0
    """From the decoder's planes to the tensor."""
    file_hits: int = 0
    """Reads from a file that was open; `file_misses` had to open it."""
    file_misses: int = 0
    decoder_hits: int = 0
    """GOPs decoded by a decoder that was open; `decoder_misses` had to open one."""
    decoder_misses: int = 0
    pool_hits: int = 0
    """Outputs of 1 MB and more in memory that held an earlier one; `pool_misses` took new memory. An output that the
    caller brings is neither."""
    pool_misses: int = 0

    @property
    def waste_ratio(self) -> float:
        """Packets decoded for each frame delivered; 0 before the first."""
        return self.packets_decoded / self.frames_delivered if self.frames_delivered else 0.0

    def __add__(self, other: Stats) -> Stats:
        return Stats(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: Stats) -> Stats:
        return Stats(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


class Tally:
    """Adds up what any number of threads report; a forked process starts again from nothing."""

    def __init__(self, files: Callable[[], tuple[int, int]]) -> None:
        """`files` says how many reads found their file open and how many did not, in this process and before."""
        self._files = files
        self._start()

    def _start(self) -> None:
        # A lock that a fork found taken would never be free again.
        self._lock = threading.Lock()
        self._totals: dict[str, Any] = dict.fromkeys((each.name for each in fields(Stats)), 0)
        self._files_before = self._files()
        self._process = os.getpid()

    def add(self, **counts: float) -> None:
        """Add to the fields of these names."""
        if self._process != os.getpid():
            self._start()
        with self._lock:
            for name, count in counts.items():
                self._totals[name] += count

    def stats(self) -> Stats:
        """What there is so far."""
        if self._process != os.getpid():
            self._start()
        with self._lock:
            totals = dict(self._totals)
        names = ("file_hits", "file_misses")
        for name, count, before in zip(names, self._files(), self._files_before, strict=True):
            totals[name] = count - before
        return Stats(**totals)
