"""Reading the tables of a manifest: what it says of itself, and the arrays of each table.

This module does not know where the files are. `file` of an error raised here is a key of the Zarr store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ...errors import CorruptDataError, MissingDataError
from ..ragged import Array, Ragged, from_rows
from ..schema import SCHEMA, Column, tables_of
from ..shared_memory.new_arrays import NewArray, in_memory
from ..tables import TABLE_TYPES, Failures, Manifest
from .zarr_arrays import OpenFile, opening, read_ragged, read_rows

# Format versions that can be read. Each snapshot and each part says its own.
READABLE_VERSIONS = (1, 2, 3, 4, 5)
# Only a snapshot in layers has this group: its attributes name the snapshots below it.
LAYERS = "layers"


def read_attributes(open_file: OpenFile) -> dict[str, Any]:
    """The attributes that the manifest was written with."""
    with opening(open_file, "zarr.json") as file:
        attributes = json.loads(file.read())["attributes"]["shortgop"]
        return dict(attributes)


def layers_attributes(layers: Sequence[str]) -> dict[str, Any]:
    """The attributes of the group LAYERS. `layers` are oldest first."""
    return {"shortgop": {"snapshots": list(layers)}}


def read_layers(open_file: OpenFile) -> tuple[str, ...]:
    """The snapshots below one in layers, oldest first."""
    with opening(open_file, f"{LAYERS}/zarr.json") as file:
        names = json.loads(file.read())["attributes"]["shortgop"]["snapshots"]
        if not all(isinstance(name, str) and name.isdecimal() for name in names):
            raise ValueError(f"its layers are {names}")
        return tuple(names)


def column_paths(*, timeline: bool) -> list[str]:
    """The columns of all tables, in the order in which `read_manifest` reads them."""
    return [f"{table}/{name}" for table in SCHEMA for name in SCHEMA[table] if timeline or table != "timeline"]


def read_manifest(
    open_file: OpenFile,
    *,
    timeline: bool,
    new_array: NewArray = in_memory,
    before: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Read all tables, into arrays that `new_array` makes; the timeline only on request. MissingDataError or
    CorruptDataError names what is wrong. `before` is called with the path of each column before it is read.

    Tables that are newer than the manifest's format version are empty; newer columns are filled with their `before`.
    """
    version = version_of(open_file)
    tables = {
        name: read_table(open_file, name, version, new_array, before)
        for name in SCHEMA
        if timeline or name != "timeline"
    }
    return Manifest(**{"timeline": None, **tables})


def version_of(open_file: OpenFile) -> int:
    """The format version of a manifest. CorruptDataError if it is none that can be read, or no Zarr store."""
    version = _stated_version(open_file)
    for group in ("", *(f"{name}/" for name in tables_of(version))):
        # These documents hold nothing that is needed here, but without them this is not a Zarr store.
        with opening(open_file, f"{group}zarr.json") as file:
            document = json.loads(file.read())
            if (document["zarr_format"], document["node_type"]) != (3, "group"):
                raise ValueError("not a Zarr group of version 3")
    return version


def _stated_version(open_file: OpenFile) -> int:
    version = read_attributes(open_file).get("format_version")
    if version is True or version not in READABLE_VERSIONS:
        raise CorruptDataError(f"zarr.json says format version {version!r}", file="zarr.json")
    return int(version)


def read_table(
    open_file: OpenFile,
    table: str,
    version: int,
    new_array: NewArray = in_memory,
    before: Callable[[str], None] = lambda _: None,
) -> Any:
    """One table of a manifest of this format version. `before` as in `read_manifest`."""
    there = {}
    for name, spec in SCHEMA[table].items():
        path = f"{table}/{name}"
        before(path)
        if spec.since <= version and not (spec.optional and not _is_there(open_file, path)):
            there[name] = _read_column(open_file, path, spec, new_array)
    rows = len(next(iter(there.values()))) if there else 0
    missing = {name: _column_before(spec, rows) for name, spec in SCHEMA[table].items() if name not in there}
    return TABLE_TYPES[table](**there, **missing)


def read_failures(open_file: OpenFile) -> Failures:
    """The failures table, without the others."""
    failures: Failures = read_table(open_file, "failures", _stated_version(open_file))
    return failures


def _is_there(open_file: OpenFile, path: str) -> bool:
    """Whether the store has a file of the column at `path`. If it has one and lacks another, that one is lost."""
    for key in (f"{path}/zarr.json", f"{path}_offsets/zarr.json", f"{path}/c/0"):
        with suppress(MissingDataError), opening(open_file, key):
            return True
    return False


def _column_before(column: Column, rows: int) -> Array | Ragged:
    if column.ragged:
        return from_rows([b""] * rows if column.dtype == "u1" else [()] * rows, column.dtype)
    return np.full(rows, column.before, dtype=column.dtype)


def _read_column(open_file: OpenFile, path: str, column: Column, new_array: NewArray) -> Array | Ragged:
    if column.ragged:
        return read_ragged(open_file, path, column.dtype, new_array=new_array)
    return read_rows(open_file, path, column.dtype, new_array=new_array)


def read_timeline(open_file: OpenFile, start: int, stop: int) -> Array:
    """Rows [start, stop) of the timeline: int64 pts of the source frames, in the video's source timebase."""
    return read_rows(open_file, "timeline/pts", SCHEMA["timeline"]["pts"].dtype, start, stop)
