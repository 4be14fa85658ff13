"""The index of cached ranges in SQLite: a row for each file, with what it takes of the disk. Only writers use it.

1. Rows are committed for what is to be written, in place of those of the files that are removed for it;
2. files are created while the index is locked and still has their rows;
3. the bytes are written, without a lock, by whoever asked for the files.

So there is no file without a row, wherever a process is killed, and the rows together take at most the limit.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence

from .range_files import RangeFiles, close_all
from .this_process import boot

# In each removal, the time of last use is read from the files of at most this many candidates.
_CANDIDATES = 256
_BUSY_SECONDS = 10.0

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS entries (name BLOB PRIMARY KEY, bytes INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_use ON entries (used);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT OR IGNORE INTO state SELECT 'bytes', COALESCE(SUM(bytes), 0) FROM entries
    WHERE NOT EXISTS (SELECT 1 FROM state WHERE name = 'bytes');
"""


class RangeIndex:
    """The rows of `files`. It is opened when it is needed. Any number of threads and processes may use it."""

    def __init__(self, files: RangeFiles) -> None:
        self._files = files
        self._path = files.folder / "index.sqlite"
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        # Closes it with the index, which nobody has to close: Python 3.13 warns of a connection that was left open.
        self._closing: weakref.finalize[..., RangeIndex] | None = None
        _indexes.add(self)

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @property
    def used_bytes(self) -> int:
        """What the rows say is taken; 0 where nothing was ever written."""
        if not os.path.exists(self._path):  # noqa: PTH110  # Path.exists raises for some names
            return 0
        with self._lock:
            return _total(self._opened())

    def create(self, sizes: Mapping[bytes, int], max_bytes: int) -> tuple[list[int | None], int]:
        """Add rows for files of these names, and what they take, and remove others so that all together take at most
        `max_bytes`. Returns a descriptor of each file, None where another process removed the row meanwhile, and the
        time of use that was noted, in nanoseconds."""
        with self._lock:
            index = self._opened()
            now = self._reserve(index, sizes, max_bytes)
            return self._created(index, list(sizes)), now

    def close(self) -> None:
        """Close it. It is opened again when it is needed."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._closing is not None:
            self._closing()
        self._connection = self._closing = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
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

    def _reserve(self, index: sqlite3.Connection, sizes: Mapping[bytes, int], max_bytes: int) -> int:
        """Commit rows for these names, and remove what has to go for them. Returns when they were used."""
        with _locked(index):
            now = time.time_ns()
            # Their files may be damaged, or not have been written.
            there = [name for name in sizes if _update(index, name, now)]
            added = {name: size for name, size in sizes.items() if name not in there}
            total = _total(index) + sum(added.values())
            if total > max_bytes:
                total -= self._remove_oldest(index, total - max_bytes, there)
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
                last_used = self._files.last_used(name)
                if last_used is not None and last_used > used:
                    _update(index, name, last_used)
                    continue
            # The file goes first: a kill leaves a row without a file.
            self._files.remove(name)
            index.execute("DELETE FROM entries WHERE name = ?", (name,))
            removed += size
        return removed

    def _created(self, index: sqlite3.Connection, names: Sequence[bytes]) -> list[int | None]:
        """A descriptor of the file of each name; None where another process removed the row meanwhile."""
        files: list[int | None] = []
        try:
            with _locked(index):
                for name in names:
                    is_known = _is_known(index, name)
                    files.append(self._files.opened(name) if is_known else None)
        except BaseException:
            close_all(files)
            raise
        return files

    def _remove_unknown(self, index: sqlite3.Connection) -> None:
        """After a crash of the machine the last rows may be lost although their files exist: remove such files."""
        this_boot = boot()
        if index.execute("SELECT value FROM state WHERE name = 'boot'").fetchone() == (this_boot,):
            return
        with _locked(index):
            for name in self._files.names():
                if not _is_known(index, name):
                    self._files.remove(name)
            index.execute("INSERT OR REPLACE INTO state VALUES ('boot', ?)", (this_boot,))


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


def _total(index: sqlite3.Connection) -> int:
    row = index.execute("SELECT value FROM state WHERE name = 'bytes'").fetchone()
    if row is None:
        row = index.execute("SELECT COALESCE(SUM(bytes), 0) FROM entries").fetchone()
    return int(row[0])


def _is_known(index: sqlite3.Connection, name: bytes) -> bool:
    return index.execute("SELECT 1 FROM entries WHERE name = ?", (name,)).fetchone() is not None


def _update(index: sqlite3.Connection, name: bytes, used: int) -> bool:
    """Note when an entry was used; False if it has no row."""
    return bool(index.execute("UPDATE entries SET used = ? WHERE name = ?", (used, name)).rowcount)


# A connection to SQLite must not be carried across a fork: the child would count on locks that only its parent has.
_indexes: weakref.WeakSet[RangeIndex] = weakref.WeakSet()
_held: list[RangeIndex] = []


def _before_fork() -> None:
    for index in list(_indexes):
        index._lock.acquire()  # noqa: SLF001
        index._close()  # noqa: SLF001
        _held.append(index)


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()  # noqa: SLF001


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
