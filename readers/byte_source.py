"""Positional reads from a dataset's files, of which a bounded number stay open.

A path may lead to another file later: replacing a damaged shard by a good copy often creates a new file.
"""

from __future__ import annotations

import errno
import os
from functools import lru_cache
from pathlib import Path

from ..errors import MissingDataError, not_read


class _OpenFile:
    """A file descriptor. It is closed when neither the cache nor a read refers to this object any more."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        # Opening a named pipe without O_NONBLOCK waits for a writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.identity = _identity(os.fstat(self._descriptor))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, start: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, start)


class _Place:
    """A path, and the file that it led to at the last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _OpenFile(path)

    def file(self, *, reopen: bool) -> tuple[_OpenFile, bool]:
        """The file that the path leads to now, and whether this call opened it again."""
        file = self._file
        # The system gives an inode number to no other file while this one is open.
        if not reopen and _identity(self._path.stat()) == file.identity:
            return file, False
        # Two threads may both open it. The file that is not kept here is closed after its read.
        file = self._file = _OpenFile(self._path)
        return file, True


class ByteSource:
    """Reads byte ranges of files. At most `max_open_files` stay open; the least recently used one is closed first.

    Each read checks where its path leads, so it never reads a file that was replaced or removed. Any number of threads
    may read at the same time. Positional reads share no position, and the cache uses no lock that another thread could
    hold during a fork, so a forked process can read from the files that it inherited.
    """

    def __init__(self, *, max_open_files: int, remedy: str = "copy it to the dataset again") -> None:
        self._remedy = remedy
        self._places = lru_cache(maxsize=max_open_files)(_Place)
        # One entry for each file opened again: list.append is atomic, += on a number is not.
        self._reopened: list[None] = []

    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """The number of reads that found their file open, and of those that opened it."""
        info, reopened = self._places.cache_info(), len(self._reopened)
        return info.hits - reopened, info.misses + reopened

    def read(self, path: Path, start: int, stop: int, *, reopen: bool = False) -> bytes:
        """Bytes [start, stop) of a file.

        With `reopen`, the file is opened again first. That is for bytes that were wrong: a network file system may
        report a replaced file late, but opening the path finds the new one.

        MissingDataError when the file is missing or ends before `stop`, UnreadableDataError when the system refuses to
        read it. Both name the remedy.
        """
        try:
            data = self._read(path, start, stop, reopen=reopen)
            if data is None and not reopen:
                data = self._read(path, start, stop, reopen=True)
        except OSError as error:
            if error.errno == errno.ESTALE and not reopen:
                return self.read(path, start, stop, reopen=True)
            refused = not_read(str(path), error, remedy=self._remedy)
            refused.byte_range = (start, stop)
            raise refused from error
        if data is None:
            raise MissingDataError(
                f"{path} ends before byte {stop}, it was cut; {self._remedy}",
                file=str(path),
                byte_range=(start, stop),
            )
        return data

    def _read(self, path: Path, start: int, stop: int, *, reopen: bool) -> bytes | None:
        """None when the file ends before `stop`."""
        place = self._places(path)
        file, reopened = place.file(reopen=reopen)
        if reopened:
            self._reopened.append(None)
        data = file.read(start, stop - start)
        while len(data) < stop - start:
            # A network file system may return fewer bytes than asked for; only an empty read means the end.
            more = file.read(start + len(data), stop - start - len(data))
            if not more:
                return None
            data += more
        return data


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
