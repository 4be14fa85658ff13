"""The sources of a job, as many as there are: a temporary database has them, and what looking at them has found."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, groupby, islice
from operator import itemgetter
from typing import Any, Self

from ..finding.source import Found, Source, same
from ..units_of_work.windows import Window, first_size, one_window_size, windows
from .look import Looked
from .source_columns import (
    FLAGS,
    INSERT,
    LABELLED_LATER,
    LISTED,
    SOURCE,
    TABLE,
    Named,
    decoded,
    encoded,
    named,
    packed,
    unpacked,
)  # fmt: skip
from .temporary_database import TemporaryDatabase

# So many finds are added at a time. Meanwhile nothing is read.
_ADDED = 1_000
# So long planning waits for the thread that adds sources. It looks whether it is still wanted then.
_BUSY_SECONDS = 0.1

_TABLES = f"""
{TABLE};
CREATE TABLE unwanted (number INTEGER PRIMARY KEY);
CREATE TABLE looked (id BLOB PRIMARY KEY, new_id BLOB, item BLOB);
CREATE INDEX of_new_id ON looked (new_id, id) WHERE new_id IS NOT NULL;
"""
# An index of what is there already is made much faster than one that grows.
_INDEX = "CREATE INDEX IF NOT EXISTS of_id ON sources (id)"
_INDEX_OF_FILES = "CREATE INDEX IF NOT EXISTS of_file ON sources (file, id) WHERE file IS NOT NULL"
# The ids that were found several times. The first query is for all sources, which have an index by then. The second one
# does without: it asks for the ids of the sources with the numbers from a first to a last one, among all sources up to
# that last one. Its values are the last number, the first and the last.
_REPEATED_IDS = "SELECT id FROM sources GROUP BY id HAVING count(*) > 1"
_REPEATED_IDS_OF_SOME = (
    "SELECT id FROM sources WHERE number <= ? AND id IN (SELECT id FROM sources WHERE number BETWEEN ? AND ?) "
    "GROUP BY id HAVING count(*) > 1"
)
_ALL = f"SELECT {SOURCE} FROM sources ORDER BY id"  # noqa: S608  # of constants
_ONE = f"SELECT {SOURCE} FROM sources WHERE id = ?"  # noqa: S608  # of constants
# The + keeps SQLite from going through an index of all.
_LABELLED_LATER = f"SELECT id, attributes FROM sources WHERE flags & {LABELLED_LATER} ORDER BY +id"  # noqa: S608

SourceWindow = Window[int] | Window[bytes]
"""Sources that were found one after the other, by their numbers, or neighbours in the order of ids."""


@dataclass(frozen=True)
class Row:
    """A source, and what looking at it has found, if that was kept."""

    source: Source
    looked: Looked | None


class SourceTable:
    """Sources by id. Close it at the end. While one thread adds sources, others may read what was added, and close the
    table: the thread that adds gets CancelledError then. OutputError where TMPDIR is too small."""

    def __init__(self) -> None:
        self._database = TemporaryDatabase(_TABLES, "the list of sources")
        self.num_found = 0
        # Those with a greater number stand in the order of ids.
        self._num_in_order = 0
        self._num_planned = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._database.close()

    def __len__(self) -> int:
        (num_sources,) = self._database.first("SELECT count(*) FROM sources") or (0,)
        return int(num_sources)

    def __contains__(self, source_id: str) -> bool:
        return self._database.has("SELECT 1 FROM sources WHERE id = ?", encoded(source_id))

    def add(self, found: Iterable[Found]) -> None:
        """Add sources, the last ones. Several finds of one source are one. UsageError if two have one id and are not
        the same."""
        self.add_some(found)
        with self._database.changing():
            self._database.execute(_INDEX)
            self._merge_finds(_REPEATED_IDS)

    def add_some(self, found: Iterable[Found]) -> None:
        """Add some sources, and later all others with `add`. Finds of one source are several until `merge_found`, or
        until all were added."""
        left = iter(found)
        # Waiting for a list or a store does not keep others from reading.
        while some := list(islice(left, _ADDED)):
            with self._database.changing():
                self._database.execute_many(INSERT, map(packed, some, count(self.num_found + 1)))
                self.num_found += len(some)

    def merge_found(self) -> None:
        """Make one source of all finds with the same id that were added so far. UsageError as for `add`."""
        with self._database.changing():
            self._merge_finds(_REPEATED_IDS_OF_SOME, self.num_found, 1, self.num_found)

    def _merge_finds(self, repeated_ids: str, *values: int) -> None:
        """Make one source of all finds with each of these ids, which stands where the first of them was found."""
        if not self._database.has(f"{repeated_ids} LIMIT 1", *values):
            return
        moved = []
        finds = self._database.each(
            f"SELECT number, {SOURCE}, place FROM sources WHERE id IN ({repeated_ids}) "  # noqa: S608  # of constants
            f"{'AND number <= ? ' if values else ''}ORDER BY id, number",
            *(*values, *values[-1:]),
        )
        # The query ends before the database is closed, even if two finds are not the same.
        with contextlib.closing(finds):
            for _, group in groupby(finds, key=lambda row: row[1]):
                found = map(_find, group)
                first, one = number, kept = next(found)
                for other_number, other in found:
                    if same(kept, other) is kept:
                        unwanted = other_number
                    else:
                        unwanted, number, kept = number, other_number, other
                    self._database.execute("INSERT INTO unwanted (number) VALUES (?)", unwanted)
                if number != first:
                    is_late = first <= self._num_planned and kept.source.attributes != one.source.attributes
                    moved.append((first, LABELLED_LATER * is_late, number))
        self._database.execute("DELETE FROM sources WHERE number IN unwanted")
        self._database.execute("DELETE FROM unwanted")
        for first, flag, number in moved:
            self._database.execute(
                "UPDATE sources SET number = ?, flags = flags | ? WHERE number = ?", first, flag, number
            )

    def labelled_later(self) -> Iterator[tuple[str, str]]:
        """The ids and attributes of the sources that got other attributes by another find after they were planned."""
        if self._num_planned:
            for each, attributes in self._database.each(_LABELLED_LATER):
                yield decoded(each), decoded(attributes)

    def keep_only(self, ids: Collection[str]) -> None:
        """Remove all sources but these, as if no others had been found."""
        self.remove([source.id for source in self.sources() if source.id not in ids])
        numbers = [number for (number,) in self._database.each("SELECT number FROM sources ORDER BY number")]
        for new, old in enumerate(numbers, 1):
            self._database.execute("UPDATE sources SET number = ? WHERE number = ?", new, old)
        self.num_found = len(numbers)

    def remove(self, ids: Iterable[str]) -> None:
        for source_id in ids:
            self._database.execute("DELETE FROM sources WHERE id = ?", encoded(source_id))

    def find(self, source_id: str) -> Source | None:
        row = self._database.first(_ONE, encoded(source_id))
        return None if row is None else unpacked(row)

    def sources(self) -> Iterator[Source]:
        """All sources, sorted by id."""
        return map(unpacked, self._database.each(_ALL))

    def window_after(self, number: int, size: int) -> Window[int] | None:
        """The window after the source with this number, 0 for the first one of all, in the order in which sources were
        found so far. None where there are stretches of files, which may have others further on."""
        first, last = number + 1, min(number + (size if number else first_size(size)), self.num_found)
        if self._database.has("SELECT 1 FROM sources WHERE number BETWEEN ? AND ? AND file IS NOT NULL", first, last):
            return None
        (num_sources,) = self._database.first(
            "SELECT count(*) FROM sources WHERE number BETWEEN ? AND ?", first, last
        ) or (0,)
        return Window(first, last, num_sources)

    def plan_window_after(self, number: int, size: int) -> Window[int] | None:
        """`window_after`, for planning it while others are still added. All finds of each of its sources so far are one
        source; what later ones say of it is told by `labelled_later`. UsageError as for `add`, TableBusyError."""
        with self._database.held(_BUSY_SECONDS):
            window = self.window_after(number, size)
            if window is None:
                return None
            with self._database.changing():
                self._merge_finds(_REPEATED_IDS_OF_SOME, window.last, window.first, window.last)
            self._num_planned = window.last
            return self.window_after(number, size)

    def windows(self, size: int, after: int = 0) -> list[SourceWindow]:
        """The windows of all sources, or of those after the one with a number, when all were added. They follow the
        order in which sources are found up to the first window with stretches of a file. All others follow the ids,
        stretches of a file where the first of their ids stands."""
        found: list[SourceWindow] = []
        number = after
        is_one_window = self.num_found <= one_window_size(size)
        while number < self.num_found and not is_one_window:
            window = self.window_after(number, size)
            if window is None:
                break
            number = window.last
            # All of its sources may have been found before.
            if window.count:
                found.append(window)
        self._num_in_order = number
        return [*found, *self._windows_of_ids(size if number or is_one_window else first_size(size), size)]

    def _windows_of_ids(self, first: int, size: int) -> Iterator[Window[bytes]]:
        """The windows of the sources that are not in the order in which they were found."""
        if self._num_in_order == self.num_found:
            return
        self._database.execute(_INDEX_OF_FILES)
        self._database.execute(
            "UPDATE sources SET leader = "
            "(SELECT min(other.id) FROM sources AS other WHERE other.file = sources.file) WHERE file IS NOT NULL"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS in_order ON sources (coalesce(leader, id))")
        keys = self._database.each(
            "SELECT coalesce(leader, id) AS place FROM sources WHERE +number > ? ORDER BY place", self._num_in_order
        )
        yield from windows(map(itemgetter(0), keys), size, first)

    def _inside(self, window: SourceWindow) -> tuple[str, tuple[bytes | int, ...]]:
        """The condition for sources of a window, in SQL, and its values."""
        if isinstance(window.first, int):
            return "number BETWEEN ? AND ?", (window.first, window.last)
        # The + keeps SQLite from going through all numbers in place of the index.
        inside = "coalesce(leader, sources.id) BETWEEN ? AND ? AND +number > ?"
        return inside, (window.first, window.last, self._num_in_order)

    def rows(self, window: SourceWindow) -> list[Row]:
        """The sources of a window that were not removed since, sorted by id, with what was kept of looking at them."""
        inside, values = self._inside(window)
        found = self._database.each(
            f"SELECT item, {SOURCE} FROM sources LEFT JOIN looked ON looked.id = sources.id "  # noqa: S608
            f"WHERE {inside} ORDER BY sources.id",
            *values,
        )
        return [Row(unpacked(columns), None if item is None else _looked(item)) for item, *columns in found]

    def names(self, window: SourceWindow) -> list[Named]:
        """What little is needed of the sources of a window, in a fifth of the time."""
        inside, values = self._inside(window)
        found = self._database.each(f"SELECT id, path, flags FROM sources WHERE {inside}", *values)  # noqa: S608  # of constants
        return [named(*columns) for columns in found]

    def ids(self, window: SourceWindow) -> list[str]:
        """The ids of the sources of a window, as looking at them has found."""
        inside, values = self._inside(window)
        found = self._database.each(
            "SELECT coalesce(new_id, sources.id) FROM sources LEFT JOIN looked ON looked.id = sources.id "  # noqa: S608
            f"WHERE {inside}",
            *values,
        )
        return [decoded(each) for (each,) in found]

    def labels(self, window: SourceWindow) -> Iterator[tuple[str, str]]:
        """The ids and attributes of those sources of a window that have attributes, as looking at them has found."""
        inside, values = self._inside(window)
        found = self._database.each(
            "SELECT sources.id, attributes, new_id, item "  # noqa: S608  # of constants
            "FROM sources LEFT JOIN looked ON looked.id = sources.id "
            f"WHERE ({inside}) AND (attributes IS NOT NULL OR new_id IS NOT NULL) ORDER BY sources.id",
            *values,
        )
        for each, attributes, new_id, item in found:
            if new_id is None:
                yield decoded(each), decoded(attributes)
            else:
                source = _looked(item).item.source
                yield source.id, source.attributes

    def save(self, looked: Iterable[tuple[Source, Looked]]) -> None:
        """Keep what looking at sources has found. An item may have another id than its source, see `known_paths`."""
        for source, each in looked:
            new_id = each.item.source.id
            self._database.execute(
                "INSERT INTO looked (id, new_id, item) VALUES (?, ?, ?)",
                encoded(source.id), encoded(new_id) if new_id != source.id else None, pickle.dumps(each),
            )  # fmt: skip

    def merge_renamed(self) -> None:
        """Make one source of those that have the same id now: the last one from a list."""
        renamed = self._database.each("SELECT id, new_id FROM looked WHERE new_id IS NOT NULL ORDER BY id")
        for old, new in list(renamed):
            later = self._database.has("SELECT 1 FROM looked WHERE new_id = ? AND id > ?", new, old)
            named = self.find(new.decode())
            if later or (named is not None and named.is_listed and new > old):
                self.remove([old.decode()])
            elif named is not None:
                self._database.execute("DELETE FROM looked WHERE id = ?", new)
                self._database.execute("UPDATE looked SET id = new_id WHERE id = ?", old)
                self.remove([old.decode()])

    def looked_at(self, window: SourceWindow) -> list[Looked]:
        """What was kept of looking at the sources of a window."""
        inside, values = self._inside(window)
        found = self._database.each(
            f"SELECT item FROM (SELECT id FROM sources WHERE {inside}) AS own "  # noqa: S608  # of constants
            "JOIN looked ON looked.id = own.id ORDER BY own.id",
            *values,
        )
        return [_looked(item) for (item,) in found]


def _find(row: tuple[Any, ...]) -> tuple[int, Found]:
    number, *columns, place = row
    return number, Found(unpacked(columns), decoded(place), bool(columns[FLAGS] & LISTED))


def _looked(item: bytes) -> Looked:
    looked: Looked = pickle.loads(item)  # noqa: S301  # of this process
    return looked
