"""The files of cached ranges: one for each, which has the bytes and nothing else. Its name is 16 bytes."""

from __future__ import annotations

import contextlib
import os
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

_FOLDERS = 256
# The 16 bytes of a name, of which the first is that of the folder.
_FILE_NAME = re.compile(r"[0-9a-f]{30}")


class RangeFiles:
    """Files below a folder, by their names. None of this takes a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parent = str(folder)

    def has(self, name: bytes, num_bytes: int) -> bool:
        """Whether there is a file of this length."""
        try:
            # As a Path it takes twice as long.
            return os.stat(self._path(name)).st_size == num_bytes  # noqa: PTH116
        except OSError:
            return False

    def read(self, name: bytes, num_bytes: int, crc32: int) -> bytes | None:
        """The bytes of a file, which notes that it was used; None if they are not there, or have another CRC-32."""
        try:
            file = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.pread(file, num_bytes, 0)
            if len(data) != num_bytes or zlib.crc32(data) != crc32:
                return None
            with contextlib.suppress(OSError):
                # Only the owner of a file may do this.
                now = time.time_ns()
                os.utime(file, ns=(now, now))
        except OSError:
            return None
        finally:
            os.close(file)
        return data

    def last_used(self, name: bytes) -> int | None:
        """When a file was used, in nanoseconds since 1970; None if there is none."""
        try:
            return Path(self._path(name)).stat().st_mtime_ns
        except OSError:
            return None

    def opened(self, name: bytes) -> int:
        """A descriptor of a file to be written, which is made if there is none."""
        path = self._path(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:
            Path(path).parent.mkdir(exist_ok=True)
            return os.open(path, flags, 0o666)

    def remove(self, name: bytes) -> None:
        Path(self._path(name)).unlink(missing_ok=True)

    def names(self) -> Iterator[bytes]:
        """The names of all files."""
        for number in range(_FOLDERS):
            with contextlib.suppress(FileNotFoundError), os.scandir(f"{self._parent}/{number:02x}") as files:
                for file in files:
                    # Others may put files there: .DS_Store, .nfs0001.
                    if _FILE_NAME.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                        yield bytes.fromhex(f"{number:02x}{file.name}")

    def _path(self, name: bytes) -> str:
        text = name.hex()
        return f"{self._parent}/{text[:2]}/{text[2:]}"


def write_and_close(files: Sequence[int | None], contents: Sequence[bytes | memoryview], used: int) -> None:
    """Write what belongs into each file of which there is a descriptor, and note when it was used. Two processes may
    write the same file at once. They write the same bytes."""
    try:
        for file, data in zip(files, contents, strict=True):
            if file is not None:
                _write_all(file, memoryview(data))
                os.utime(file, ns=(used, used))
    finally:
        close_all(files)


def close_all(files: Sequence[int | None]) -> None:
    for file in files:
        if file is not None:
            os.close(file)


def _write_all(file: int, data: memoryview) -> None:
    written = 0
    while written < data.nbytes:
        written += os.pwrite(file, data[written:], written)
    # A damaged file may have been longer.
    os.ftruncate(file, written)
