"""The columns of blocks of clips: their names, types and shapes, which are the same in all blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import UsageError
from ..manifests.ragged import Array

TEXT = "text"


@dataclass(frozen=True)
class Column:
    """A column: numbers of a numpy dtype, (rows, *shape), or TEXT. Only columns of shape () may have nulls."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """The least that a row takes in a block: booleans are bits there, and texts may be empty."""
        if self.dtype in (TEXT, "bool"):
            return 0
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def columns_of(item: Mapping[str, Any], metadata: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of items like this one; `metadata` are those that come from the source list, whose types one item
    does not tell, unless a subclass of ClipDataset has put something else there. UsageError for a value that has no
    column."""
    given = {column.name: column for column in metadata}
    return tuple(
        given[name] if name in given and _fits(value, given[name]) else _column_of(name, value)
        for name, value in item.items()
    )


def _fits(value: Any, column: Column) -> bool:
    """Whether a value may be one of the source list's in this column."""
    if value is None or isinstance(value, str):
        return value is None or column.dtype == TEXT
    array = array_of(column.name, value)
    return column.dtype != TEXT and not array.shape and np.can_cast(array.dtype, column.dtype)


def metadata_columns(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> list[Column]:
    """The columns of what the source list says of all videos: bool, int64, float64 where one is a float, or text.

    `rows` has the values of each video. None is a null. UsageError for lists and dicts, and where types do not go
    together.
    """
    found: dict[str, set[type]] = {name: set() for name in names}
    for row in rows:
        for name in names:
            found[name].add(type(row[name]))
    return [_column_of_types(name, types - {type(None)}) for name, types in found.items()]


def _column_of_types(name: str, types: set[type]) -> Column:
    if types <= {str}:
        return Column(name, TEXT)
    if types == {bool}:
        return Column(name, "bool")
    if types <= {int, float}:
        return Column(name, "float64" if float in types else "int64")
    kinds = ", ".join(sorted(kind.__name__ for kind in types))
    raise UsageError(
        f"column {name!r} of the source list has values of these types: {kinds}; a column of a Ray dataset has texts "
        "alone, numbers alone or booleans alone. Write the others as text in the list, or leave the column out of "
        "metadata"
    )


def array_of(name: str, value: Any) -> Array:
    """A value of an item as a numpy array; UsageError when numpy has no such numbers."""
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:
            raise UsageError(
                f"{name!r} is of dtype torch.bfloat16, which numpy and Arrow do not have; use torch.float16 or "
                "torch.float32"
            )
        return value.detach().cpu().numpy()
    array = np.asarray(value) if isinstance(value, (np.ndarray, np.generic, bool, int, float)) else None
    if array is None or array.dtype.kind not in "biuf":
        raise UsageError(
            f"{name!r} is a {type(value).__name__}; a column of a Ray dataset is made of tensors, numbers or texts. "
            "What a transform returns has to be one of these"
        )
    return array


def _column_of(name: str, value: Any) -> Column:
    if isinstance(value, str):
        return Column(name, TEXT)
    array = array_of(name, value)
    return Column(name, str(array.dtype), array.shape)
