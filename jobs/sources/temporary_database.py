"""A temporary database that several threads use, of which little is in memory.

SQLite keeps it in memory until it outgrows its cache, then in a file without a name below TMPDIR, or /var/tmp, which is
gone with the process.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from ...errors import OutputError

_CACHE_KILOBYTES = 32_768
_CLOSING_SECONDS = 2
# Four times the usual: a fifth less time for a million sources, and a fifth more for reading those of a window, which
# is done ahead.
_PAGE_BYTES = 16_384
# Where SQLite puts files without a name: the first of these in which they can be made (`unixTempFileDir` in os_unix.c).
_VARIABLES, _FOLDERS = ("SQLITE_TMPDIR", "TMPDIR"), ("/var/tmp", "/usr/tmp", "/tmp")  # noqa: S108

# Nothing of it outlives the process, so all is one transaction, which never ends.
_SETTINGS = f"""
PRAGMA page_size = {_PAGE_BYTES};
PRAGMA cache_size = -{_CACHE_KILOBYTES};
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
BEGIN;
"""

Value = bytes | bytearray | str | int | None


class TableBusyError(Exception):
    """Another thread changes the tables."""


class TemporaryDatabase:
    """Tables made by a script in SQL. `what` is what they hold, for messages.

    While one thread changes them, others may read, and close the database: the thread that changes gets CancelledError
    then. OutputError where TMPDIR is too small.
    """

    def __init__(self, tables: str, what: str) -> None:
        self._what = what
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        # Of the connection. Whoever reads several rows holds it until all were read.
        self._lock = threading.RLock()
        self._is_closed = False
        with self._on_disk():
            self._connection.executescript(_SETTINGS + tables)

    def close(self) -> None:
        self._is_closed = True
        # Closing it while another thread is in SQLite crashes the process. This ends what that thread waits for.
        self._connection.interrupt()
        # Not if the thread waits for a disk that does not answer. Then the database ends with the process.
        if self._lock.acquire(timeout=_CLOSING_SECONDS):
            self._connection.close()
            self._lock.release()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """No other thread reads or changes anything in the block. CancelledError if the database was closed, or is
        closed meanwhile."""
        with self._lock:
            if self._is_closed:
                raise CancelledError
            try:
                with self._on_disk():
                    yield
            except OutputError:
                if self._is_closed:
                    raise CancelledError from None
                raise

    @contextlib.contextmanager
    def held(self, wait_seconds: float) -> Iterator[None]:
        """No other thread reads or changes anything in the block. TableBusyError if another one is at it for longer
        than `wait_seconds`."""
        if not self._lock.acquire(timeout=wait_seconds):
            raise TableBusyError
        try:
            yield
        finally:
            self._lock.release()

    def execute(self, command: str, *values: Value) -> None:
        with self._lock, self._on_disk():
            self._connection.execute(command, values)

    def execute_many(self, command: str, rows: Iterable[Sequence[Value]]) -> None:
        """Execute a command once for the values of each row."""
        with self._lock, self._on_disk():
            self._connection.executemany(command, rows)

    def first(self, query: str, *values: Value) -> tuple[Any, ...] | None:
        """The first row of the answer."""
        with self._lock, self._on_disk():
            row: tuple[Any, ...] | None = self._connection.execute(query, values).fetchone()
        return row

    def has(self, query: str, *values: Value) -> bool:
        """Whether there is a row."""
        return self.first(query, *values) is not None

    def each(self, query: str, *values: Value) -> Generator[tuple[Any, ...]]:
        """The rows, one after the other. Other threads wait until all were taken, or the generator is closed."""
        with self._lock, self._on_disk():
            yield from self._connection.execute(query, values)

    @contextlib.contextmanager
    def _on_disk(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            folder = _folder()
            raise OutputError(
                f"{self._what} cannot be kept in {folder}: {error}; free some space, or set TMPDIR to a larger disk, "
                "and run the same command again",
                file=folder,
            ) from error


def _folder() -> str:
    named = (os.environ.get(name, "") for name in _VARIABLES)
    return next((each for each in (*named, *_FOLDERS) if each and os.access(each, os.W_OK | os.X_OK)), ".")
