"""The tables of a layer, as they are put together with those of others: decoded already, or decoded as they are read.

Decoding a large layer into a copy of its own first would write all of it twice.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np

from ..errors import CorruptDataError
from .frame_runs import ReadRows
from .ragged import Array, Ragged, ever_falls, offsets_of
from .schema import OFFSETS, SCHEMA
from .tables import Manifest
from .zarr_read import OpenFile, StoredRows, read_ragged, read_rows, read_table, version_of

# Columns of references, and the tables that they refer to.
REFERENCES = {"videos/config": "configs", "segments/shard": "shards", "gops/pattern": "patterns"}


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

    def reads(self, path: str) -> ReadRows:
        """Reads rows of a column, or of the values of a ragged one."""
        ...

    def offsets(self, path: str) -> Array:
        """The offsets of a ragged column."""
        ...


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

    def __init__(self, open_file: OpenFile) -> None:
        self._file, self._version = open_file, version_of(open_file)
        self._ids = read_ragged(open_file, "videos/id", "u1")
        counted = {
            name: read_rows(open_file, f"videos/{name}", SCHEMA["videos"][name].dtype)
            for name in ("num_frames", "gop_frames", "segment_gops")
        }
        for name, column in counted.items():
            self._check_rows(f"videos/{name}", len(column), len(self._ids))
            if column.min(initial=1) < 1:
                raise CorruptDataError(f"column videos/{name} has a value below 1; the manifest is damaged")
        gops = -(-counted["num_frames"] // counted["gop_frames"])
        self._firsts = {
            "frames": offsets_of(counted["num_frames"]),
            "gops": offsets_of(gops),
            "segments": offsets_of(-(-gops // counted["segment_gops"])),
        }
        self._rows = {
            "videos": len(self._ids),
            "segments": int(self._firsts["segments"][-1]),
            "gops": int(self._firsts["gops"][-1]),
        }

    def table(self, name: str) -> Any:
        return read_table(self._file, name, self._version)

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
        offsets = read_rows(self._file, f"{path}_offsets", OFFSETS.dtype)
        self._check_rows(f"{path}_offsets", len(offsets), self._rows[table] + 1)
        num_values = len(StoredRows(self._file, path, spec.dtype))
        if offsets[0] != 0 or offsets[-1] != num_values or ever_falls(offsets):
            raise CorruptDataError(f"{path}: offsets do not fit {num_values} values", file=f"{path}_offsets")
        return offsets

    def _check_rows(self, path: str, rows: int, expected: int) -> None:
        if rows != expected:
            raise CorruptDataError(f"column {path} has {rows} rows, but needs {expected}; the manifest is damaged")


def reads_of(column: Array) -> ReadRows:
    """Reads rows of a column that is there."""
    return lambda start, stop: column[start:stop]


def constant(value: int, dtype: str) -> ReadRows:
    """Reads rows of a column that has one value."""
    return lambda start, stop: np.full(stop - start, value, dtype)


def _within(path: str, rows: int, read: ReadRows, start: int, stop: int) -> Array:
    references = read(start, stop)
    if len(references) and (references.min() < 0 or references.max() >= rows):
        raise CorruptDataError(f"column {path} refers to rows that do not exist; the manifest is damaged")
    return references
