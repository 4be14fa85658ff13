"""Byte ranges of objects, kept on a local disk for all processes of a host.

An entry is a file that has the bytes and nothing else. Its name is a hash of what they are: place, key, range and
CRC-32. The reader knows the CRC-32, so a file that is being written, was cut or is damaged counts as missing. A hit is
an ordinary read of a file, which takes no lock. It sets the file's time: the entry was used then.

An index in SQLite (`range_index`) has a row for each entry, with what it takes of the disk. It is only used to write.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from ..warned import warn
from .network_folders import shared_between_hosts
from .range_files import RangeFiles, write_and_close
from .range_index import RangeIndex

# What an entry takes besides its bytes, at most: its row in both trees of the index, its inode and its name.
_ENTRY_BYTES = 512
_BLOCK_BYTES = 1 << 12


class Entry(NamedTuple):
    """Bytes [start, stop) of the file `key` at `place`, and their CRC-32. No other content ever has that key."""

    place: str
    key: str
    start: int
    stop: int
    crc32: int

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start

    @property
    def name(self) -> bytes:
        """A name that no other entry has: 16 bytes. Places on two servers may have one name, so the CRC-32 is in it."""
        what = f"{self.place}\0{self.key}\0{self.start}\0{self.stop}\0{self.crc32}"
        return blake2b(what.encode(), digest_size=16).digest()


def disk_bytes(num_bytes: int) -> int:
    """What an entry of this length counts for: whole blocks of a disk, and its share of the index."""
    return -(-num_bytes // _BLOCK_BYTES) * _BLOCK_BYTES + _ENTRY_BYTES


class RangeCache:
    """Entries below a folder. Together they take at most `max_bytes`; those that were not used for longest go first.

    Any number of threads, forked processes and other processes of the host may use it, each with its own limit. A
    pickle holds folder and limit. Where the disk is full, cannot be written, or is another host's too, this process
    warns once and goes on without adding entries.

    The order of use is exact as long as no more than 256 entries were used again since they were written or last looked
    at. Beyond that, of at least 256 entries the one goes that was used the longest ago. After a crash of the whole
    machine, the first process that writes removes files that the index does not know.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder / "ranges-1"
        self.max_bytes = max_bytes
        self._files = RangeFiles(self.folder)
        self._index = RangeIndex(self._files)
        self.stopped: str | None = None
        """Why this process adds nothing any more."""
        self.remedy = "free some space, or give another folder"
        """What can be done about that."""

    def __reduce__(self) -> tuple[type[RangeCache], tuple[Path, int]]:
        return RangeCache, (self.folder.parent, self.max_bytes)

    def has(self, entry: Entry) -> bool:
        """Whether there is a file for an entry. It may be gone a moment later, or be damaged."""
        return self._files.has(entry.name, entry.num_bytes)

    def get(self, entry: Entry) -> bytes | None:
        """The bytes of an entry; None if they are not there, or not those that were written."""
        return self._files.read(entry.name, entry.num_bytes, entry.crc32)

    def put(self, items: Sequence[tuple[Entry, bytes | memoryview]]) -> None:
        """Keep bytes, whose CRC-32 was checked. Those that are longer than the limit are left out."""
        if self.stopped is not None:
            return
        if not self._index.is_open and (kind := shared_between_hosts(self.folder)) is not None:
            # SQLite's write-ahead log takes memory that its processes have in common.
            self._stop(OSError(errno.ENOTSUP, f"it is on {kind}, and its index works for the processes of one host"))
            return
        contents: dict[bytes, bytes | memoryview] = {}
        sizes: dict[bytes, int] = {}
        room = self.max_bytes
        for entry, data in items:
            if (size := disk_bytes(entry.num_bytes)) <= room:
                room -= size
                name = entry.name
                contents[name], sizes[name] = data, size
        if not sizes:
            return
        try:
            files, now = self._index.create(sizes, self.max_bytes)
            write_and_close(files, list(contents.values()), now)
        except Exception as error:  # noqa: BLE001  # it runs on a thread whose errors nobody sees
            self._stop(error)

    @property
    def used_bytes(self) -> int:
        """What the entries take, as `disk_bytes` counts it; 0 where nothing was ever written."""
        return self._index.used_bytes

    def close(self) -> None:
        """Close the index. It is opened again when it is needed."""
        self._index.close()

    def _stop(self, error: Exception) -> None:
        if self.stopped is not None:
            return
        if isinstance(error, OSError) and error.errno == errno.ENOTSUP:
            self.remedy = "give another folder"
        is_refused = isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        # SQLite says of a folder that it may not write to only that it cannot open its file.
        is_there = os.path.exists(self.folder)  # noqa: PTH110  # Path.exists raises for some names
        if is_refused or (is_there and not os.access(self.folder, os.W_OK)):
            self.remedy = "give another folder, which can be written to"
        self.stopped = str((error.strerror if isinstance(error, OSError) else None) or error) or type(error).__name__
        self.close()
        warn(
            f"nothing more is kept in {self.folder}: {self.stopped}; what was kept is still used. To go on keeping, "
            f"{self.remedy}, as cache_dir on a local disk"
        )
