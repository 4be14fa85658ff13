"""Counts and times of reading, added up for each process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ..storage.network import RequestCounts


@dataclass(frozen=True)
class Stats:
    """Counts and times of a dataset's reading since this process opened it or was forked.

    The difference of two covers the reading between them. Seconds are added up over all threads.
    """

    reads: int = 0
    """Reads of shards, by calls of the system or requests to a store. Neighbouring GOPs are read at once."""
    bytes_read: int = 0
    packets_read: int = 0
    """Packets in the GOPs that were read."""
    gops_decoded: int = 0
    packets_decoded: int = 0
    """Packets that were sent to the decoder."""
    frames_delivered: int = 0
    """Frames that were returned, with repeated ones."""
    io_seconds: float = 0.0
    """Seconds of reading files and comparing checksums."""
    decode_seconds: float = 0.0
    conversion_seconds: float = 0.0
    """Seconds of conversion from the decoder's planes to the tensor."""
    file_hits: int = 0
    """Reads from a file that was open already; `file_misses` opened it."""
    file_misses: int = 0
    decoder_hits: int = 0
    """GOPs decoded by a decoder that was open already; `decoder_misses` opened one."""
    decoder_misses: int = 0
    pool_hits: int = 0
    """Outputs of 1 MB and more in memory that was used before; `pool_misses` took new memory. An `out` of the caller
    counts as neither."""
    pool_misses: int = 0
    cache_hits: int = 0
    """GOPs that came out of the local cache; `cache_misses` came from the store. Both are 0 without a cache."""
    cache_misses: int = 0
    wait_seconds: float = 0.0
    """Seconds that decoders waited for a store or the cache; a part of `io_seconds`."""
    requests: int = 0
    """Requests to the store for any purpose, the repeated ones included; 0 on a disk."""
    bytes_received: int = 0
    """Bytes that the store sent."""
    retries: int = 0
    """Requests that were repeated because they failed; `hedges` because the answer was late."""
    hedges: int = 0
    engine_seconds: float = 0.0
    """Seconds of requests, times the NVDEC engines of the GPU; 0 on the CPU."""

    @property
    def decoders_per_engine(self) -> float:
        """How many decoders were at work for each NVDEC engine, on average: below 1 engines had nothing to do. 0 on the
        CPU."""
        return self.decode_seconds / self.engine_seconds if self.engine_seconds else 0.0

    @property
    def waste_ratio(self) -> float:
        """Packets decoded for each frame delivered; 0 before the first."""
        return self.packets_decoded / self.frames_delivered if self.frames_delivered else 0.0

    def __add__(self, other: Stats) -> Stats:
        return Stats(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: Stats) -> Stats:
        return Stats(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


class ReadTally:
    """Adds up counts from any number of threads. A forked process starts from zero."""

    def __init__(
        self, files: Callable[[], tuple[int, int]], requests: Callable[[], RequestCounts] = RequestCounts
    ) -> None:
        """`files` returns the reads that found their file open and those that did not, and `requests` what was asked
        of a store: each with those before a fork."""
        self._files, self._requests = files, requests
        self._start()

    def _start(self) -> None:
        # A lock that another thread held at the time of the fork would never be released here.
        self._lock = threading.Lock()
        self._totals: dict[str, Any] = dict.fromkeys((each.name for each in fields(Stats)), 0)
        self._files_before, self._requests_before = self._files(), self._requests()
        self._process = os.getpid()

    def add(self, **counts: float) -> None:
        """Add to the fields of these names."""
        if self._process != os.getpid():
            self._start()
        with self._lock:
            for name, count in counts.items():
                self._totals[name] += count

    def stats(self) -> Stats:
        """The totals so far."""
        if self._process != os.getpid():
            self._start()
        with self._lock:
            totals = dict(self._totals)
        names = ("file_hits", "file_misses")
        for name, count, before in zip(names, self._files(), self._files_before, strict=True):
            totals[name] = count - before
        sent, sent_before = self._requests(), self._requests_before
        totals["requests"] = sent.requests - sent_before.requests
        totals["bytes_received"] = sent.bytes_read - sent_before.bytes_read
        totals["retries"] = sent.retries - sent_before.retries
        totals["hedges"] = sent.hedged - sent_before.hedged
        return Stats(**totals)
