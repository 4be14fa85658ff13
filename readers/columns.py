"""Columns over all videos of a dataset: `Dataset.columns`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..manifests.dataset_files.video_columns import BUILT_IN, LabelColumns
from ..manifests.label_columns import Kind
from ..manifests.ragged import Array
from ..manifests.tables import Manifest
from ..wording import counted

# Of the dataset's own columns, by the kind of their dtype.
_KINDS: dict[str, Kind] = {"i": "integer", "f": "float", "T": "text"}


class Columns(Mapping[str, Array]):
    """Columns over the videos of a dataset, by name: numpy arrays with an entry for each video, in their order.

    The dataset's own columns come first, then those of the source lists. A column of the lists that has the name of one
    of the dataset's own takes its place here; `built_in` and `labels` have the two kinds apart.

    - `id`, `source` and `codec` are text, `num_frames`, `width` and `height` int64, `fps` and `duration_seconds`
      float64.
    - A column of the lists is int64, float64 or bool if all its values are integers, numbers or booleans. Strings are
      numpy's StringDType. Any other column is of dtype object and has what json.loads makes of each value.
    - A video without a value, or with null, has NaN among numbers and strings, so that integers become float64 as in
      pandas, and None among booleans and objects. `present` tells which videos have a value.

    A column is read when it is first asked for, and kept; its array is read-only. KeyError for a name that is not
    there.
    """

    def __init__(self, manifest: Manifest, labels: LabelColumns, rows: Array | None) -> None:
        """`rows` are the rows of the videos in the manifest; None stands for all."""
        self._manifest, self._all_labels, self._rows = manifest, labels, rows
        self._own: tuple[str, ...] = tuple(BUILT_IN)
        self._labels: tuple[str, ...] = labels.names
        self._arrays: dict[str, Array] = {}

    @property
    def built_in(self) -> Columns:
        """The dataset's own columns alone."""
        columns = Columns(self._manifest, self._all_labels, self._rows)
        columns._labels = ()
        return columns

    @property
    def labels(self) -> Columns:
        """The columns of the source lists alone."""
        columns = Columns(self._manifest, self._all_labels, self._rows)
        columns._own = ()
        return columns

    @property
    def of_all_videos(self) -> Columns:
        """The same columns over all videos of the snapshot, also where `Dataset.where` chose some."""
        if self._rows is None:
            return self
        columns = Columns(self._manifest, self._all_labels, None)
        columns._own, columns._labels = self._own, self._labels
        return columns

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = self._array(name)
        return self._arrays[name]

    def _array(self, name: str) -> Array:
        if name in self._labels:
            return self._all_labels[name].array(self._rows)
        if name not in self._own:
            raise self._missing(name)
        array = BUILT_IN[name](self._manifest, self._rows).view()
        array.flags.writeable = False
        return array

    def _missing(self, name: str) -> KeyError:
        return KeyError(f"the dataset has no column {name!r}; it has {', '.join(self)}")

    def present(self, name: str) -> Array:
        """Which videos have a value in a column: bool, (videos,)."""
        if name in self._labels:
            present = self._all_labels[name].present.astype(bool)
            return present if self._rows is None else np.asarray(present[self._rows])
        if name not in self._own:
            raise self._missing(name)
        return np.ones(self._num_videos, dtype=bool)

    def kind(self, name: str) -> Kind:
        """What a column holds: "boolean", "integer", "float", "text", or "json", any JSON values."""
        if name in self._labels:
            return self._all_labels.kind(name)
        return _KINDS[self[name].dtype.kind]

    def __contains__(self, name: object) -> bool:
        return name in self._labels or name in self._own

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._own, *self._labels)))

    def __len__(self) -> int:
        return len({*self._own, *self._labels})

    def __eq__(self, other: object) -> bool:
        # That of Mapping compares arrays, whose comparison is not one truth.
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        groups = (("its own", self._own), ("of the source lists", self._labels))
        named = [f"{', '.join(names)} ({which})" for which, names in groups if names]
        return f"<Columns over {counted(self._num_videos, 'video')}: {'; '.join(named) or 'none'}>"

    @property
    def _num_videos(self) -> int:
        return len(self._manifest.videos) if self._rows is None else len(self._rows)
