"""A file of a store as a local file, of which only the bytes that are needed come over the network.

The local file has the full length from the start. What was not fetched is a hole in it, which reads as zeros and takes
no space. `fetch` fills ranges, `fetch_all` everything, and `reader` is a file object that fetches what is read.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from .host_folder import host_folder
from .interface import Storage, Stored

BLOCK_BYTES = 1 << 16
"""What was fetched is known in blocks of this length."""
_REQUEST_BYTES = 1 << 22
"""A range is fetched in requests of this length, several at once: one connection alone seldom fills a network."""
_AT_A_TIME = 6
_MAX_AHEAD_BYTES = 1 << 22
_ATTEMPTS = 4
_FIRST_WAIT_SECONDS = 0.2

Range = tuple[int, int]


class ChangedError(OSError):
    """The file in the store is another one than when its copy was begun."""


def stored_at(storage: Storage, key: str) -> Stored | None:
    """What lies under a key, None if nothing does. One request.

    On a web server it asks for the last byte, since a presigned URL is for reading alone, and not for asking.
    """
    if not storage.url.startswith(("http://", "https://")):
        return storage.find(key)
    try:
        return storage.read_tail(key, 1)[1]
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def local_copy(storage: Storage, key: str, stored: Stored, name: str) -> Iterator[LocalCopy]:
    """A local file for a file in a store, removed at the end of the block. `name` is the local file's name. OSError if
    it cannot be made."""
    folder = host_folder() / f"{random.getrandbits(48):012x}"  # no secret
    folder.mkdir()
    try:
        copy = LocalCopy(storage, key, stored, folder / name)
        try:
            yield copy
        finally:
            copy.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class LocalCopy:
    """The local file at `path`. One thread at a time may use it."""

    def __init__(self, storage: Storage, key: str, stored: Stored, path: Path) -> None:
        self.path = path
        self.num_bytes = stored.num_bytes
        self.fetched_bytes = 0
        self.num_requests = 0
        self._storage, self._key, self._version = storage, key, stored.version
        self._has = bytearray(-(-stored.num_bytes // BLOCK_BYTES))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, stored.num_bytes)

    def close(self) -> None:
        os.close(self._file)

    def fetch(self, ranges: Sequence[Range]) -> None:
        """Fetch what is missing of ranges [start, stop). Raises what `Storage.read` raises, after several attempts."""
        missing = missing_ranges(self._has, ranges, self.num_bytes)
        requests = [
            (at, min(at + _REQUEST_BYTES, stop)) for start, stop in missing for at in range(start, stop, _REQUEST_BYTES)
        ]
        if len(requests) == 1:
            self._put(requests[0], self._read(requests[0]))
            return
        # Only so many answers are in memory. They are written by this thread, whose progress is watched.
        waiting = iter(requests)
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            running: dict[Future[bytes], Range] = {}
            try:
                while True:
                    while len(running) < _AT_A_TIME and (request := next(waiting, None)) is not None:
                        running[pool.submit(self._read, request)] = request
                    if not running:
                        return
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        self._put(running.pop(done), done.result())
            finally:
                for future in running:
                    future.cancel()

    def fetch_all(self) -> None:
        """Fetch all that is missing. The space is reserved before: OSError with ENOSPC if there is too little.
        ChangedError if the file in the store was replaced or removed since the copy was begun."""
        if self.num_bytes:
            os.posix_fallocate(self._file, 0, self.num_bytes)
        self.fetch([(0, self.num_bytes)])
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """ChangedError if the file in the store is another one than when the copy was begun: its ranges may be of both.
        FileNotFoundError if it is gone."""
        now = stored_at(self._storage, self._key)
        if now is None:
            raise FileNotFoundError(2, "it was removed", self._key)
        if (now.num_bytes, now.version) != (self.num_bytes, self._version):
            raise ChangedError(5, "it was replaced after the job had looked at it", self._key)

    def reader(self) -> io.BufferedIOBase:
        """A file object that fetches what is read of it, and some blocks beyond while reading goes on in order."""
        return _Reader(self)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), fetched where they are missing."""
        self.fetch([(start, stop)])
        return os.pread(self._file, stop - start, start)

    def lacks(self, start: int, stop: int) -> bool:
        """Whether some of these bytes were not fetched yet."""
        return bool(missing_ranges(self._has, [(start, stop)], self.num_bytes))

    def _put(self, where: Range, data: bytes) -> None:
        start, stop = where
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file, view, stop - len(view))
            view = view[written:]
        first, last = start // BLOCK_BYTES, -(-stop // BLOCK_BYTES)
        self._has[first:last] = b"\1" * (last - first)
        self.fetched_bytes += stop - start
        self.num_requests += 1

    def _read(self, where: Range) -> bytes:
        """Bytes [start, stop). What may be better in a moment is tried again; a short answer means another file."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._storage.read(self._key, *where)
            except (FileNotFoundError, PermissionError):
                raise
            except EOFError as error:
                raise ChangedError(5, "it was replaced after the job had looked at it", self._key) from error
            except OSError:
                if attempt == _ATTEMPTS - 1:
                    raise
                # Between half of the time and all of it: readers that failed together do not come back together.
                seconds = _FIRST_WAIT_SECONDS * 2**attempt
                time.sleep(seconds * random.uniform(0.5, 1))  # noqa: S311  # no secret
        raise AssertionError("the last attempt returns or raises")


def missing_ranges(has: bytes | bytearray, ranges: Sequence[Range], num_bytes: int) -> list[Range]:
    """The ranges of bytes, in whole blocks and in order, that cover what is missing of `ranges` [start, stop).

    `has` has a byte for each block of the file, which is 0 where the block is missing.
    """
    found: list[Range] = []
    done = 0
    for start, stop in sorted(ranges):
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
