"""The label columns of a snapshot in layers, put together from those of its layers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..label_columns import Kind, LabelColumn, fits_float
from ..ragged import Array, Ragged, concatenate, from_rows
from ..tables import Origins


def kinds_of_layers(layers: Sequence[dict[str, Kind] | None]) -> dict[str, Kind] | None:
    """The kind of each column that any layer has, by name, in the order in which they first come, oldest layer first.

    Integers and floats together are floats. None if a layer has no columns stored, or if a column has other kinds
    together: then columns are to be derived from the attributes of the videos. A kind may be wider than the videos
    need, and a column may have no value, if only hidden rows of a layer have such values.
    """
    kinds: dict[str, Kind] = {}
    for layer in layers:
        if layer is None:
            return None
        for name, kind in layer.items():
            known = kinds.get(name, kind)
            if known != kind and {known, kind} != {"integer", "float"}:
                return None
            kinds[name] = kind if known == kind else "float"
    return kinds


def column_of_layers(layers: Sequence[LabelColumn | None], kind: Kind, origins: Origins) -> LabelColumn | None:
    """The column of all videos from that of each layer, None for a layer that lacks it. None if it has integers that
    are no floats among floats."""
    start = np.cumsum([0, *(0 if each is None else len(each.present) for each in layers)])[:-1]
    has = np.array([each is not None for each in layers])[origins.layer]
    # A row after all others stands for the videos of layers without the column.
    there = [each for each in layers if each is not None]
    rows = np.where(has, start[origins.layer] + origins.video, sum(len(each.present) for each in there))
    present = np.concatenate([*(each.present for each in there), np.zeros(1, "u1")])[rows]
    texts = [each.values for each in there if isinstance(each.values, Ragged)]
    if texts:
        return LabelColumn(kind, concatenate([*texts, from_rows([b""])]).take(rows), present)
    values: list[Array] = []
    for each in there:
        numbers = np.asarray(each.values)
        if kind != each.kind and not fits_float(numbers):
            return None
        values.append(numbers.astype(np.float64) if kind != each.kind else numbers)
    return LabelColumn(kind, np.concatenate([*values, np.zeros(1, values[0].dtype)])[rows], present)
