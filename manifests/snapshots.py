"""Reading a manifest: which array is which column of which table.

Knows nothing of where the files are. `file` of an error raised here is a key of the Zarr store.
"""

from __future__ import annotations

import json
from typing import Any

from .arrays import OpenFile, opening, read_rows
from .errors import CorruptDataError
from .ragged import Array, Ragged
from .tables import OFFSETS, SCHEMA, TABLE_TYPES, Column, Manifest


def read_attributes(open_file: OpenFile) -> dict[str, Any]:
    """The attributes that the manifest was written with."""
    with opening(open_file, "zarr.json") as file:
        attributes = json.loads(file.read())["attributes"]["shortgop"]
        return dict(attributes)


def read_manifest(open_file: OpenFile, *, timeline: bool) -> Manifest:
    """Read all tables; the timeline only on request. MissingDataError or CorruptDataError names what is wrong."""
    for group in ("", *(f"{name}/" for name in SCHEMA)):
        # They say nothing that is not known, but without them it is no Zarr store.
        with opening(open_file, f"{group}zarr.json") as file:
            document = json.loads(file.read())
            if (document["zarr_format"], document["node_type"]) != (3, "group"):
                raise ValueError("no Zarr group of version 3")
    tables: dict[str, Any] = {
        name: TABLE_TYPES[name](
            **{column: _read_column(open_file, f"{name}/{column}", spec) for column, spec in columns.items()}
        )
        for name, columns in SCHEMA.items()
        if timeline or name != "timeline"
    }
    return Manifest(**{"timeline": None, **tables})


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
