"""The group `columns` of a snapshot: where the arrays of label columns lie in it, and how they are read.

    columns/zarr.json     the names and kinds of the columns, in order
    columns/0/values      the first column's values; values_offsets too where they are ragged
    columns/0/present     0 where a video has no value
    columns/1/...         the second column

Columns have numbers here, as their names may be any text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import CorruptDataError, MissingDataError
from .label_columns import KINDS, Kind, LabelColumn
from .ragged import Array, Ragged
from .schema import OFFSETS, TEXT, Column
from .zarr_read import OpenFile, opening, read_ragged, read_rows

GROUP = "columns"
_PRESENT = Column("u1")
_VALUES: dict[Kind, Column] = {
    "boolean": Column("u1"),
    "integer": Column("<i8"),
    "float": Column("<f8"),
    "text": TEXT,
    "json": TEXT,
}


def column_groups(columns: Mapping[str, LabelColumn]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The path and the attributes of each group to write."""
    described = [{"name": name, "kind": column.kind} for name, column in columns.items()]
    yield GROUP, {"shortgop": {"columns": described}}
    yield from ((f"{GROUP}/{number}", {}) for number in range(len(columns)))


def column_arrays(columns: Mapping[str, LabelColumn]) -> Iterator[tuple[str, Column, Array]]:
    """The path, the storage and the values of each array to write."""
    for number, column in enumerate(columns.values()):
        path, storage, values = f"{GROUP}/{number}", _VALUES[column.kind], column.values
        if isinstance(values, Ragged):
            yield f"{path}/values_offsets", OFFSETS, values.offsets
            values = values.values
        yield f"{path}/values", storage, values
        yield f"{path}/present", _PRESENT, column.present


def read_column_kinds(open_file: OpenFile) -> dict[str, Kind] | None:
    """The kind of each column by its name, in order.

    None for a snapshot that has no such group, as of a version that did not write it, or that has a kind which this
    version does not know: then the columns are to be derived from the attributes of the videos.
    """
    try:
        with opening(open_file, f"{GROUP}/zarr.json") as file:
            described = json.loads(file.read())["attributes"]["shortgop"]["columns"]
            kinds = {str(column["name"]): column["kind"] for column in described}
    except MissingDataError:
        return None
    return kinds if all(kind in KINDS for kind in kinds.values()) else None


def read_column(open_file: OpenFile, number: int, kind: Kind, num_videos: int | None = None) -> LabelColumn:
    """The column of this number, which has an entry for each of `num_videos` videos, if that is known."""
    path, storage = f"{GROUP}/{number}", _VALUES[kind]
    read = read_ragged if storage.ragged else read_rows
    values = read(open_file, f"{path}/values", storage.dtype)
    present = read_rows(open_file, f"{path}/present", _PRESENT.dtype)
    expected = len(present) if num_videos is None else num_videos
    if not len(values) == len(present) == expected:
        raise CorruptDataError(
            f"{path} has {len(values)} values and {len(present)} marks for {expected} videos", file=f"{path}/values"
        )
    return LabelColumn(kind, values, present)
