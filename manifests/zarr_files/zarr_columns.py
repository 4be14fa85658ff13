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

from ...errors import CorruptDataError, MissingDataError
from ..label_columns import KINDS, Kind, LabelColumn
from ..ragged import Array, Ragged
from ..schema import OFFSETS, TEXT, Column
from . import zarr_sizes
from .zarr_arrays import OpenFile, StoredRows, opening, read_ragged, read_rows

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

    None for a snapshot without this group (earlier versions did not write it), or with a kind that this version does
    not know: then the columns are to be derived from the attributes of the videos.
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
    _check_rows(path, len(values), len(present), len(present) if num_videos is None else num_videos)
    return LabelColumn(kind, values, present)


def has_values(open_file: OpenFile, number: int, videos: Array) -> bool:
    """Whether any of these rows of videos, which ascend, has a value in the column of this number. It is decoded up to
    the first value, which nearly always comes soon."""
    path = f"{GROUP}/{number}/present"
    present = StoredRows(open_file, path, _PRESENT.dtype)
    if len(videos) and len(present) <= int(videos[-1]):
        raise CorruptDataError(f"{path} has {len(present)} marks for {int(videos[-1]) + 1} videos or more", file=path)
    for start in range(0, len(videos), zarr_sizes.CHUNK_ROWS):
        some = videos[start : start + zarr_sizes.CHUNK_ROWS]
        if present.between(int(some[0]), int(some[-1]) + 1)[some - some[0]].any():
            return True
    return False


class StoredColumn:
    """A column of which rows are decoded as they are asked for. CorruptDataError if its arrays do not fit each
    other."""

    def __init__(self, open_file: OpenFile, number: int, kind: Kind) -> None:
        path, storage = f"{GROUP}/{number}", _VALUES[kind]
        self.kind, self._path = kind, path
        self._values = StoredRows(open_file, f"{path}/values", storage.dtype)
        self._offsets = StoredRows(open_file, f"{path}/values_offsets", OFFSETS.dtype) if storage.ragged else None
        self._present = StoredRows(open_file, f"{path}/present", _PRESENT.dtype)
        num_values = len(self._values) if self._offsets is None else len(self._offsets) - 1
        _check_rows(path, num_values, len(self), len(self))
        if self._offsets is not None:
            ends = [int(self._offsets.between(row, row + 1)[0]) for row in (0, len(self))]
            if ends != [0, len(self._values)]:
                raise CorruptDataError(
                    f"{path}/values: offsets from {ends[0]} to {ends[1]} do not fit {len(self._values)} values",
                    file=f"{path}/values_offsets",
                )

    def __len__(self) -> int:
        return len(self._present)

    def between(self, start: int, stop: int) -> LabelColumn:
        """Rows [start, stop), which must be there. CorruptDataError if they are damaged."""
        present = self._present.between(start, stop)
        if self._offsets is None:
            return LabelColumn(self.kind, self._values.between(start, stop), present)
        offsets = self._offsets.between(start, stop + 1)
        first, last = int(offsets[0]), int(offsets[-1])
        try:
            return LabelColumn(self.kind, Ragged(self._values.between(first, last), offsets - first), present)
        except ValueError as error:
            raise CorruptDataError(f"{self._path}/values: {error}", file=f"{self._path}/values_offsets") from error


def _check_rows(path: str, num_values: int, num_marks: int, num_videos: int) -> None:
    if not num_values == num_marks == num_videos:
        raise CorruptDataError(
            f"{path} has {num_values} values and {num_marks} marks for {num_videos} videos", file=f"{path}/values"
        )
