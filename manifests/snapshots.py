"""Reading a manifest: which array is which column of which table.

Knows nothing of where the files are. `file` of an error raised here is a key of the Zarr store.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..errors import CorruptDataError
from .arrays import OpenFile, opening, read_rows
from .ragged import Array, Ragged, from_rows
from .tables import OFFSETS, SCHEMA, TABLE_TYPES, Column, Failures, Manifest

# Versions of the format that can be read. Snapshots and parts say which one theirs is.
READABLE_VERSIONS = (1, 2)


def read_attributes(open_file: OpenFile) -> dict[str, Any]:
    """The attributes that the manifest was written with."""
    with opening(open_file, "zarr.json") as file:
        attributes = json.loads(file.read())["attributes"]["shortgop"]
        return dict(attributes)


def read_manifest(open_file: OpenFile, *, timeline: bool) -> Manifest:
    """Read all tables; the timeline only on request. MissingDataError or CorruptDataError names what is wrong.

    Columns that came after the version that the manifest was written in are filled with what they say of its rows.
    """
    version = read_attributes(open_file).get("format_version")
    if version is True or version not in READABLE_VERSIONS:
        raise CorruptDataError(f"zarr.json says format version {version!r}", file="zarr.json")
    for group in ("", *(f"{name}/" for name in SCHEMA)):
        # They say nothing that is not known, but without them it is no Zarr store.
        with opening(open_file, f"{group}zarr.json") as file:
            document = json.loads(file.read())
            if (document["zarr_format"], document["node_type"]) != (3, "group"):
                raise ValueError("no Zarr group of version 3")
    tables: dict[str, Any] = {
        name: TABLE_TYPES[name](**_read_columns(open_file, name, columns, version))
        for name, columns in SCHEMA.items()
        if timeline or name != "timeline"
    }
    return Manifest(**{"timeline": None, **tables})


def read_failures(open_file: OpenFile) -> Failures:
    """The table of failures, without reading the others."""
    version = read_attributes(open_file)["format_version"]
    return Failures(**_read_columns(open_file, "failures", SCHEMA["failures"], version))


def _read_columns(open_file: OpenFile, table: str, columns: dict[str, Column], version: int) -> dict[str, Any]:
    there = {
        name: _read_column(open_file, f"{table}/{name}", spec)
        for name, spec in columns.items()
        if spec.since <= version
    }
    rows = len(next(iter(there.values())))
    missing = {name: _column_before(spec, rows) for name, spec in columns.items() if name not in there}
    return {**there, **missing}


def _column_before(column: Column, rows: int) -> Array | Ragged:
    if column.ragged:
        return from_rows([b""] * rows if column.dtype == "u1" else [()] * rows, column.dtype)
    return np.full(rows, column.before, dtype=column.dtype)


def _read_column(open_file: OpenFile, path: str, column: Column) -> Array | Ragged:
    values = read_rows(open_file, path, column.dtype)
    if not column.ragged:
        return values
    offsets = read_rows(open_file, f"{path}_offsets", OFFSETS.dtype)
    try:
        return Ragged(values, offsets)
    except ValueError as error:
        raise CorruptDataError(f"{path}: {error}", file=f"{path}_offsets") from error


def read_timeline(open_file: OpenFile, start: int, stop: int) -> Array:
    """Rows [start, stop) of the timeline: int64 pts of the source frames, in the video's source timebase."""
    return read_rows(open_file, "timeline/pts", SCHEMA["timeline"]["pts"].dtype, start, stop)
