"""The sources of a job, as many as there are: a temporary database, of which little is in memory.

SQLite keeps it in memory until it outgrows its cache, then in a file without a name below TMPDIR, or /var/tmp, which is
gone with the process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ..errors import OutputError
from ..prep.stretch import Stretch
from .look import Looked
from .sources import Found, Source, same
from .windows import Window, windows

_CACHE_KILOBYTES = 32_768
# Where SQLite puts files without a name, in most cases.
_FOLDER = os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108

# `leader` is the least id of the stretches of a file: where they stand in the order of all sources.
_TABLES = f"""
PRAGMA cache_size = -{_CACHE_KILOBYTES};
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
BEGIN;
CREATE TABLE sources (id BLOB UNIQUE, file BLOB, leader BLOB, found BLOB);
CREATE INDEX of_file ON sources (file, id) WHERE file IS NOT NULL;
CREATE TABLE looked (id BLOB PRIMARY KEY, new_id BLOB, item BLOB);
CREATE INDEX of_new_id ON looked (new_id, id) WHERE new_id IS NOT NULL;
"""


@dataclass(frozen=True)
class Row:
    """A source, and what looking at it has found, if that was kept."""

    source: Source
    looked: Looked | None


class SourceTable:
    """Sources by id. Close it at the end. One thread at a time may use it. OutputError where TMPDIR is too small."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self.num_in_store = 0
        with _on_disk():
            self._database.executescript(_TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def __len__(self) -> int:
        (count,) = self._first("SELECT count(*) FROM sources") or (0,)
        return int(count)

    def __contains__(self, source_id: str) -> bool:
        return self._has("SELECT 1 FROM sources WHERE id = ?", _key(source_id))

    def add(self, found: Iterable[Found]) -> None:
        """Add sources. Several finds of one source are one. UsageError if two have one id and are not the same."""
        with _on_disk():
            cursor = self._database.cursor()
            for each in found:
                source = each.source
                file = repr(source.file).encode() if isinstance(source.part, Stretch) else None
                cursor.execute(
                    "INSERT OR IGNORE INTO sources (id, file, found) VALUES (?, ?, ?)",
                    (_key(source.id), file, _packed(each)),
                )
                if cursor.rowcount:
                    self.num_in_store += source.in_store is not None
                    continue
                (before,) = self._first("SELECT found FROM sources WHERE id = ?", _key(source.id)) or (b"",)
                one = same(_unpacked(before), each)
                self._execute("UPDATE sources SET found = ? WHERE id = ?", _packed(one), _key(source.id))

    def keep(self, ids: Collection[str]) -> None:
        """Remove all sources but these."""
        self.remove([source.id for source in self.sources() if source.id not in ids])

    def remove(self, ids: Iterable[str]) -> None:
        for source_id in ids:
            self._execute("DELETE FROM sources WHERE id = ?", _key(source_id))

    def find(self, source_id: str) -> Source | None:
        row = self._first("SELECT found FROM sources WHERE id = ?", _key(source_id))
        return None if row is None else _source(row[0])

    def sources(self) -> Iterator[Source]:
        """All sources, sorted by id."""
        for (found,) in self._each("SELECT found FROM sources ORDER BY id"):
            yield _source(found)

    def windows(self, size: int) -> list[Window[bytes]]:
        """The windows of all sources, sorted by id; stretches of a file stand where the first of their ids stands."""
        self._execute(
            "UPDATE sources SET leader = (SELECT min(other.id) FROM sources AS other WHERE other.file = sources.file) "
            "WHERE file IS NOT NULL"
        )
        self._execute("CREATE INDEX in_order ON sources (coalesce(leader, id))")
        keys = self._each("SELECT coalesce(leader, id) AS place FROM sources ORDER BY place")
        return list(windows((key for (key,) in keys), len(self), size))

    def rows(self, window: Window[bytes]) -> list[Row]:
        """The sources of a window that were not removed since, sorted by id, with what was kept of looking at them."""
        found = self._each(
            "SELECT found, item FROM (SELECT id, found FROM sources WHERE coalesce(leader, id) BETWEEN ? AND ?) AS own "
            "LEFT JOIN looked ON looked.id = own.id ORDER BY own.id",
            window.first, window.last,
        )  # fmt: skip
        return [Row(_source(source), None if item is None else _looked(item)) for source, item in found]

    def save(self, looked: Iterable[tuple[Source, Looked]]) -> None:
        """Keep what looking at sources has found. An item may have another id than its source, see `known_paths`."""
        for source, each in looked:
            new_id = each.item.source.id
            self._execute(
                "INSERT INTO looked (id, new_id, item) VALUES (?, ?, ?)",
                _key(source.id), _key(new_id) if new_id != source.id else None, pickle.dumps(each),
            )  # fmt: skip

    def merge(self) -> None:
        """Make one source of those that have the same id now: the last one from a list."""
        renamed = self._each("SELECT id, new_id FROM looked WHERE new_id IS NOT NULL ORDER BY id")
        for old, new in list(renamed):
            later = self._has("SELECT 1 FROM looked WHERE new_id = ? AND id > ?", new, old)
            named = self.find(new.decode())
            if later or (named is not None and named.is_listed and new > old):
                self.remove([old.decode()])
            elif named is not None:
                self._execute("DELETE FROM looked WHERE id = ?", new)
                self._execute("UPDATE looked SET id = new_id WHERE id = ?", old)
                self.remove([old.decode()])

    def looked_at(self, window: Window[bytes]) -> list[Looked]:
        """What was kept of looking at the sources of a window."""
        found = self._each(
            "SELECT item FROM (SELECT id FROM sources WHERE coalesce(leader, id) BETWEEN ? AND ?) AS own "
            "JOIN looked ON looked.id = own.id ORDER BY own.id",
            window.first, window.last,
        )  # fmt: skip
        return [_looked(item) for (item,) in found]

    def looked_sources(self, windows: Iterable[Window[bytes]]) -> Iterator[list[Source]]:
        """The sources that were looked at, of one window after the other."""
        return ([each.item.source for each in self.looked_at(window)] for window in windows)

    def was_looked_at(self, source_id: str) -> bool:
        return self._has("SELECT 1 FROM looked WHERE id = ?", _key(source_id))

    def _execute(self, command: str, *values: bytes | None) -> None:
        with _on_disk():
            self._database.execute(command, values)

    def _first(self, query: str, *values: bytes) -> tuple[Any, ...] | None:
        with _on_disk():
            row: tuple[Any, ...] | None = self._database.execute(query, values).fetchone()
        return row

    def _has(self, query: str, *values: bytes) -> bool:
        return self._first(query, *values) is not None

    def _each(self, query: str, *values: bytes) -> Iterator[tuple[Any, ...]]:
        with _on_disk():
            yield from self._database.execute(query, values)


def _key(source_id: str) -> bytes:
    # The order of UTF-8 is that of code points, in which Python sorts text. Ids are valid Unicode.
    return source_id.encode()


def _packed(found: Found) -> bytes:
    return pickle.dumps(found, pickle.HIGHEST_PROTOCOL)


def _unpacked(data: bytes) -> Found:
    found: Found = pickle.loads(data)  # noqa: S301  # of this process
    return found


def _source(data: bytes) -> Source:
    return _unpacked(data).source


def _looked(data: bytes) -> Looked:
    looked: Looked = pickle.loads(data)  # noqa: S301  # of this process
    return looked


@contextlib.contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OutputError(
            f"the list of sources cannot be kept in {_FOLDER}: {error}; free some space, or set TMPDIR to a larger "
            "disk, and run the same command again",
            file=_FOLDER,
        ) from error
