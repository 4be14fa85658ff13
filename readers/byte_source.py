"""Bytes of a dataset's files: positional reads from a bounded number of open files.

A path may lead to another file than it did: somebody copies a good shard over a damaged one by way of a new file.
"""

from __future__ import annotations

import errno
import os
from functools import lru_cache
from pathlib import Path

from ..errors import MissingDataError, not_read


class _OpenFile:
    """A descriptor that lives as long as somebody holds this: as long as it is in the cache, or being read."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        # A pipe in its place would wait for a writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.identity = _identity(os.fstat(self._descriptor))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, start: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, start)


class _Place:
    """A path, and the file that it led to when it was last looked at."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _OpenFile(path)

    def file(self, *, reopen: bool) -> tuple[_OpenFile, bool]:
        """The file that the path leads to now, and whether it had to be opened again."""
        file = self._file
        # An inode number is not given to another file as long as this one is open.
        if not reopen and _identity(self._path.stat()) == file.identity:
            return file, False
        # Another thread may do the same: one of the two files is closed when it has been read.
        file = self._file = _OpenFile(self._path)
        return file, True


class ByteSource:
    """Reads ranges of files, of which at most `max_open_files` stay open, the least recently used being closed.

    Each read looks where its path leads now: a file that was replaced or removed is not read any more. Any number of
    threads may read at the same time. Positional reads share no position, and the cache takes no lock that another
    thread could hold during a fork, so a forked process goes on reading with what it inherited.
    """

    def __init__(self, *, max_open_files: int, remedy: str = "copy it to the dataset again") -> None:
        self._remedy = remedy
        self._places = lru_cache(maxsize=max_open_files)(_Place)
        # One entry each; appending is atomic, adding to a number is not.
        self._reopened: list[None] = []

    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """How many reads found their file open, and how many did not."""
        info, reopened = self._places.cache_info(), len(self._reopened)
        return info.hits - reopened, info.misses + reopened

    def read(self, path: Path, start: int, stop: int, *, reopen: bool = False) -> bytes:
        """Bytes [start, stop) of a file; MissingDataError, with the remedy, when they are not all there, and
        UnreadableDataError when the system does not let them be read.

        `reopen` is for bytes that turned out to be wrong: network file systems may take a while to notice that a
        file was replaced, but not when it is opened.
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
            # Network file systems may give less than was asked for; only nothing at all is the end.
            more = file.read(start + len(data), stop - start - len(data))
            if not more:
                return None
            data += more
        return data


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
