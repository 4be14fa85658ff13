"""The rows of a snapshot's own file, decoded a block at a time: a file of any length takes little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import CorruptDataError
from ..ragged import Array, Ragged, concatenate, ever_falls, offsets_of, stretches_of
from ..schema import OFFSETS, SCHEMA
from ..tables import TABLE_TYPES, TABLES_OF_IDS, Manifest, empty
from ..zarr_files import zarr_sizes
from ..zarr_files.zarr_arrays import OpenFile, StoredRows
from ..zarr_files.zarr_read import read_table, version_of
from .layer_tables import constant

# What the GOPs and the texts of a block take, unless those of a single video take more.
_BLOCK_BYTES = 4 << 20
_GOP_BYTES = sum(np.dtype(column.dtype).itemsize for column in SCHEMA["gops"].values())


def read_tables_of_ids(open_file: OpenFile) -> Manifest:
    """The tables failures, edits and drops of a snapshot's file, whole, and no videos. MissingDataError or
    CorruptDataError names what is wrong, also where the ids of a table do not ascend."""
    version = version_of(open_file)
    tables = {name: read_table(open_file, name, version) for name in TABLES_OF_IDS}
    for name, table in tables.items():
        if not table.id.ascends(may_repeat=True):
            raise _not_ascending(name)
    return replace(empty(), timeline=None, **tables)


def read_video_blocks(open_file: OpenFile) -> Iterator[Manifest]:
    """The videos of a snapshot's file in their order, some in each manifest, with their segments and GOPs and with all
    patterns, configurations and shards; without the other tables.

    A block has 65,536 videos at most, and some 4 MiB of GOPs and texts. Errors as of `read_tables_of_ids`.
    """
    version = version_of(open_file)
    referenced = {name: read_table(open_file, name, version) for name in ("patterns", "configs", "shards")}
    without_videos = replace(empty(), timeline=None, **referenced)
    columns = {table: _columns(open_file, table, version) for table in ("videos", "segments", "gops")}
    last_id: Ragged | None = None
    start = {"segments": 0, "gops": 0}
    for videos in _blocks_of_videos(columns["videos"]):
        last_id = _ascending(videos.id, last_id)
        gops = -(-videos.num_frames // videos.gop_frames)
        counts = {"segments": -(-gops // videos.segment_gops), "gops": gops}
        tables = {}
        for table, of_video in counts.items():
            stop = start[table] + int(of_video.sum())
            rows = {name: column.between(start[table], stop) for name, column in columns[table].items()}
            tables[table], start[table] = TABLE_TYPES[table](**rows), stop
        # Making a manifest compares the numbers of rows, and whether references fit.
        yield replace(without_videos, videos=videos, **tables)


def read_attribute_blocks(open_file: OpenFile) -> Iterator[Ragged]:
    """The attributes of the videos of a snapshot's file in their order, some 4 MiB at a time. Errors as of
    `read_tables_of_ids`."""
    column = _Column(open_file, "videos/attributes", version_of(open_file))
    for start in range(0, len(column), zarr_sizes.CHUNK_ROWS):
        offsets = column.offsets(start, min(start + zarr_sizes.CHUNK_ROWS, len(column)))
        for first, last in stretches_of(offsets, _BLOCK_BYTES):
            yield column.texts(offsets[first : last + 1])


class _Column:
    """A column of which rows are read."""

    def __init__(self, open_file: OpenFile, path: str, version: int) -> None:
        table, name = path.split("/")
        self._path, self.spec = path, SCHEMA[table][name]
        self._values = self._offsets = None
        if self.spec.since <= version:
            self._values = StoredRows(open_file, path, self.spec.dtype)
            if self.spec.ragged:
                self._offsets = StoredRows(open_file, f"{path}_offsets", OFFSETS.dtype)

    def __len__(self) -> int:
        """The number of rows, 0 for a column that the file lacks."""
        return 0 if self._values is None else len(self._values) if self._offsets is None else len(self._offsets) - 1

    def between(self, start: int, stop: int) -> Array:
        """Rows [start, stop), or values of a ragged column."""
        if self._values is None:
            return constant(self.spec.before, self.spec.dtype)(start, stop)
        return self._values.between(start, stop)

    def offsets(self, start: int, stop: int) -> Array:
        """The offsets of rows [start, stop) of a ragged column, and the end of the last."""
        if self._offsets is None:
            return np.zeros(stop - start + 1, np.int64)
        offsets = self._offsets.between(start, stop + 1)
        if len(offsets) != stop - start + 1 or offsets[0] < 0 or ever_falls(offsets):
            raise CorruptDataError(f"{self._path}: its offsets fall", file=f"{self._path}_offsets")
        return offsets

    def texts(self, offsets: Array) -> Ragged:
        """The rows of a ragged column that have these offsets."""
        return Ragged(self.between(int(offsets[0]), int(offsets[-1])), offsets - offsets[0])


def _columns(open_file: OpenFile, table: str, version: int) -> dict[str, _Column]:
    return {name: _Column(open_file, f"{table}/{name}", version) for name in SCHEMA[table]}


def _blocks_of_videos(columns: dict[str, _Column]) -> Iterator[Any]:
    """The rows of the table of videos, some in each."""
    num_videos = len(columns["num_frames"])
    for start in range(0, num_videos, zarr_sizes.CHUNK_ROWS):
        stop = min(start + zarr_sizes.CHUNK_ROWS, num_videos)
        fixed = {name: column.between(start, stop) for name, column in columns.items() if not column.spec.ragged}
        offsets = {name: column.offsets(start, stop) for name, column in columns.items() if column.spec.ragged}
        num_bytes = _GOP_BYTES * (fixed["num_frames"] // np.maximum(fixed["gop_frames"], 1) + 1)
        for each in offsets.values():
            num_bytes = num_bytes + np.diff(each)
        for first, last in stretches_of(offsets_of(num_bytes), _BLOCK_BYTES):
            rows: dict[str, Any] = {name: column[first:last] for name, column in fixed.items()}
            for name, each in offsets.items():
                rows[name] = columns[name].texts(each[first : last + 1])
            yield TABLE_TYPES["videos"](**rows)


def _ascending(ids: Ragged, last_before: Ragged | None) -> Ragged:
    """The last of some ids, which follow `last_before`. CorruptDataError if they do not ascend."""
    if not (ids if last_before is None else concatenate([last_before, ids])).ascends():
        raise _not_ascending("videos")
    return ids.between(len(ids) - 1, len(ids))


def _not_ascending(table: str) -> CorruptDataError:
    return CorruptDataError(f"the ids of its table {table} do not ascend; the manifest is damaged")
