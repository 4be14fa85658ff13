"""The label columns of a snapshot, from its file and those of its layers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from ...storage.interface import Storage
from ..label_columns import Kind, LabelColumn
from ..layering.layered_columns import column_of_layers, kinds_of_layers
from ..parsed_columns import has_name
from ..tables import Manifest
from ..zarr_files.zarr_arrays import OpenFile
from ..zarr_files.zarr_columns import StoredColumn, has_values, read_column, read_column_kinds
from .snapshot_files import explained, layers_below, layers_in, open_snapshot, reading


def open_column_kinds(dataset: Storage, snapshot: str, manifest: Manifest | None = None) -> dict[str, Kind] | None:
    """The kinds of the label columns that a snapshot holds, by name; None if it holds none, or if its layers hold such
    as do not go together. With its `manifest`, columns that only hidden rows have are left out."""
    with reading(dataset, snapshot) as open_file:
        below, kinds = layers_in(open_file), read_column_kinds(open_file)
    of_layers = [_kinds(dataset, name) for name in below]
    together = kinds_of_layers([*of_layers, kinds])
    if together is None or manifest is None or manifest.origins is None:
        return together
    origins = manifest.origins
    # All rows of the newest layer count.
    seen = set(kinds or ())
    for number, name in reversed(list(enumerate(below))):
        own = of_layers[number] or {}
        if unseen := [column for column in own if column not in seen]:
            videos = origins.video[origins.layer == number]
            with reading(dataset, name) as open_file:
                seen |= {column for column in unseen if has_values(open_file, list(own).index(column), videos)}
    # A column that is null wherever it comes has no values, and is one all the same.
    attributes = manifest.videos.attributes
    return {name: kind for name, kind in together.items() if name in seen or has_name(name, attributes)}


def _kinds(dataset: Storage, snapshot: str) -> dict[str, Kind] | None:
    with reading(dataset, snapshot) as open_file:
        return read_column_kinds(open_file)


def open_column(
    dataset: Storage, snapshot: str, name: str, kinds: Mapping[str, Kind], manifest: Manifest
) -> LabelColumn | None:
    """The label column of this name, for the videos of the snapshot's `manifest`. `kinds` are those of
    `open_column_kinds`. None if the column has values that are not all of its kind."""
    if manifest.origins is None:
        with reading(dataset, snapshot) as open_file:
            return _column(open_file, name, kinds, len(manifest.videos))
    found = []
    for layer in (*layers_below(dataset, snapshot), snapshot):
        with reading(dataset, layer) as open_file:
            own = read_column_kinds(open_file) or {}
            found.append(_column(open_file, name, own) if name in own else None)
    return column_of_layers(found, kinds[name], manifest.origins)


def _column(open_file: OpenFile, name: str, kinds: Mapping[str, Kind], num_videos: int | None = None) -> LabelColumn:
    return read_column(open_file, list(kinds).index(name), kinds[name], num_videos)


@contextlib.contextmanager
def open_own_columns(dataset: Storage, snapshot: str) -> Iterator[dict[str, StoredColumn] | None]:
    """Yields the label columns in the file of one snapshot, for the videos in it; None if it holds none. Errors from
    reading rows of them name the array, and not the snapshot."""
    with contextlib.ExitStack() as opened:
        with explained(dataset, snapshot):
            open_file = opened.enter_context(open_snapshot(dataset, snapshot))
            kinds = read_column_kinds(open_file)
            numbered = enumerate((kinds or {}).items())
            columns = {name: StoredColumn(open_file, number, kind) for number, (name, kind) in numbered}
        yield None if kinds is None else columns
