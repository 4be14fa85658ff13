"""Byte ranges of objects, kept on a local disk for all processes of a host.

An entry is a file that has the bytes and nothing else. Its name is a hash of what they are: place, key, range and
CRC-32. The reader knows the CRC-32, so a file that is being written, was cut or is damaged counts as missing. A hit is
an ordinary read of a file, which takes no lock. It sets the file's time: the entry was used then.

An index in SQLite has a row for each entry, with what it takes of the disk. It is only used to write:

1. rows are committed for what is to be written, in place of those of the entries that are removed for it;
2. files are created while the index is locked and still has their rows;
3. the bytes are written, without a lock.

So there is no file without a row, wherever a process is killed, and the rows together take at most the limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from ..warned import warn
from .network_folders import shared_between_hosts
from .this_process import boot

# What an entry takes besides its bytes, at most: its row in both trees of the index, its inode and its name.
_ENTRY_BYTES = 512
_BLOCK_BYTES = 1 << 12
# In each removal, the time of last use is read from the files of at most this many candidates.
_CANDIDATES = 256
_BUSY_SECONDS = 10.0
_FOLDERS = 256
# The 16 bytes of a name, of which the first is that of the folder.
_FILE_NAME = re.compile(r"[0-9a-f]{30}")

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS entries (name BLOB PRIMARY KEY, bytes INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_use ON entries (used);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT OR IGNORE INTO state SELECT 'bytes', COALESCE(SUM(bytes), 0) FROM entries
    WHERE NOT EXISTS (SELECT 1 FROM state WHERE name = 'bytes');
"""


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
    at. Beyond that the entry that goes was used the longest ago of 256 at least. After a crash of the whole machine,
    the first process that writes removes files that the index does not know.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder / "ranges-1"
        self.max_bytes = max_bytes
        self._parent = str(self.folder)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        # Closes it with the cache, which nobody has to close: Python 3.13 warns of a connection that was left open.
        self._closing: weakref.finalize[..., RangeCache] | None = None
        self.stopped: str | None = None
        """Why this process adds nothing any more."""
        self.remedy = "free some space, or give another folder"
        """What can be done about that."""
        _caches.add(self)

    def __reduce__(self) -> tuple[type[RangeCache], tuple[Path, int]]:
        return RangeCache, (self.folder.parent, self.max_bytes)

    def has(self, entry: Entry) -> bool:
        """Whether there is a file for an entry. It may be gone a moment later, or be damaged."""
        try:
            # As a Path it takes twice as long.
            return os.stat(self._path(entry.name)).st_size == entry.num_bytes  # noqa: PTH116
        except OSError:
            return False

    def get(self, entry: Entry) -> bytes | None:
        """The bytes of an entry; None if they are not there, or not those that were written."""
        try:
            file = os.open(self._path(entry.name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.pread(file, entry.num_bytes, 0)
            if len(data) != entry.num_bytes or zlib.crc32(data) != entry.crc32:
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

    def put(self, items: Sequence[tuple[Entry, bytes | memoryview]]) -> None:
        """Keep bytes, whose CRC-32 was checked. Those that are longer than the limit are left out."""
        if self.stopped is not None:
            return
        if self._connection is None and (kind := shared_between_hosts(self.folder)) is not None:
            # SQLite's write-ahead log takes memory that its processes have in common.
            self._stop(OSError(errno.ENOTSUP, f"it is on {kind}, and its index works for the processes of one host"))
            return
        fitting, room = [], self.max_bytes
        for entry, data in items:
            if (size := disk_bytes(entry.num_bytes)) <= room:
                room -= size
                fitting.append((entry, data))
        if not fitting:
            return
        sizes = {entry.name: disk_bytes(entry.num_bytes) for entry, _ in fitting}
        try:
            with self._lock:
                now = self._reserve(sizes)
                files = self._created([entry.name for entry, _ in fitting])
            self._write(files, [data for _, data in fitting], now)
        except Exception as error:  # noqa: BLE001  # it runs on a thread whose errors nobody sees
            self._stop(error)

    @property
    def used_bytes(self) -> int:
        """What the entries take, as `disk_bytes` counts it; 0 where nothing was ever written."""
        if not (self.folder / "index.sqlite").exists():
            return 0
        with self._lock:
            return self._total(self._index())

    def close(self) -> None:
        """Close the index. It is opened again when it is needed."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._closing is not None:
            self._closing()
        self._connection = self._closing = None

    def _path(self, name: bytes) -> str:
        text = name.hex()
        return f"{self._parent}/{text[:2]}/{text[2:]}"

    def _index(self) -> sqlite3.Connection:
        if self._connection is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.folder / "index.sqlite", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                connection.executescript(_SCHEMA)
                self._remove_unknown(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._closing = connection, weakref.finalize(self, _close_connection, connection)
            self._closing.atexit = False
        return self._connection

    def _reserve(self, sizes: dict[bytes, int]) -> int:
        """Commit rows for these names, and remove what has to go for them. Returns when they were used."""
        index = self._index()
        with _locked(index):
            now = time.time_ns()
            # Their files may be damaged, or not have been written.
            there = [name for name in sizes if _update(index, name, now)]
            added = {name: size for name, size in sizes.items() if name not in there}
            total = self._total(index) + sum(added.values())
            if total > self.max_bytes:
                total -= self._remove_oldest(index, total - self.max_bytes, there)
            index.executemany("INSERT INTO entries VALUES (?, ?, ?)", [(*each, now) for each in added.items()])
            index.execute("INSERT OR REPLACE INTO state VALUES ('bytes', ?)", (total,))
        return now

    def _remove_oldest(self, index: sqlite3.Connection, excess: int, keep: Sequence[bytes]) -> int:
        """Remove entries of `excess` bytes or more, as far as there are others than `keep`. Returns how many bytes."""
        others = f"name NOT IN ({', '.join('?' * len(keep))})"
        oldest = f"SELECT name, bytes, used FROM entries WHERE {others} ORDER BY used LIMIT 1"  # noqa: S608
        looked_up, removed = 0, 0
        while removed < excess and (row := index.execute(oldest, keep).fetchone()) is not None:
            name, size, used = row
            if looked_up < _CANDIDATES:
                looked_up += 1
                last_used = _time_of(self._path(name))
                if last_used is not None and last_used > used:
                    _update(index, name, last_used)
                    continue
            # The file goes first: a kill leaves a row without a file.
            with contextlib.suppress(FileNotFoundError):
                Path(self._path(name)).unlink()
            index.execute("DELETE FROM entries WHERE name = ?", (name,))
            removed += size
        return removed

    def _created(self, names: Sequence[bytes]) -> list[int | None]:
        """A descriptor of the file of each name; None where another process removed the row meanwhile."""
        index = self._index()
        files: list[int | None] = []
        try:
            with _locked(index):
                for name in names:
                    known = index.execute("SELECT 1 FROM entries WHERE name = ?", (name,)).fetchone()
                    files.append(_opened(self._path(name)) if known else None)
        except BaseException:
            for file in files:
                if file is not None:
                    os.close(file)
            raise
        return files

    @staticmethod
    def _write(files: Sequence[int | None], contents: Sequence[bytes | memoryview], used: int) -> None:
        """Two processes may write the same file at once. They write the same bytes."""
        try:
            for file, data in zip(files, contents, strict=True):
                if file is not None:
                    _write_all(file, memoryview(data))
                    os.utime(file, ns=(used, used))
        finally:
            for file in files:
                if file is not None:
                    os.close(file)

    def _remove_unknown(self, index: sqlite3.Connection) -> None:
        """After a crash of the machine the last rows may be lost although their files exist: remove such files."""
        this_boot = boot()
        if index.execute("SELECT value FROM state WHERE name = 'boot'").fetchone() == (this_boot,):
            return
        with _locked(index):
            for number in range(_FOLDERS):
                with contextlib.suppress(FileNotFoundError), os.scandir(f"{self._parent}/{number:02x}") as files:
                    for file in files:
                        # Others may put files there: .DS_Store, .nfs0001.
                        if not _FILE_NAME.fullmatch(file.name) or not file.is_file(follow_symlinks=False):
                            continue
                        name = bytes.fromhex(f"{number:02x}{file.name}")
                        if not index.execute("SELECT 1 FROM entries WHERE name = ?", (name,)).fetchone():
                            Path(file.path).unlink()
            index.execute("INSERT OR REPLACE INTO state VALUES ('boot', ?)", (this_boot,))

    @staticmethod
    def _total(index: sqlite3.Connection) -> int:
        row = index.execute("SELECT value FROM state WHERE name = 'bytes'").fetchone()
        if row is None:
            row = index.execute("SELECT COALESCE(SUM(bytes), 0) FROM entries").fetchone()
        return int(row[0])

    def _stop(self, error: Exception) -> None:
        if self.stopped is not None:
            return
        if isinstance(error, OSError) and error.errno == errno.ENOTSUP:
            self.remedy = "give another folder"
        is_refused = isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        # SQLite says of a folder that it may not write to only that it cannot open its file.
        if is_refused or (self.folder.exists() and not os.access(self.folder, os.W_OK)):
            self.remedy = "give another folder, which can be written to"
        self.stopped = str((error.strerror if isinstance(error, OSError) else None) or error) or type(error).__name__
        self.close()
        warn(
            f"nothing more is kept in {self.folder}: {self.stopped}; what was kept is still used. To go on keeping, "
            f"{self.remedy}, as cache_dir on a local disk"
        )


def _close_connection(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):
        connection.close()


@contextlib.contextmanager
def _locked(index: sqlite3.Connection) -> Iterator[None]:
    """A transaction that no other process writes beside."""
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
        index.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            index.execute("ROLLBACK")
        raise


def _update(index: sqlite3.Connection, name: bytes, used: int) -> bool:
    """Note when an entry was used; False if it has no row."""
    return bool(index.execute("UPDATE entries SET used = ? WHERE name = ?", (used, name)).rowcount)


def _time_of(path: str) -> int | None:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return None


def _opened(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        Path(path).parent.mkdir(exist_ok=True)
        return os.open(path, flags, 0o666)


def _write_all(file: int, data: memoryview) -> None:
    written = 0
    while written < data.nbytes:
        written += os.pwrite(file, data[written:], written)
    # A damaged file may have been longer.
    os.ftruncate(file, written)


# A connection to SQLite must not be carried across a fork: the child would count on locks that only its parent has.
_caches: weakref.WeakSet[RangeCache] = weakref.WeakSet()
_held: list[RangeCache] = []


def _before_fork() -> None:
    for cache in list(_caches):
        cache._lock.acquire()  # noqa: SLF001
        cache._close()  # noqa: SLF001
        _held.append(cache)


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()  # noqa: SLF001


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
