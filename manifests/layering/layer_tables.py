"""The tables of a layer, as they are put together with those of others: decoded already, or decoded as they are read.

Decoding a large layer into a copy of its own first would write all of it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from ...errors import CorruptDataError
from ..merging.frame_runs import ReadRows
from ..ragged import Array, Ragged
from ..schema import OFFSETS, SCHEMA
from ..shared_memory.new_arrays import in_threads
from ..tables import POSITIVE, Manifest
from ..zarr_files.zarr_arrays import OpenFile, StoredRows, read_ragged, read_rows
from ..zarr_files.zarr_read import column_paths, read_table, version_of
from ..zarr_files.zarr_sizes import CHUNK_ROWS

# Columns of references, and the tables that they refer to.
REFERENCES = {"videos/config": "configs", "segments/shard": "shards", "gops/pattern": "patterns"}
_COUNTED = ("num_frames", "gop_frames", "segment_gops")
_OF_VIDEOS = ("videos", "segments", "gops")


class LayerTables(Protocol):
    """The tables of a layer, without its timeline. A path is a table and a column, as `videos/id`."""

    def table(self, name: str) -> Any:
        """A table that has no rows for each video, such as patterns or edits."""
        ...

    def ids(self) -> Ragged:
        """Those of the videos."""
        ...

    def firsts(self, table: str) -> Array:
        """The first row of each video in segments, gops or the timeline (`frames`); then the number of rows."""
        ...

    def will_read(self, path: str) -> None:
        """Say that all rows of a column are read next: those of videos, segments and GOPs in the order of SCHEMA."""
        ...

    def reads(self, path: str) -> ReadRows:
        """Reads rows of a column, or of the values of a ragged one."""
        ...

    def offsets(self, path: str) -> Array:
        """The offsets of a ragged column of videos. They stay as they are until those of another are asked for."""
        ...


def read_first() -> list[str]:
    """The columns that EncodedTables reads when it is made, and those of which a part is read before any is read whole:
    whole tables, counts and references."""
    others = [path for path in column_paths(timeline=False) if path.partition("/")[0] not in _OF_VIDEOS]
    return ["videos/id", *(f"videos/{name}" for name in _COUNTED), *REFERENCES, *others]


def read_whole() -> list[str]:
    """The columns of which all rows are read, one column after the other, in this order."""
    paths = column_paths(timeline=False)
    return [path for path in paths if path != "videos/id" and path.partition("/")[0] in _OF_VIDEOS]


class DecodedTables:
    """Those of a manifest."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def table(self, name: str) -> Any:
        return getattr(self._manifest, name)

    def ids(self) -> Ragged:
        return self._manifest.videos.id

    def firsts(self, table: str) -> Array:
        firsts: Array = getattr(self._manifest, f"first_{table}")
        return firsts

    def will_read(self, path: str) -> None:
        """They are there."""

    def reads(self, path: str) -> ReadRows:
        column = self._column(path)
        return reads_of(column.values if isinstance(column, Ragged) else column)

    def offsets(self, path: str) -> Array:
        offsets: Array = self._column(path).offsets
        return offsets

    def _column(self, path: str) -> Any:
        table, name = path.split("/")
        return getattr(self.table(table), name)


