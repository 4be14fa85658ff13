"""The memory of a host as it is after days of work: full of pages of files. Linux only.

A machine that has just started, or a virtual one that gives free memory back to its host, must get each page first, and
that can take many times as long as writing to it. What writes gigabytes is measured by that then.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile

_PIECE_BYTES = 1 << 20
# The system keeps some memory free, and looks for more only below that.
_FREE_BYTES = 1 << 30


@contextlib.contextmanager
def full_of_files(folder: Path, *needed: Path) -> Iterator[None]:
    """Within it hardly any memory is free, but for pages of files that nobody needs, and those of the files in these
    folders are there."""
    piece = bytearray(_PIECE_BYTES)
    with TemporaryFile(dir=folder) as holes:
        holes.truncate(_memory("MemTotal"))
        while _memory("MemFree") > _FREE_BYTES and holes.readinto(piece):
            pass
        for file in (each for path in needed for each in path.rglob("*") if each.is_file()):
            with file.open("rb", buffering=0) as read:
                while read.readinto(piece):
                    pass
        yield


def forget(folder: Path) -> None:
    """Take the files of a folder out of memory: they are read from the disk next."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds_to_write(num_bytes: int, folder: Path) -> float:
    """How long it takes to write so many bytes to a new file's pages and nothing else, on as many threads as there are
    processors."""
    piece, threads = os.urandom(_PIECE_BYTES), os.cpu_count() or 1
    with TemporaryFile(dir=folder) as file, ThreadPoolExecutor(threads) as pool:
        os.posix_fallocate(file.fileno(), 0, num_bytes)

        def write(first: int) -> None:
            for start in range(first, num_bytes, threads * _PIECE_BYTES):
                os.pwrite(file.fileno(), piece, start)

        started = time.perf_counter()
        list(pool.map(write, range(0, threads * _PIECE_BYTES, _PIECE_BYTES)))
        return time.perf_counter() - started


def _memory(name: str) -> int:
    """A line of /proc/meminfo, in bytes."""
    (line,) = [each for each in Path("/proc/meminfo").read_text().splitlines() if each.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
