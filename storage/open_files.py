"""Positional reads from a bounded number of open files.

A path may lead to another file later: replacing a damaged shard by a good copy often creates a new file.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from functools import lru_cache


class _OpenFile:
    """A file descriptor. It is closed when neither the cache nor a read refers to this object any more."""

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        # Opening a named pipe without O_NONBLOCK waits for a writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.identity = _identity(os.fstat(self._descriptor))

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # At the end of the process the names of this module may be gone before the last file: so no `os` here.
        if self._descriptor >= 0:
            try:  # noqa: SIM105
                close(self._descriptor)
            except OSError:
                # The mount is gone. A file that was only read loses nothing by that.
                pass

    def read(self, start: int, stop: int) -> bytes | None:
        return read_exactly(self._descriptor, start, stop)

    def will_need(self, start: int, count: int) -> None:
        # macOS has no such call.
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, start, count, os.POSIX_FADV_WILLNEED)


class _Place:
    """A path, and the file that it led to at the last read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = _OpenFile(path)

    def file(self, *, reopen: bool) -> tuple[_OpenFile, bool]:
        """The file that the path leads to now, and whether this call opened it again."""
        file = self._file
        # The system gives an inode number to no other file while this one is open.
        if not reopen and _identity(os.stat(self._path)) == file.identity:  # noqa: PTH116  # a Path takes longer
            return file, False
        # Two threads may both open it. The file that is not kept here is closed after its read.
        file = self._file = _OpenFile(self._path)
        return file, True


class OpenFiles:
    """Reads byte ranges of files. At most `max_open_files` stay open; the least recently used one is closed first.

    Each read checks where its path leads, so it never reads a file that was replaced or removed. Any number of threads
    may read at the same time. Positional reads share no position, and the cache uses no lock that another thread could
    hold during a fork, so a forked process can read from the files that it inherited.
    """

    def __init__(self, max_open_files: int) -> None:
        self._places = lru_cache(maxsize=max_open_files)(_Place)
        # One entry for each file opened again: list.append is atomic, += on a number is not.
        self._reopened: list[None] = []

    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """The number of reads that found their file open, and of those that opened it."""
        info, reopened = self._places.cache_info(), len(self._reopened)
        return info.hits - reopened, info.misses + reopened

    def will_need(self, path: str, start: int, stop: int) -> None:
        """Ask the system to read these bytes into its cache now. Nothing waits for it, and nothing is an error."""
        with contextlib.suppress(OSError):
            self._places(path).file(reopen=False)[0].will_need(start, stop - start)

    def read(self, path: str, start: int, stop: int, *, reopen: bool = False) -> bytes:
        """Bytes [start, stop) of a file. EOFError if it ends before `stop`; OSError.

        With `reopen` the file is opened again first: a network file system may report a replaced file late, but opening
        the path finds the new one. A file that is too short is opened again in any case.
        """
        try:
            data = self._read(path, start, stop, reopen=reopen)
            if data is None and not reopen:
                data = self._read(path, start, stop, reopen=True)
        except OSError as error:
            if error.errno == errno.ESTALE and not reopen:
                return self.read(path, start, stop, reopen=True)
            raise
        if data is None:
            raise EOFError(f"the file ends before byte {stop}")
        return data

    def _read(self, path: str, start: int, stop: int, *, reopen: bool) -> bytes | None:
        file, reopened = self._places(path).file(reopen=reopen)
        if reopened:
            self._reopened.append(None)
        return file.read(start, stop)


def read_exactly(descriptor: int, start: int, stop: int) -> bytes | None:
    """Bytes [start, stop) of an open file; None if it ends before `stop`."""
    data = os.pread(descriptor, stop - start, start)
    while len(data) < stop - start:
        # A network file system may return fewer bytes than asked for; only an empty read means the end.
        more = os.pread(descriptor, stop - start - len(data), start + len(data))
        if not more:
            return None
        data += more
    return data


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
