"""Writing a small manifest as Zarr without the zarr library: every array has one chunk at most.

zarr takes 1.5 ms for an array, and a manifest has sixty: most of what a short job takes beside its encodes. Importing
it takes 0.2 s more. What is written here is what `zarr_write` writes, byte for byte; a test holds the two together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numcodecs import zstd  # type: ignore[import-untyped]

from ..label_columns import LabelColumn
from ..ragged import Array, Ragged
from ..schema import OFFSETS, SCHEMA, Column
from ..tables import Manifest
from . import zarr_sizes
from .zarr_columns import column_arrays, column_groups
from .zarr_read import LAYERS, layers_attributes


def is_small(manifest: Manifest, columns: Mapping[str, LabelColumn] | None = None) -> bool:
    """Whether every array fits a chunk, those of the label columns too."""
    lengths = [len(values) for _, _, values in (*_columns(manifest), *column_arrays(columns or {}))]
    return max(*lengths, int(manifest.first_frames[-1])) <= zarr_sizes.CHUNK_ROWS


def small_files(
    manifest: Manifest,
    attributes: dict[str, Any],
    timeline: Iterable[Array] | None = None,
    columns: Mapping[str, LabelColumn] | None = None,
    *,
    layers: Sequence[str] = (),
) -> dict[str, bytes]:
    """The files of a Zarr store by their keys, of a manifest that `is_small`. The arguments are those of
    `zarr_write.write_manifest`."""
    files = {"zarr.json": _group({"shortgop": attributes})}
    files |= {f"{table}/zarr.json": _empty_group() for table in SCHEMA}
    for path, column, values in _columns(manifest):
        files |= array_files(path, column, values)
    if layers:
        files[f"{LAYERS}/zarr.json"] = _group(layers_attributes(layers))
    if columns is not None:
        files |= {f"{path}/zarr.json": _group(described) for path, described in column_groups(columns)}
        for path, column, values in column_arrays(columns):
            files |= array_files(path, column, values)
    if timeline is not None:
        blocks = [np.asarray(block) for block in timeline]
        column = SCHEMA["timeline"]["pts"]
        files |= array_files("timeline/pts", column, np.concatenate([np.empty(0, column.dtype), *blocks]))
    return files


def _columns(manifest: Manifest) -> Iterator[tuple[str, Column, Array]]:
    """Path, column and values of each array that the manifest holds."""
    for table_name, columns in SCHEMA.items():
        table = getattr(manifest, table_name)
        for name, column in columns.items() if table is not None else ():
            values = getattr(table, name)
            if isinstance(values, Ragged):
                yield f"{table_name}/{name}_offsets", OFFSETS, values.offsets
                values = values.values
            yield f"{table_name}/{name}", column, values


def array_files(path: str, column: Column, values: Array) -> dict[str, bytes]:
    """The files of one array, by their keys."""
    rows = np.ascontiguousarray(values, dtype=column.dtype)
    files = {f"{path}/zarr.json": _array_document(column, len(rows))}
    if len(rows):
        # As numcodecs' delta: the first value, then differences, which may wrap.
        stored = np.diff(rows, prepend=rows.dtype.type(0)) if column.delta else rows
        files[f"{path}/c/0"] = bytes(zstd.compress(stored, zarr_sizes.ZSTD_LEVEL, True))
    return files


def _array_document(column: Column, rows: int) -> bytes:
    return _array_template(column).replace(_ROWS, b"%d" % rows).replace(_CHUNK_ROWS, b"%d" % max(1, rows))


# What stands for numbers in a template.
_ROWS, _CHUNK_ROWS = b'"rows"', b'"chunk rows"'


# The sixty arrays of a manifest share a few types, and `json` takes 0.1 ms to write a document.
@cache
def _array_template(column: Column) -> bytes:
    dtype = np.dtype(column.dtype)
    endian = {} if dtype.itemsize == 1 else {"configuration": {"endian": "little"}}
    content = {
        "shape": [json.loads(_ROWS)],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [json.loads(_CHUNK_ROWS)]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": dtype.type(0).item(),
        "codecs": [
            *([{"name": "numcodecs.delta", "configuration": {"dtype": column.dtype}}] if column.delta else []),
            {"name": "bytes", **endian},
            {"name": "zstd", "configuration": {"level": zarr_sizes.ZSTD_LEVEL, "checksum": True}},
        ],
        "attributes": {},
        "dimension_names": ["row"],
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return _document(content)


@cache
def _empty_group() -> bytes:
    return _group({})


def _group(attributes: dict[str, Any]) -> bytes:
    return _document({"attributes": attributes, "zarr_format": 3, "node_type": "group"})


def _document(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode()