class EncodedTables:
    """Those in an open file of a snapshot: columns with rows for each video are decoded as they are read.

    MissingDataError or CorruptDataError names what is wrong, as `zarr_read.read_manifest` does.
    """

    def __init__(self, open_file: OpenFile, before: Callable[[str], None] = lambda _: None) -> None:
        """Reads the ids, and how many rows each video has. `before` is called with the path of each column of videos,
        segments and GOPs before all of it is read."""
        self._file, self._version, self.will_read = open_file, version_of(open_file), before
        self._tables: dict[str, Any] = {}
        self._ids = read_ragged(open_file, "videos/id", "u1")
        self._firsts = self._first_rows()
        self._rows = {
            "videos": len(self._ids),
            "segments": int(self._firsts["segments"][-1]),
            "gops": int(self._firsts["gops"][-1]),
        }
        self._offsets: ReusedOffsets | None = None

    def _first_rows(self) -> dict[str, Array]:
        """What `firsts` gives, put together block by block: whole columns in between would be new memory, and clearing
        its pages takes as long as decoding."""
        rows = len(self._ids)
        counted = {name: StoredRows(self._file, f"videos/{name}", SCHEMA["videos"][name].dtype) for name in _COUNTED}
        for name, column in counted.items():
            self._check_rows(f"videos/{name}", len(column), rows)
        firsts = {name: np.empty(rows + 1, np.int64) for name in ("frames", "gops", "segments")}
        blocks = [(start, min(start + CHUNK_ROWS, rows)) for start in range(0, rows, CHUNK_ROWS)]

        def count(start: int, stop: int) -> None:
            frames, gop_frames, segment_gops = (
                _positive(name, column.between, start, stop) for name, column in counted.items()
            )
            gops = -(-frames // gop_frames)
            for name, counts in (("frames", frames), ("gops", gops), ("segments", -(-gops // segment_gops))):
                np.cumsum(counts, out=firsts[name][start + 1 : stop + 1])

        in_threads(count, blocks)
        for first in firsts.values():
            first[0] = 0
            before = 0
            for start, stop in blocks:
                if before:
                    first[start + 1 : stop + 1] += before
                before = int(first[stop])
        return firsts

    def table(self, name: str) -> Any:
        if name not in self._tables:
            self._tables[name] = read_table(self._file, name, self._version)
        return self._tables[name]

    def ids(self) -> Ragged:
        return self._ids

    def firsts(self, table: str) -> Array:
        return self._firsts[table]

    def reads(self, path: str) -> ReadRows:
        if path == "videos/id":
            return reads_of(self._ids.values)
        table, name = path.split("/")
        spec = SCHEMA[table][name]
        if spec.since > self._version:
            return constant(spec.before, spec.dtype)
        stored = StoredRows(self._file, path, spec.dtype)
        if not spec.ragged:
            self._check_rows(path, len(stored), self._rows[table])
        if table == "videos" and name in POSITIVE:
            return partial(_positive, name, stored.between)
        if path in REFERENCES:
            return partial(_within, path, len(self.table(REFERENCES[path])), stored.between)
        return stored.between

    def offsets(self, path: str) -> Array:
        if path == "videos/id":
            return self._ids.offsets
        table, name = path.split("/")
        spec = SCHEMA[table][name]
        if spec.since > self._version:
            return np.zeros(self._rows[table] + 1, np.int64)
        num_values = len(StoredRows(self._file, path, spec.dtype))
        if self._offsets is None:
            self._offsets = ReusedOffsets(len(self._ids) + 1)
        found = read_rows(self._file, f"{path}_offsets", OFFSETS.dtype, new_array=self._offsets.new)
        self._check_rows(f"{path}_offsets", len(found), self._rows[table] + 1)
        if found[0] != 0 or found[-1] != num_values or self._offsets.ever_falls:
            raise CorruptDataError(f"{path}: offsets do not fit {num_values} values", file=f"{path}_offsets")
        return found

    def _check_rows(self, path: str, rows: int, expected: int) -> None:
        if rows != expected:
            raise CorruptDataError(f"column {path} has {rows} rows, but needs {expected}; the manifest is damaged")


class ReusedOffsets:
    """Memory for the offsets of one column after the other: new memory for each would have to be cleared. What is put
    into it is checked meanwhile, since a processor has it in its cache then."""

    def __init__(self, rows: int) -> None:
        self._memory = np.empty(rows, np.int64)
        self._rows = 0
        self._starts: list[int] = []
        self._falls = False

    def new(self, _path: str, rows: int, _dtype: str) -> ReusedOffsets:
        if rows > len(self._memory):
            self._memory = np.empty(rows, np.int64)
        self._rows, self._starts, self._falls = rows, [], False
        return self

    def put(self, start: int, rows: Array) -> None:
        self._starts.append(start)
        if (rows[1:] < rows[:-1]).any():
            self._falls = True
        self._memory[start : start + len(rows)] = rows

    def made(self) -> Array:
        return self._memory[: self._rows]

    @property
    def ever_falls(self) -> bool:
        """Whether any offset is below the one before it."""
        starts = np.array([start for start in self._starts if start], np.int64)
        return self._falls or bool((self._memory[starts] < self._memory[starts - 1]).any())


def reads_of(column: Array) -> ReadRows:
    """Reads rows of a column that is there."""
    return lambda start, stop: column[start:stop]


def constant(value: int, dtype: str) -> ReadRows:
    """Reads rows of a column that has one value."""
    return lambda start, stop: np.full(stop - start, value, dtype)


def _positive(column: str, read: ReadRows, start: int, stop: int) -> Array:
    values = read(start, stop)
    if values.min(initial=1) < 1:
        raise CorruptDataError(f"column videos/{column} has a value below 1; the manifest is damaged")
    return values


def _within(path: str, rows: int, read: ReadRows, start: int, stop: int) -> Array:
    references = read(start, stop)
    if len(references) and (references.min() < 0 or references.max() >= rows):
        raise CorruptDataError(f"column {path} refers to rows that do not exist; the manifest is damaged")
    return references
