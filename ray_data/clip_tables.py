"""Items of a ClipDataset as one Arrow table, with Ray's type of column for tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from ray.data.extensions import ArrowTensorArray

from ..errors import UsageError
from .clip_columns import TEXT, Column, array_of

Item = dict[str, Any]


def table_of(items: Sequence[Item], columns: Sequence[Column]) -> pa.Table:
    """The items as rows; UsageError for an item that has other columns, or a value of another type or shape.

    Tensors that lie one after the other in memory, as those of items that were read together, are not copied.
    """
    for item in items:
        if set(item) != {column.name for column in columns}:
            raise UsageError(
                f"{_place(item)} has the columns {', '.join(item)}, the first clip "
                f"{', '.join(column.name for column in columns)}: a transform has to return the same ones for all"
            )
    arrays = [_array([item[column.name] for item in items], column, items) for column in columns]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The schema of tables with these columns."""
    return table_of([{column.name: _example(column) for column in columns}], columns).schema


def _array(values: list[Any], column: Column, items: Sequence[Item]) -> Any:
    if column.dtype == TEXT:
        return _texts(values, column, items)
    nulls = [value is None and not column.shape for value in values]
    rows = [
        np.zeros((), dtype=column.dtype) if null else array_of(column.name, value)
        for value, null in zip(values, nulls, strict=True)
    ]
    for row, item in zip(rows, items, strict=True):
        # Integers among floats are floats too.
        fits = str(row.dtype) == column.dtype or (not column.shape and np.can_cast(row.dtype, column.dtype))
        if row.shape != column.shape or not fits:
            raise UsageError(
                f"{column.name!r} of {_place(item)} has shape {row.shape} and dtype {row.dtype}, that of the first "
                f"clip {column.shape} and {column.dtype}; all rows of a Ray dataset have one shape and dtype: give "
                "size=(height, width), and let a transform return the same ones for all clips"
            )
    if not column.shape:
        return pa.array(np.array(rows, dtype=column.dtype), mask=np.array(nulls))
    whole = _whole(values)
    return ArrowTensorArray.from_numpy(np.stack(rows) if whole is None else whole.numpy())


def _texts(values: list[Any], column: Column, items: Sequence[Item]) -> Any:
    for value, item in zip(values, items, strict=True):
        if not isinstance(value, str | None):
            raise UsageError(
                f"{column.name!r} of {_place(item)} is a {type(value).__name__}, that of the first clip is a text"
            )
    return pa.array(values, pa.string())


def _whole(values: list[Any]) -> torch.Tensor | None:
    """The tensor of which these are the parts, if they lie one after the other in the same memory, else None."""
    first = values[0]
    if not isinstance(first, torch.Tensor):
        return None
    memory, apart = first.untyped_storage().data_ptr(), first.numel()
    for place, value in enumerate(values):
        if not (
            isinstance(value, torch.Tensor)
            and value.device.type == "cpu"
            and value.is_contiguous()
            and value.untyped_storage().data_ptr() == memory
            and value.storage_offset() == first.storage_offset() + place * apart
        ):
            return None
    return first.detach().as_strided((len(values), *first.shape), (apart, *first.stride()))


def _example(column: Column) -> Any:
    return "" if column.dtype == TEXT else np.zeros(column.shape, dtype=column.dtype)


def _place(item: Item) -> str:
    return f"the clip of draw {item.get('draw')}, from video {item.get('video')},"
