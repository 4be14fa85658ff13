"""Bytes of a dataset's files: positional reads from a bounded number of open files."""

from __future__ import annotations

import errno
import os
from functools import lru_cache
from pathlib import Path

from ..manifests.errors import MissingDataError

_REMEDIES = {
    errno.ENOENT: "it is missing: copy it back to the dataset",
    errno.EMFILE: "this process has too many files open: raise its limit (`ulimit -n`)",
    errno.ENFILE: "this machine has too many files open",
}


class _OpenFile:
    """A descriptor that lives as long as somebody holds this: as long as it is in the cache, or being read."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, start: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, start)


class ByteSource:
    """Reads ranges of files, of which at most `max_open_files` stay open, the least recently used being closed.

    Any number of threads may read at the same time. Positional reads share no position, and the cache takes no lock
    that another thread could hold during a fork, so a forked process goes on reading with what it inherited.
    """

    def __init__(self, *, max_open_files: int) -> None:
        self._open = lru_cache(maxsize=max_open_files)(_OpenFile)

    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """How many reads found their file open, and how many did not."""
        info = self._open.cache_info()
        return info.hits, info.misses

    def read(self, path: Path, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file; MissingDataError when they are not all there."""
        try:
            file = self._open(path)
            data = file.read(start, stop - start)
            while len(data) < stop - start:
                # Network file systems may give less than was asked for; only nothing at all is the end.
                more = file.read(start + len(data), stop - start - len(data))
                if not more:
                    raise MissingDataError(
                        f"{path} ends before byte {stop}: it was cut; copy it to the dataset again",
                        file=str(path),
                        byte_range=(start, stop),
                    )
                data += more
        except OSError as error:
            remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
            raise MissingDataError(f"cannot read {path}: {remedy}", file=str(path), byte_range=(start, stop)) from error
        return data
