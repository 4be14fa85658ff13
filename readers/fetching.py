"""Ranges of a store on their way: requested several at once, ahead of the decoder, and kept in a local cache.

A request covers ranges that lie close together in one file. It runs on a thread of its own, checks the CRC-32 of each
range, and puts them into the cache after it has handed them over.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ..errors import DatasetError
from ..manifests.operations.shard_bytes import ShardBytes, ShardPiece
from ..storage.range_cache import Entry, RangeCache
from .decoders.base import Buffer
from .plan import ByteRange, coalesce
from .read_limits import ReadLimits
from .stats import ReadTally

# Requests on their way in a process.
_MAX_REQUESTS = 32
# Bytes that may be requested and not yet taken: for a batch, and for all that was announced. A single range may be
# longer.
_MAX_BYTES_AHEAD = 64 << 20
# After this time, a range that was announced and not taken is given up if there is no room for others.
_SECONDS_WAITED_FOR = 60.0

Ranges = dict[Entry, "Buffer | DatasetError"]


@dataclass(eq=False)
class _Request:
    """Bytes [start, stop) of a file for some ranges of it."""

    key: str
    start: int
    stop: int
    entries: tuple[Entry, ...]
    answer: Future[Ranges] = field(default_factory=Future)
    submitted: bool = False
    left: int = 0
    """How many of its ranges were not taken yet."""
    announced: float = 0.0

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start


class Fetcher:
    """Fetches ranges of one dataset. Any number of threads may use it. A forked process starts with nothing ahead."""

    def __init__(self, source: ShardBytes, cache: RangeCache | None, limits: ReadLimits, tally: ReadTally) -> None:
        self.limits = limits
        self.cache = cache
        self._source = source
        self._tally = tally
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        # Threads start when there is something for them to do.
        self._pool = ThreadPoolExecutor(_MAX_REQUESTS, thread_name_prefix="shortgop fetch")
        self._jobs: set[Future[None]] = set()
        self._lock = threading.Lock()
        self._ahead: dict[Entry, _Request] = {}
        self._announced: Counter[Entry] = Counter()
        """How many batches that will come need each of these. Clips of neighbouring batches may share GOPs."""
        self._bytes_ahead = 0

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._start()

    def will_need(self, entries: Sequence[Entry]) -> None:
        """Request ranges that a batch will take soon, as long as there is room. Nothing waits, and nothing fails."""
        self._check_process()
        with self._lock:
            wanted = [entry for entry in entries if entry not in self._ahead]
            self._announced.update(entry for entry in entries if entry in self._ahead)
        now = time.monotonic()
        for request in self._requests(self._missing(wanted)):
            with self._lock:
                if self._bytes_ahead + request.num_bytes > _MAX_BYTES_AHEAD:
                    self._forget(now - _SECONDS_WAITED_FOR)
                if self._bytes_ahead and self._bytes_ahead + request.num_bytes > _MAX_BYTES_AHEAD:
                    return
                # Another thread may have announced some of them.
                new = [entry for entry in request.entries if entry not in self._ahead]
                self._announced.update(entry for entry in request.entries if entry in self._ahead)
                if not new:
                    continue
                request.left, request.announced = len(new), now
                self._bytes_ahead += request.num_bytes
                self._ahead.update(dict.fromkeys(new, request))
                self._announced.update(new)
                # Before a batch of another thread can take it over, which would submit it again.
                self.submit(request)

    def _forget(self, before: float) -> None:
        for entry in [entry for entry, request in self._ahead.items() if request.announced < before]:
            self._announced[entry] = 1
            self._claim(entry)

    def _claim(self, entry: Entry) -> _Request | None:
        """Take over the request of a range that was announced. It stays for the other batches that announced it."""
        request = self._ahead.get(entry)
        if request is None:
            return None
        self._announced[entry] -= 1
        if not self._announced[entry]:
            del self._announced[entry], self._ahead[entry]
            request.left -= 1
            if not request.left:
                self._bytes_ahead -= request.num_bytes
        return request

    def batch(self, entries: Sequence[Entry]) -> FetchedBatch:
        """Begin to fetch these ranges, in the order in which they will be taken."""
        self._check_process()
        with self._lock:
            claimed = {entry: request for entry in entries if (request := self._claim(entry)) is not None}
        rest = [entry for entry in entries if entry not in claimed]
        return FetchedBatch(self, claimed, self._requests(self._missing(rest)))

    def _missing(self, entries: Iterable[Entry]) -> list[Entry]:
        return [entry for entry in entries if self.cache is None or not self.cache.has(entry)]

    def _requests(self, entries: Sequence[Entry]) -> list[_Request]:
        """Requests for these ranges, in the order of their first ones."""
        keys = {key: number for number, key in enumerate(dict.fromkeys(entry.key for entry in entries))}
        reads = coalesce(
            [ByteRange(keys[entry.key], entry.start, entry.stop) for entry in entries],
            max_gap_bytes=self.limits.max_gap_bytes,
            max_read_bytes=self.limits.max_read_bytes,
            max_parts=max(1, len(entries)),
        )
        return [
            _Request(
                entries[read.parts[0]].key,
                read.range.start,
                read.range.stop,
                tuple(entries[part] for part in read.parts),
            )
            for read in sorted(reads, key=lambda read: min(read.parts))
        ]

    def finish(self) -> None:
        """Wait until what was requested so far is in the cache as well."""
        wait(list(self._jobs))

    def submit(self, request: _Request) -> None:
        request.submitted = True
        job = self._pool.submit(self._run, request)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def _run(self, request: _Request) -> None:
        if not request.answer.set_running_or_notify_cancel():
            return
        try:
            found = self._fetched(request)
        except BaseException as error:  # noqa: BLE001  # whoever takes a range of it gets it
            request.answer.set_exception(error)
            return
        request.answer.set_result(found)
        if self.cache is not None:
            self.cache.put([(entry, data) for entry, data in found.items() if not isinstance(data, DatasetError)])

    def _fetched(self, request: _Request) -> Ranges:
        data = memoryview(self._source.read(request.key, request.start, request.stop))
        self._tally.add(reads=1, bytes_read=request.num_bytes)
        found: Ranges = {}
        for entry in request.entries:
            try:
                found[entry] = self._source.checked(
                    data[entry.start - request.start : entry.stop - request.start],
                    entry.key,
                    ShardPiece(entry.start, entry.stop, entry.crc32),
                    on_read=self._count,
                )
            except DatasetError as error:
                # The error concerns this range alone.
                found[entry] = error
        return found

    def _count(self, num_bytes: int) -> None:
        self._tally.add(reads=1, bytes_read=num_bytes)

    def from_cache(self, entry: Entry) -> bytes | None:
        """A range out of the cache, if it is there."""
        return None if self.cache is None else self.cache.get(entry)

    def count(self, *, hit: bool, seconds: float) -> None:
        """Count a range that was taken, and how long it was waited for."""
        cached = self.cache is not None
        self._tally.add(
            cache_hits=int(cached and hit),
            cache_misses=int(cached and not hit),
            wait_seconds=seconds,
            io_seconds=seconds,
        )

    def alone(self, entry: Entry) -> _Request:
        """The request for one range, submitted."""
        request = _Request(entry.key, entry.start, entry.stop, (entry,))
        self.submit(request)
        return request


class FetchedBatch:
    """The ranges of a batch. Several threads may take them. Use it in a `with` block, whose end gives up the rest."""

    def __init__(self, fetcher: Fetcher, claimed: dict[Entry, _Request], requests: Sequence[_Request]) -> None:
        self._fetcher = fetcher
        self._requests = claimed | {entry: request for request in requests for entry in request.entries}
        self._lock = threading.Lock()
        self._waiting = list(reversed(requests))
        self._bytes_ahead = 0
        self._own = {request: len(request.entries) for request in requests}
        """How many ranges of each request were not taken."""

    def __enter__(self) -> Self:
        self._advance()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._waiting.clear()
            # Those that run are left to their ends, and those that were announced may be for others as well.
            for request in self._own:
                request.answer.cancel()

    def _advance(self) -> None:
        """Submit requests as far as there is room."""
        with self._lock:
            while self._waiting:
                request = self._waiting[-1]
                if self._bytes_ahead and self._bytes_ahead + request.num_bytes > _MAX_BYTES_AHEAD:
                    return
                self._waiting.pop()
                if not request.submitted:
                    self._bytes_ahead += request.num_bytes
                    self._fetcher.submit(request)

    def take(self, entry: Entry) -> Buffer:
        """The bytes of a range, whose CRC-32 is right; each once. It waits for them.

        Errors are those of ShardBytes.
        """
        started = time.perf_counter()
        with self._lock:
            request = self._requests.pop(entry, None)
            if request is not None and not request.submitted:
                # Out of turn.
                self._bytes_ahead += request.num_bytes
                self._fetcher.submit(request)
        data: Buffer | None = None
        hit = False
        try:
            if request is None:
                data = self._fetcher.from_cache(entry)
                hit = data is not None
            if data is None:
                # What was in the cache a moment ago may be gone.
                data = _answer(self._fetcher.alone(entry) if request is None else request, entry)
            return data
        finally:
            self._fetcher.count(hit=hit, seconds=time.perf_counter() - started)
            if request is not None:
                self._taken(request)

    def _taken(self, request: _Request) -> None:
        with self._lock:
            if request in self._own:
                self._own[request] -= 1
                if not self._own[request]:
                    del self._own[request]
                    self._bytes_ahead -= request.num_bytes
        self._advance()


def _answer(request: _Request, entry: Entry) -> Buffer:
    found = request.answer.result()[entry]
    if isinstance(found, DatasetError):
        raise found
    return found
