"""The sources of a job, as many as there are: a temporary database, of which little is in memory.

SQLite keeps it in memory until it outgrows its cache, then in a file without a name below TMPDIR, or /var/tmp, which is
gone with the process.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sqlite3
import threading
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..errors import OutputError
from ..prep.stretch import Stretch
from .look import Looked
from .source import Found, Source, same
from .windows import Window, first_size, one_window_size, windows

_CACHE_KILOBYTES = 32_768
_CLOSING_SECONDS = 2
# Four times the usual: a fifth less time for a million sources, and a fifth more for reading those of a window, which
# is done ahead.
_PAGE_BYTES = 16_384
# Where SQLite puts files without a name, in most cases.
_FOLDER = os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108

# What most sources have is in columns of its own, since pickling a million sources takes long; `rest` is pickled.
# `given` is null where it is the path, `attributes` where it is an empty object. `flags` are those of `_packed`.
# `leader` is the least id of the stretches of a file: where they stand in the order of all sources. `number` says in
# which order sources were found; SQLite itself would give numbers again that were removed. Texts are bytes, because
# names of files need not be Unicode.
_TABLES = f"""
PRAGMA page_size = {_PAGE_BYTES};
PRAGMA cache_size = -{_CACHE_KILOBYTES};
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
BEGIN;
CREATE TABLE sources (
    number INTEGER PRIMARY KEY, id BLOB, path BLOB, given BLOB, attributes BLOB, flags INTEGER, rest BLOB, place BLOB,
    file BLOB, leader BLOB
);
CREATE TABLE unwanted (number INTEGER PRIMARY KEY);
CREATE TABLE looked (id BLOB PRIMARY KEY, new_id BLOB, item BLOB);
CREATE INDEX of_new_id ON looked (new_id, id) WHERE new_id IS NOT NULL;
"""
# An index of what is there already is made much faster than one that grows.
_INDEX = "CREATE INDEX IF NOT EXISTS of_id ON sources (id)"
_INDEX_OF_FILES = "CREATE INDEX IF NOT EXISTS of_file ON sources (file, id) WHERE file IS NOT NULL"
_SOURCE = "sources.id, path, given, attributes, flags, rest"
# Python binds numbers, text and byte arrays several times as fast as None, booleans and bytes, which it first tries to
# adapt to other types. So a column that is null has a value that stands for it here.
_INSERT = """
INSERT INTO sources (id, path, given, attributes, flags, rest, place, file, number) VALUES (
    CAST(?1 AS BLOB), CAST(?2 AS BLOB), CAST(nullif(?3, ?2) AS BLOB), CAST(nullif(?4, '{}') AS BLOB), ?5,
    CAST(nullif(?6, '') AS BLOB), CAST(?7 AS BLOB), CAST(nullif(?8, '') AS BLOB), ?9
)
"""
# Several finds of one source, one after the other.
_REPEATED = (
    f"SELECT number, {_SOURCE}, place FROM sources "  # noqa: S608  # of constants
    "WHERE id IN (SELECT id FROM sources GROUP BY id HAVING count(*) > 1) ORDER BY id, number"
)
_ALL = f"SELECT {_SOURCE} FROM sources ORDER BY id"  # noqa: S608  # of constants
_ONE = f"SELECT {_SOURCE} FROM sources WHERE id = ?"  # noqa: S608  # of constants

# The flags of a source, and where they are among its columns.
_IS_PART, _ID_IS_GIVEN, _IS_LISTED, _LISTED = 8, 4, 2, 1
_FLAGS = 4

_Bound = str | int | bytearray

# The key of the window of those that were found first; no id is empty.
_FOUND_FIRST = b""


@dataclass(frozen=True)
class Row:
    """A source, and what looking at it has found, if that was kept."""

    source: Source
    looked: Looked | None


class Named(NamedTuple):
    """What little of a source says whether it has to be looked at. The fields are those of `Source`."""

    id: str
    path: str
    id_is_given: bool
    is_named_by_path: bool


class SourceTable:
    """Sources by id. Close it at the end. One thread at a time may use it, and a thread that adds sources may still do
    so when another one closes the table: it gets CancelledError then. OutputError where TMPDIR is too small."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._adding = threading.Lock()
        self._is_closed = False
        self.num_found = 0
        self._has_stretches = False
        self._num_first = 0
        with _on_disk():
            self._database.executescript(_TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        # Closing it while another thread is in SQLite crashes the process. This ends what that thread waits for.
        self._database.interrupt()
        # Not if the thread waits for a disk that does not answer. Then the database ends with the process.
        if self._adding.acquire(timeout=_CLOSING_SECONDS):
            self._database.close()
            self._adding.release()

    def __len__(self) -> int:
        (count,) = self._first("SELECT count(*) FROM sources") or (0,)
        return int(count)

    def __contains__(self, source_id: str) -> bool:
        return self._has("SELECT 1 FROM sources WHERE id = ?", _bytes(source_id))

    def add(self, found: Iterable[Found]) -> None:
        """Add sources. Several finds of one source are one. UsageError if two have one id and are not the same."""
        self._add(found, is_last=True)

    def add_first(self, found: Iterable[Found]) -> None:
        """Add some sources, and later all others with `add`."""
        self._add(found, is_last=False)

    def _add(self, found: Iterable[Found], *, is_last: bool) -> None:
        with self._adding:
            if self._is_closed:
                raise CancelledError
            try:
                with _on_disk():
                    self._database.executemany(_INSERT, map(self._packed, found))
                if is_last:
                    self._execute(_INDEX)
                self._merge_finds()
            except OutputError:
                if self._is_closed:
                    raise CancelledError from None
                raise

    def _packed(self, found: Found) -> tuple[_Bound, ...]:
        if self._is_closed:
            raise CancelledError
        self.num_found += 1
        source, place, listed = found
        source_id, path, given, attributes, id_is_given, is_listed, part, in_store = source
        rest: _Bound = ""
        file: _Bound = ""
        if part is not None or in_store is not None:
            rest = bytearray(pickle.dumps((part, in_store)))
            if isinstance(part, Stretch):
                self._has_stretches = True
                file = _bound(repr(source.file))
        is_part = part is not None
        flags = _IS_PART * is_part | _ID_IS_GIVEN * id_is_given | _IS_LISTED * is_listed | _LISTED * listed
        if not f"{source_id}{path}{given}{attributes}{place}".isascii():
            return (
                _bound(source_id), _bound(path), _bound(given), _bound(attributes), flags, rest, _bound(place), file,
                self.num_found,
            )  # fmt: skip
        return source_id, path, given, attributes, flags, rest, place, file, self.num_found

    def _merge_finds(self) -> None:
        """Make one source of all finds with the same id, which stands where the first of them was found."""
        if not self._has("SELECT 1 WHERE (SELECT count(DISTINCT id) FROM sources) < (SELECT count(*) FROM sources)"):
            return
        moved = []
        # The query ends before the database is closed, even if two finds are not the same.
        with contextlib.closing(self._each(_REPEATED)) as finds:
            for _, group in groupby(finds, key=lambda row: row[1]):
                kept: tuple[int, Found] | None = None
                for number, *columns, place in group:
                    found = number, Found(_source(columns), _text(place), bool(columns[_FLAGS] & _LISTED))
                    if kept is None:
                        kept, first = found, number
                        continue
                    unwanted = found if same(kept[1], found[1]) is kept[1] else kept
                    kept = kept if unwanted is found else found
                    self._execute("INSERT INTO unwanted (number) VALUES (?)", unwanted[0])
                if kept is not None and kept[0] != first:
                    moved.append((first, kept[0]))
        self._execute("DELETE FROM sources WHERE number IN unwanted")
        self._execute("DELETE FROM unwanted")
        for first, number in moved:
            self._execute("UPDATE sources SET number = ? WHERE number = ?", first, number)

    def keep(self, ids: Collection[str]) -> None:
        """Remove all sources but these."""
        self.remove([source.id for source in self.sources() if source.id not in ids])

    def remove(self, ids: Iterable[str]) -> None:
        for source_id in ids:
            self._execute("DELETE FROM sources WHERE id = ?", _bytes(source_id))

    def find(self, source_id: str) -> Source | None:
        row = self._first(_ONE, _bytes(source_id))
        return None if row is None else _source(row)

    def sources(self) -> Iterator[Source]:
        """All sources, sorted by id."""
        return map(_source, self._each(_ALL))

    def first_window(self, size: int) -> Window[bytes] | None:
        """The window of the sources that were found first, if there is more than one window. Encoding can begin with
        it before all are found. None if stretches are among them: their files may have others further on."""
        number = first_size(size)
        stretches = "SELECT 1 FROM sources WHERE number <= ? AND file IS NOT NULL"
        self._num_first = 0 if self.num_found <= one_window_size(size) or self._has(stretches, number) else number
        if not self._num_first:
            return None
        (count,) = self._first("SELECT count(*) FROM sources WHERE number <= ?", number) or (0,)
        return Window(_FOUND_FIRST, _FOUND_FIRST, count)

    def windows(self, size: int) -> list[Window[bytes]]:
        """The windows of all sources: those that were found first, and all others, sorted by id; stretches of a file
        stand where the first of their ids stands."""
        first = self.first_window(size)
        place = self._place()
        if self._has_stretches:
            self._execute(_INDEX_OF_FILES)
            self._execute(
                "UPDATE sources SET leader = "
                "(SELECT min(other.id) FROM sources AS other WHERE other.file = sources.file) WHERE file IS NOT NULL"
            )
            self._execute("CREATE INDEX IF NOT EXISTS in_order ON sources (coalesce(leader, id))")
        after_first = size if first is not None or len(self) <= one_window_size(size) else first_size(size)
        with _on_disk():
            keys = self._database.execute(
                f"SELECT {place} AS place FROM sources WHERE +number > ? ORDER BY place",  # noqa: S608  # of constants
                (self._num_first,),
            )
            found = windows(map(itemgetter(0), keys), size, after_first)
            return [*found] if first is None else [first, *found]

    def _place(self) -> str:
        """Where a source stands in the order of all, in SQL. An index of ids is there already."""
        return "coalesce(leader, sources.id)" if self._has_stretches else "sources.id"

    def _inside(self, window: Window[bytes]) -> tuple[str, tuple[bytes | int, ...]]:
        """The condition for sources of a window, in SQL, and its values."""
        if self._num_first and window.last == _FOUND_FIRST:
            return "number <= ?", (self._num_first,)
        # The + keeps SQLite from going through all numbers in place of the index.
        return f"{self._place()} BETWEEN ? AND ? AND +number > ?", (window.first, window.last, self._num_first)

    def rows(self, window: Window[bytes]) -> list[Row]:
        """The sources of a window that were not removed since, sorted by id, with what was kept of looking at them."""
        inside, values = self._inside(window)
        found = self._each(
            f"SELECT item, {_SOURCE} FROM sources LEFT JOIN looked ON looked.id = sources.id "  # noqa: S608
            f"WHERE {inside} ORDER BY sources.id",
            *values,
        )
        return [Row(_source(columns), None if item is None else _looked(item)) for item, *columns in found]

    def names(self, window: Window[bytes]) -> list[Named]:
        """What little is needed of the sources of a window, in a fifth of the time."""
        inside, values = self._inside(window)
        found = self._each(f"SELECT id, path, flags FROM sources WHERE {inside}", *values)  # noqa: S608  # of constants
        by_path, kinds = _IS_LISTED, _IS_LISTED | _ID_IS_GIVEN | _IS_PART
        return [
            Named(_text(each), _text(path), bool(flags & _ID_IS_GIVEN), flags & kinds == by_path)
            for each, path, flags in found
        ]

    def ids(self, window: Window[bytes]) -> list[str]:
        """The ids of the sources of a window, as looking at them has found."""
        inside, values = self._inside(window)
        found = self._each(
            "SELECT coalesce(new_id, sources.id) FROM sources LEFT JOIN looked ON looked.id = sources.id "  # noqa: S608
            f"WHERE {inside}",
            *values,
        )
        return [_text(each) for (each,) in found]

    def labels(self, window: Window[bytes]) -> Iterator[tuple[str, str]]:
        """The ids and attributes of those sources of a window that have attributes, as looking at them has found."""
        inside, values = self._inside(window)
        found = self._each(
            "SELECT sources.id, attributes, new_id, item "  # noqa: S608  # of constants
            "FROM sources LEFT JOIN looked ON looked.id = sources.id "
            f"WHERE ({inside}) AND (attributes IS NOT NULL OR new_id IS NOT NULL) ORDER BY sources.id",
            *values,
        )
        for each, attributes, new_id, item in found:
            if new_id is None:
                yield _text(each), _text(attributes)
            else:
                source = _looked(item).item.source
                yield source.id, source.attributes

    def save(self, looked: Iterable[tuple[Source, Looked]]) -> None:
        """Keep what looking at sources has found. An item may have another id than its source, see `known_paths`."""
        for source, each in looked:
            new_id = each.item.source.id
            self._execute(
                "INSERT INTO looked (id, new_id, item) VALUES (?, ?, ?)",
                _bytes(source.id), _bytes(new_id) if new_id != source.id else None, pickle.dumps(each),
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
        inside, values = self._inside(window)
        found = self._each(
            f"SELECT item FROM (SELECT id FROM sources WHERE {inside}) AS own "  # noqa: S608  # of constants
            "JOIN looked ON looked.id = own.id ORDER BY own.id",
            *values,
        )
        return [_looked(item) for (item,) in found]

    def _execute(self, command: str, *values: bytes | int | None) -> None:
        with _on_disk():
            self._database.execute(command, values)

    def _first(self, query: str, *values: bytes | int) -> tuple[Any, ...] | None:
        with _on_disk():
            row: tuple[Any, ...] | None = self._database.execute(query, values).fetchone()
        return row

    def _has(self, query: str, *values: bytes | int) -> bool:
        return self._first(query, *values) is not None

    def _each(self, query: str, *values: bytes | int) -> Generator[tuple[Any, ...]]:
        with _on_disk():
            yield from self._database.execute(query, values)


def _bound(text: str) -> _Bound:
    return text if text.isascii() else bytearray(_bytes(text))


def _bytes(text: str) -> bytes:
    # The order of UTF-8 is that of code points, in which Python sorts text.
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _source(columns: Sequence[Any]) -> Source:
    source_id, path, given, attributes, flags, rest = columns
    part, in_store = (None, None) if rest is None else pickle.loads(rest)  # noqa: S301  # of this process
    return Source(
        id=_text(source_id),
        path=_text(path),
        given=_text(path if given is None else given),
        attributes="{}" if attributes is None else _text(attributes),
        id_is_given=bool(flags & _ID_IS_GIVEN),
        is_listed=bool(flags & _IS_LISTED),
        part=part,
        in_store=in_store,
    )


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
