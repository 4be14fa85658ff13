"""Reading pieces of shards: positional reads from a bounded number of open files, each piece checked by its CRC-32.

A path may lead to another file later: replacing a damaged shard by a good copy often creates a new file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from ..errors import CorruptDataError, MissingDataError, not_read
from .tables import Manifest

_Bytes = TypeVar("_Bytes", bytes, memoryview)


@dataclass(frozen=True)
class Piece:
    """Bytes [start, stop) of a shard, an init or a GOP, and their CRC-32."""

    start: int
    stop: int
    crc32: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise CorruptDataError(
                f"bytes {self.start} to {self.stop} are no range: the manifest is damaged",
                byte_range=(self.start, self.stop),
            )


def init_piece(manifest: Manifest, segment: int) -> Piece:
    """ftyp + moov of a row of the table of segments. CorruptDataError when the manifest gives no range of bytes."""
    table = manifest.segments
    start = int(table.offset[segment])
    return Piece(start, start + int(table.init_length[segment]), int(table.init_crc32[segment]))


def gop_piece(manifest: Manifest, gop: int) -> Piece:
    """moof + mdat of a row of the table of GOPs, likewise."""
    table = manifest.gops
    start = int(table.offset[gop])
    return Piece(start, start + int(table.length[gop]), int(table.crc32[gop]))


class _OpenFile:
    """A file descriptor. It is closed when neither the cache nor a read refers to this object any more."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        # Opening a named pipe without O_NONBLOCK waits for a writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.identity = _identity(os.fstat(self._descriptor))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            # A mount that is gone says so here too. Of a file that was only read that is no loss.
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def read(self, start: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, start)

    def will_need(self, start: int, count: int) -> None:
        # macOS has no such call.
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, start, count, os.POSIX_FADV_WILLNEED)


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


class ShardBytes:
    """Reads byte ranges of files. At most `max_open_files` stay open; the least recently used one is closed first.

    Each read checks where its path leads, so it never reads a file that was replaced or removed. Any number of threads
    may read at the same time. Positional reads share no position, and the cache uses no lock that another thread could
    hold during a fork, so a forked process can read from the files that it inherited.
    """

    def __init__(self, *, max_open_files: int, lost_remedy: str = "", damage_remedy: str = "") -> None:
        """The remedies stand in the errors about missing and about damaged bytes."""
        self._lost_remedy = lost_remedy
        self._damage_remedy = f"; {damage_remedy}" if damage_remedy else ""
        self._places = lru_cache(maxsize=max_open_files)(_Place)
        # One entry for each file opened again: list.append is atomic, += on a number is not.
        self._reopened: list[None] = []

    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """The number of reads that found their file open, and of those that opened it."""
        info, reopened = self._places.cache_info(), len(self._reopened)
        return info.hits - reopened, info.misses + reopened

    def piece(self, path: Path, piece: Piece) -> bytes:
        """The bytes of a piece. Errors are those of `read` and of `checked`."""
        return self.checked(self.read(path, piece.start, piece.stop), path, piece)

    def checked(
        self, data: _Bytes, path: Path, piece: Piece, *, on_read: Callable[[int], object] = lambda _: None
    ) -> _Bytes | bytes:
        """`data` if it has the piece's CRC-32; else what the file has there once it is opened again.

        `on_read` is called with the number of bytes of a second read. CorruptDataError when its CRC-32 differs too.
        """
        if zlib.crc32(data) == piece.crc32:
            return data
        again = self.read(path, piece.start, piece.stop, reopen=True)
        on_read(len(again))
        if zlib.crc32(again) != piece.crc32:
            raise CorruptDataError(
                f"the bytes are not those that were written: their CRC-32 differs{self._damage_remedy}",
                file=str(path),
                byte_range=(piece.start, piece.stop),
            )
        return again

    def will_need(self, path: Path, start: int, stop: int) -> None:
        """Ask the system to read these bytes into its cache now. Nothing waits for it, and nothing is an error: `read`
        finds that out."""
        with contextlib.suppress(OSError):
            self._places(path).file(reopen=False)[0].will_need(start, stop - start)

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
            refused = not_read(str(path), error, remedy=self._lost_remedy)
            refused.byte_range = (start, stop)
            raise refused from error
        if data is None:
            raise MissingDataError(
                f"{path} ends before byte {stop}, it was cut{'; ' if self._lost_remedy else ''}{self._lost_remedy}",
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
