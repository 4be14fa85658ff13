"""Manifests as Zarr: one group per table, one array per column.

Knows how tables lie in a Zarr store, and nothing of where the store is.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import ZstdCodec
from zarr.codecs.numcodecs import Delta
from zarr.errors import ZarrUserWarning

from .errors import CorruptDataError, ShortGopError
from .ragged import Array, Ragged
from .tables import SCHEMA, TABLE_TYPES, Column, Manifest

# 64 Ki rows decompress in well under a millisecond, so a slice of the timeline stays cheap; one Zarr shard (one file)
# holds 1024 of them, so a billion rows are 15 files.
_CHUNK_ROWS = 1 << 16
_SHARD_CHUNKS = 1 << 10
_ZSTD_LEVEL = 5


def write_manifest(store: Store, manifest: Manifest, attributes: dict[str, Any]) -> None:
    """Write all tables to an empty store; `attributes` go to the root group under "shortgop"."""
    root = zarr.create_group(store, attributes={"shortgop": attributes}, zarr_format=3)
    for table_name, columns in SCHEMA.items():
        table = getattr(manifest, table_name)
        group = root.create_group(table_name)
        for column_name, column in columns.items():
            values = getattr(table, column_name)
            if column.ragged:
                _write_array(group, column_name, values.values, column)
                _write_array(group, f"{column_name}_offsets", values.offsets, Column("<i8", delta=True))
            else:
                _write_array(group, column_name, values, column)


def _write_array(group: zarr.Group, name: str, values: Array, column: Column) -> None:
    rows = len(values)
    chunk = max(1, min(rows, _CHUNK_ROWS))
    chunks_per_shard = min(_SHARD_CHUNKS, -(-rows // chunk)) if rows else 1
    with warnings.catch_warnings():
        # Delta is not in Zarr's own specification; docs/format.md gives its definition, which is one line.
        warnings.simplefilter("ignore", ZarrUserWarning)
        array = group.create_array(
            name,
            shape=(rows,),
            dtype=np.dtype(column.dtype),
            chunks=(chunk,),
            shards=(chunk * chunks_per_shard,) if chunks_per_shard > 1 else None,
            filters=[Delta(dtype=column.dtype)] if column.delta else None,
            compressors=[ZstdCodec(level=_ZSTD_LEVEL, checksum=True)],
            fill_value=0,
            dimension_names=["row"],
            # Readers must be able to tell a lost chunk from a run of zeros.
            config={"write_empty_chunks": True},
        )
        if rows:
            array[:] = np.ascontiguousarray(values, dtype=column.dtype)


def read_attributes(store: Store) -> dict[str, Any]:
    """The attributes that `write_manifest` was given."""
    group = zarr.open_group(store, mode="r")
    attributes = group.attrs.asdict().get("shortgop")
    if not isinstance(attributes, dict):
        raise CorruptDataError("a Zarr group without the attributes of a shortgop manifest")
    return attributes


def read_manifest(store: Store, *, timeline: bool) -> Manifest:
    """Read all tables; the timeline only on request. CorruptDataError when anything is missing or damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZarrUserWarning)
            root = zarr.open_group(store, mode="r")
            return Manifest(
                **{
                    name: None
                    if name == "timeline" and not timeline
                    else kind(**{column: _read_column(root, name, column, spec) for column, spec in SCHEMA[name].items()})
                    for name, kind in TABLE_TYPES.items()
                }  # type: ignore[arg-type]
            )
    except ShortGopError:
        raise
    except Exception as error:
        # A truncated chunk surfaces as whatever the codec that meets it first raises.
        raise CorruptDataError(f"the manifest does not read: {type(error).__name__}: {error}") from error


def read_timeline(store: Store, start: int, stop: int) -> Array:
    """Rows [start, stop) of the timeline: int64 pts of the source frames, in the video's source timebase."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZarrUserWarning)
            array = zarr.open_array(store, path="timeline/pts", mode="r")
            return np.asarray(array[start:stop])
    except Exception as error:
        raise CorruptDataError(f"the timeline does not read: {type(error).__name__}: {error}") from error


def _read_column(root: zarr.Group, table: str, name: str, column: Column) -> Array | Ragged:
    if column.ragged:
        return Ragged(_read_array(root, f"{table}/{name}", column.dtype), _read_array(root, f"{table}/{name}_offsets", "<i8"))
    return _read_array(root, f"{table}/{name}", column.dtype)


def _read_array(root: zarr.Group, path: str, dtype: str) -> Array:
    array = root[path]
    if not isinstance(array, zarr.Array) or array.dtype != np.dtype(dtype) or array.ndim != 1:
        raise CorruptDataError(f"{path} is not a one-dimensional array of {dtype}")
    values = np.asarray(array[:])
    # Tables are shared by everyone who opened the dataset; nobody may write to them.
    values.flags.writeable = False
    return values
