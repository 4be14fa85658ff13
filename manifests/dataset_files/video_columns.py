"""All columns over the videos of a snapshot: what the tables say of each video, and what the source lists said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ...errors import MissingDataError
from ...lazy import lazy
from ...storage.interface import Storage
from ..label_columns import Kind, LabelColumn, text_array
from ..parsed_columns import derived_columns
from ..ragged import Array
from ..tables import Manifest
from .layout import has_snapshot
from .snapshot_columns import open_column, open_column_kinds

_T = TypeVar("_T")


def _chosen(column: Array, rows: Array | None) -> Array:
    return column if rows is None else np.asarray(column[rows])


def _fps(manifest: Manifest, rows: Array | None) -> Array:
    videos = manifest.videos
    return _chosen(videos.fps_num, rows) / _chosen(videos.fps_den, rows)


def _seconds(manifest: Manifest, rows: Array | None) -> Array:
    videos = manifest.videos
    ticks = _chosen(videos.num_frames, rows) * _chosen(videos.fps_den, rows)
    return np.asarray(ticks / _chosen(videos.fps_num, rows))


def _of_config(manifest: Manifest, column: Array, rows: Array | None) -> Array:
    return np.asarray(column[_chosen(manifest.videos.config, rows)])


def _codec(manifest: Manifest, rows: Array | None) -> Array:
    # Choosing among bytes takes a fraction of the time.
    names = np.array([name.encode() for name in manifest.configs.codec.texts()], dtype="S")
    return _of_config(manifest, names, rows).astype(np.dtypes.StringDType())


# What the tables say of every video, or of those in some rows, by the names of Dataset.columns.
BUILT_IN: dict[str, Callable[[Manifest, Array | None], Array]] = {
    "id": lambda manifest, rows: text_array(manifest.videos.id, rows),
    "source": lambda manifest, rows: text_array(manifest.videos.source, rows),
    "num_frames": lambda manifest, rows: _chosen(manifest.videos.num_frames, rows),
    "fps": _fps,
    "duration_seconds": _seconds,
    "width": lambda manifest, rows: _of_config(manifest, manifest.configs.width.astype(np.int64), rows),
    "height": lambda manifest, rows: _of_config(manifest, manifest.configs.height.astype(np.int64), rows),
    "codec": _codec,
}


class LabelColumns:
    """The columns that the source lists gave the videos of an opened snapshot. They are read when they are asked for.

    They are those that the snapshot holds. A snapshot of an earlier version holds none, and one that jobs removed
    meanwhile cannot be read: then the columns are derived from the attributes of the videos, which the manifest has in
    memory, with the same result.
    """

    def __init__(self, dataset: Storage, snapshot: str, manifest: Manifest) -> None:
        self._dataset, self._snapshot, self._manifest = dataset, snapshot, manifest

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, in the order in which they first come."""
        return tuple(self._derived if self._stored is None else self._stored)

    def kind(self, name: str) -> Kind:
        """What a column holds. KeyError when there is none of this name."""
        return self._derived[name].kind if self._stored is None else self._stored[name]

    def __getitem__(self, name: str) -> LabelColumn:
        """The column of this name. KeyError when there is none; MissingDataError, CorruptDataError or
        UnreadableDataError when the snapshot is damaged or cannot be read."""
        if self._stored is None:
            return self._derived[name]
        kinds = self._stored
        if name not in kinds:
            raise KeyError(name)
        read = self._unless_gone(lambda: open_column(self._dataset, self._snapshot, name, kinds, self._manifest))
        return self._derived[name] if read is None else read

    @lazy
    def _stored(self) -> dict[str, Kind] | None:
        return self._unless_gone(lambda: open_column_kinds(self._dataset, self._snapshot, self._manifest))

    @lazy
    def _derived(self) -> dict[str, LabelColumn]:
        return derived_columns(self._manifest.videos.attributes)

    def _unless_gone(self, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except MissingDataError:
            if has_snapshot(self._dataset, self._snapshot):
                raise
            return None
