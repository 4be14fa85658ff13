"""A file of a store as a local file, of which only the bytes that are needed come over the network.

The local file has the full length from the start. What was not fetched is a hole in it, which reads as zeros and takes
no space. `fetch` fills ranges, `fetch_all` everything, and `reader` is a file object that fetches what is read.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path

from .interface import OpenedFile, Storage
from .opened_objects import TAIL_BYTES
from .scratch import remove_abandoned, scratch_copy

BLOCK_BYTES = 1 << 16
"""What was fetched is known in blocks of this length."""
_REQUEST_BYTES = 1 << 22
"""A range is fetched in requests of this length, several at once: one connection alone seldom fills a network."""
_AT_A_TIME = 6
_MAX_AHEAD_BYTES = 1 << 22

Range = tuple[int, int]


@contextlib.contextmanager
def local_copy(storage: Storage, key: str, name: str) -> Iterator[LocalCopy]:
    """A local file for a file in a store, below the host's temporary folder, removed at the end of the block. `name` is
    the local file's. Copies that killed processes left are removed first.

    Raises what `Storage.open` raises, and OSError if the file cannot be made.
    """
    _remove_abandoned()
    with storage.open(key) as opened, scratch_copy(name) as (path, descriptor):
        copy = LocalCopy(opened, path, descriptor)
        try:
            yield copy
        finally:
            copy.close()


def _remove_abandoned() -> None:
    """What another worker of this machine left that was killed may be as large as what is about to be fetched."""
    _remove_abandoned_of_all_once()
    remove_abandoned(of_all_containers=False)


@cache
def _remove_abandoned_of_all_once() -> None:
    remove_abandoned()


class LocalCopy:
    """The local file at `path`, of which `descriptor` is one. One thread at a time may use it."""

    def __init__(self, opened: OpenedFile, path: Path, descriptor: int) -> None:
        self.path = path
        self.stored = opened.stored
        self.num_bytes = opened.stored.num_bytes
        self._opened = opened
        self._has = bytearray(-(-self.num_bytes // BLOCK_BYTES))
        self._file: int | None = descriptor
        # A thread that was given up may go on later, when the number of the descriptor is another file's.
        self._lock = threading.Lock()
        os.ftruncate(descriptor, self.num_bytes)
        # Opening has brought the end already.
        tail_block = -(-max(0, self.num_bytes - TAIL_BYTES) // BLOCK_BYTES)
        self.fetch([(tail_block * BLOCK_BYTES, self.num_bytes)])

    def fetch(self, ranges: Sequence[Range]) -> None:
        """Fetch what is missing of ranges [start, stop). Raises what `OpenedFile.read` raises, and OSError if the local
        file cannot be written."""
        missing = missing_ranges(self._has, ranges, self.num_bytes)
        requests = [
            (at, min(at + _REQUEST_BYTES, stop)) for start, stop in missing for at in range(start, stop, _REQUEST_BYTES)
        ]
        if len(requests) == 1:
            self._put(requests[0], self._opened.read(*requests[0]))
            return
        # Only so many answers are in memory. They are written by this thread, whose progress is watched.
        waiting = iter(requests)
        running: dict[Future[bytes], Range] = {}
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            try:
                while True:
                    while len(running) < _AT_A_TIME and (request := next(waiting, None)) is not None:
                        running[pool.submit(self._opened.read, *request)] = request
                    if not running:
                        return
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        self._put(running.pop(done), done.result())
            finally:
                for future in running:
                    future.cancel()

    def fetch_all(self) -> None:
        """Fetch all that is missing. OSError with ENOSPC if there is too little space, which is reserved before where
        the system can do that."""
        # macOS has no such call: there a full disk is noticed while the file is written.
        if self.num_bytes and hasattr(os, "posix_fallocate"):
            with self._open_file() as file:
                os.posix_fallocate(file, 0, self.num_bytes)
        self.fetch([(0, self.num_bytes)])

    def reader(self) -> io.BufferedIOBase:
        """A file object that fetches what is read of it, and some blocks beyond while reading goes on in order."""
        return _Reader(self)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), fetched where they are missing."""
        self.fetch([(start, stop)])
        with self._open_file() as file:
            return os.pread(file, stop - start, start)

    def lacks(self, start: int, stop: int) -> bool:
        """Whether some of these bytes were not fetched yet."""
        return bool(missing_ranges(self._has, [(start, stop)], self.num_bytes))

    def close(self) -> None:
        """Nothing is read from the local file or written to it any more: whoever tries gets an OSError."""
        with self._lock:
            self._file = None

    @contextlib.contextmanager
    def _open_file(self) -> Iterator[int]:
        with self._lock:
            if self._file is None:
                raise OSError(errno.EBADF, "the local copy was closed meanwhile", str(self.path))
            yield self._file

    def _put(self, where: Range, data: bytes) -> None:
        start, stop = where
        view = memoryview(data)
        with self._open_file() as file:
            while view:
                written = os.pwrite(file, view, stop - len(view))
                view = view[written:]
        first, last = start // BLOCK_BYTES, -(-stop // BLOCK_BYTES)
        self._has[first:last] = b"\1" * (last - first)


def missing_ranges(has: bytes | bytearray, ranges: Sequence[Range], num_bytes: int) -> list[Range]:
    """The ranges of bytes, in whole blocks and in order, that cover what is missing of `ranges` [start, stop).

    `has` has a byte for each block of the file, which is 0 where the block is missing.
    """
    found: list[Range] = []
    done = 0
    for start, stop in sorted(each for each in ranges if each[0] < each[1]):
        block, last = max(done, start // BLOCK_BYTES), -(-min(stop, num_bytes) // BLOCK_BYTES)
        while (block := has.find(0, block, last)) >= 0:
            end = has.find(1, block, last)
            end = last if end < 0 else end
            first_byte, end_byte = block * BLOCK_BYTES, min(end * BLOCK_BYTES, num_bytes)
            if found and found[-1][1] == first_byte:
                found[-1] = (found[-1][0], end_byte)
            else:
                found.append((first_byte, end_byte))
            block = end
        done = max(done, last)
    return found


class _Reader(io.BufferedIOBase):
    """A copy as a file object. Each read that goes on where the one before ended fetches twice as far ahead."""

    def __init__(self, copy: LocalCopy) -> None:
        self._copy = copy
        self._at = self._end = 0
        self._ahead_bytes = BLOCK_BYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._copy.num_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        stop = self._copy.num_bytes if size is None or size < 0 else min(self._at + size, self._copy.num_bytes)
        if self._at >= stop:
            return b""
        if self._copy.lacks(self._at, stop):
            goes_on = self._at == self._end
            self._ahead_bytes = min(2 * self._ahead_bytes, _MAX_AHEAD_BYTES) if goes_on else BLOCK_BYTES
            self._copy.fetch([(self._at, max(stop, self._at + self._ahead_bytes))])
        data = self._copy.read(self._at, stop)
        self._at = self._end = self._at + len(data)
        return data
