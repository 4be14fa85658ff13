"""Writing a manifest as Zarr: one group per table, one array per column."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import ZstdCodec
from zarr.codecs.numcodecs import Delta
from zarr.core.buffer import Buffer
from zarr.errors import ZarrUserWarning
from zarr.storage import LocalStore

from ..label_columns import LabelColumn
from ..ragged import Array, Ragged
from ..schema import OFFSETS, SCHEMA, Column
from ..tables import Manifest
from . import zarr_sizes
from .zarr_columns import column_arrays, column_groups
from .zarr_read import LAYERS, layers_attributes


class NewFolder(LocalStore):
    """A store in a folder that only this process writes to. LocalStore makes sure by hard links that it replaces no
    metadata, but some file systems have no hard links."""

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)


def write_manifest(
    store: Store,
    manifest: Manifest,
    attributes: dict[str, Any],
    timeline: Iterable[Array] | None = None,
    columns: Mapping[str, LabelColumn] | None = None,
    *,
    layers: Sequence[str] = (),
) -> None:
    """Write all tables to an empty store; `attributes` go to the root group under "shortgop", and `layers` to a group
    of their own: the snapshots below this one.

    If the manifest does not hold its timeline, `timeline` gives the rows in blocks of BLOCK_ROWS. With `columns` there
    is a group of them as well: those of a snapshot, derived from the attributes of its videos.
    """
    with warnings.catch_warnings():
        # Zarr warns that Delta is not in its specification. docs/format.md defines it, in one line.
        warnings.simplefilter("ignore", ZarrUserWarning)
        root = zarr.create_group(store, attributes={"shortgop": attributes}, zarr_format=3)
        for table_name, schema in SCHEMA.items():
            table = getattr(manifest, table_name)
            group = root.create_group(table_name)
            for column_name, column in schema.items():
                if table_name == "timeline" and timeline is not None:
                    _write_array(group, column_name, column, int(manifest.first_frames[-1]), timeline)
                    continue
                values = getattr(table, column_name)
                if isinstance(values, Ragged):
                    _write_array(group, f"{column_name}_offsets", OFFSETS, len(values.offsets), [values.offsets])
                    values = values.values
                _write_array(group, column_name, column, len(values), [values])
        if layers:
            root.create_group(LAYERS, attributes=layers_attributes(layers))
        if columns is not None:
            for path, described in column_groups(columns):
                root.create_group(path, attributes=described)
            for path, column, values in column_arrays(columns):
                _write_array(root, path, column, len(values), [values])


def _write_array(group: zarr.Group, name: str, column: Column, rows: int, blocks: Iterable[Array]) -> None:
    chunk = max(1, min(rows, zarr_sizes.CHUNK_ROWS))
    chunks_per_shard = min(zarr_sizes.SHARD_CHUNKS, -(-rows // chunk))
    array = group.create_array(
        name,
        shape=(rows,),
        dtype=np.dtype(column.dtype),
        chunks=(chunk,),
        shards=(chunk * chunks_per_shard,) if chunks_per_shard > 1 else None,
        filters=[Delta(dtype=column.dtype)] if column.delta else None,
        compressors=[ZstdCodec(level=zarr_sizes.ZSTD_LEVEL, checksum=True)],
        fill_value=0,
        dimension_names=["row"],
        # Readers must be able to tell a lost chunk from a run of zeros.
        config={"write_empty_chunks": True},
    )
    start = 0
    for block in blocks:
        # zarr has all that it is given in memory several times.
        for first in range(0, len(block), zarr_sizes.BLOCK_ROWS):
            piece = block[first : first + zarr_sizes.BLOCK_ROWS]
            array[start : start + len(piece)] = np.ascontiguousarray(piece, dtype=column.dtype)
            start += len(piece)
