"""What the items of a dataset consist of, and where each part of them lies in the memory of batches."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from ...arguments import fits_int64
from ...errors import UsageError, WrongTypeError
from ...readers.convert.copies import cloned, copy_frame
from .nested import with_values

# Columns begin at pages.
_PAGE_BYTES = 1 << 12
# Batches of smaller columns are copied out when they are delivered: a consumer that keeps the labels should not keep
# the frames too.
_LEASED_BYTES = 1 << 16


@dataclass(frozen=True)
class Column:
    """An entry of items that is a tensor or a number: all rows of it lie from byte `offset` of the memory on."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class BatchRows:
    """`num_rows` rows of all columns. Entries of items that are neither tensors nor numbers have no column."""

    columns: tuple[Column, ...]
    names: tuple[str, ...]
    """Of all entries, in the order of items."""
    num_rows: int
    num_bytes: int

    def tensors(self, memory: Any, first_byte: int = 0) -> dict[str, torch.Tensor]:
        """Each column in the `num_bytes` of a buffer from `first_byte` on: (rows, ...)."""
        return {
            each.name: _tensor(memory, each, self.num_rows * each.row_bytes, first_byte + each.offset).view(
                self.num_rows, *each.shape
            )
            for each in self.columns
        }

    def leased(self, batch_size: int) -> list[Column]:
        """The columns that are large enough to be delivered where they lie."""
        return [each for each in self.columns if each.row_bytes * batch_size >= _LEASED_BYTES]


@dataclass(frozen=True)
class Areas:
    """How the memory of batches is divided: into slots, each for a batch of any kind, which lie in areas.

    Where all batches are of one kind, there is one area, whose rows are those of all slots, so that clips that are read
    together go to rows of several batches. Otherwise each slot is an area, in which a batch of any kind begins.
    """

    kinds: tuple[BatchRows, ...]
    """The rows of an area, where its batches are of this kind."""
    batch_sizes: tuple[int, ...]
    """How many rows a batch of each kind has."""
    num_slots: int

    @staticmethod
    def of(kinds: Sequence[BatchRows], num_slots: int) -> Areas:
        """`kinds` are the rows of one batch of each kind."""
        rows = (with_rows(kinds[0], kinds[0].num_rows * num_slots),) if len(kinds) == 1 else tuple(kinds)
        return Areas(rows, tuple(each.num_rows for each in kinds), num_slots)

    @property
    def area_bytes(self) -> int:
        return max(each.num_bytes for each in self.kinds)

    @property
    def num_bytes(self) -> int:
        return self.area_bytes * (1 if len(self.kinds) == 1 else self.num_slots)

    def place(self, slot: int) -> tuple[int, int]:
        """The area of a slot, and the row of that in which its batch begins."""
        return (0, slot * self.batch_sizes[0]) if len(self.kinds) == 1 else (slot, 0)

    def tensors(self, memory: Any, area: int, kind: int) -> dict[str, torch.Tensor]:
        """The columns of an area for batches of a kind: (rows, ...)."""
        return self.kinds[kind].tensors(memory, area * self.area_bytes)


def _tensor(memory: Any, column: Column, num_bytes: int, offset: int) -> torch.Tensor:
    if not num_bytes:
        return torch.empty(0, dtype=column.dtype, device="cpu")
    array = np.frombuffer(memory, dtype=np.uint8, count=num_bytes, offset=offset)
    return torch.from_numpy(array).view(column.dtype)


def rows_for(item: Mapping[str, Any], num_rows: int, apart: Collection[str] = ()) -> BatchRows:
    """The rows for items such as this one, without columns for entries in `apart`. WrongTypeError for one that is no
    dict, as a subclass may make it."""
    if not isinstance(item, Mapping):
        raise WrongTypeError(
            f"an item is a {type(item).__name__}; ClipLoader makes batches of dicts, so let `items` of the subclass "
            "return one for each clip, or take a DataLoader"
        )
    tensors = {name: as_tensor(value) for name, value in item.items() if name not in apart}
    columns = [Column(name, each.dtype, tuple(each.shape), 0) for name, each in tensors.items() if each is not None]
    return with_rows(BatchRows(tuple(columns), tuple(item), 0, 0), num_rows)


def with_rows(rows: BatchRows, num_rows: int) -> BatchRows:
    """The same columns with another number of rows."""
    columns, offset = [], 0
    for column in rows.columns:
        columns.append(replace(column, offset=offset))
        offset += -(-column.row_bytes * num_rows // _PAGE_BYTES) * _PAGE_BYTES
    return BatchRows(tuple(columns), rows.names, num_rows, offset)


def as_tensor(value: Any) -> torch.Tensor | None:
    """An entry as a tensor on the CPU, as torch's default collation would stack it; None for what it would list."""
    if isinstance(value, torch.Tensor):
        return value if value.device.type == "cpu" and value.layout == torch.strided else None
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(value)
    if isinstance(value, (bool, np.bool_)):
        return torch.tensor(bool(value), device="cpu")
    if isinstance(value, (int, np.integer)):
        # Collation tells of one that no tensor holds, by the name of its entry.
        return torch.tensor(int(value), device="cpu") if fits_int64(int(value)) else None
    is_float = isinstance(value, (float, np.floating))
    return torch.tensor(float(value), dtype=torch.float64, device="cpu") if is_float else None


def _alone(value: Any, memory: range) -> Any:
    """A value without what else lies in its memory, which would be sent and kept with it, and outside the addresses
    `memory`, which other batches are read into."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        is_whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        if not is_whole or value.data_ptr() in memory:
            return value.detach().clone()
        return value.detach() if value.requires_grad else value
    if isinstance(value, PackedSequence):
        made: Any = PackedSequence
        return made(*(None if each is None else _alone(each, memory) for each in value))
    # What a file has is in no other memory.
    if isinstance(value, np.ndarray) and value.base is not None and not isinstance(value, np.memmap):
        return value.copy()
    return value


def lies_at(value: Any, place: torch.Tensor) -> bool:
    """Whether an entry of an item is what lies in this row, since it was read into it. A transposed view is not."""
    return (
        isinstance(value, torch.Tensor)
        and value.data_ptr() == place.data_ptr()
        and (value.dtype, value.shape, value.stride()) == (place.dtype, place.shape, place.stride())
    )


def write_items(
    items: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    tensors: Mapping[str, torch.Tensor],
    rows: Sequence[int],
) -> tuple[dict[str, Any], ...]:
    """Copy items into rows, but for what lies there already. Returns the entries of each that have no column.

    `names` are those of the first item's entries. UsageError when one has others, or another shape or dtype.
    """
    columns = [column for column in tensors.values() if column.numel()]
    first = min((column.data_ptr() for column in columns), default=0)
    memory = range(first, max((column.data_ptr() + column.nbytes for column in columns), default=0))
    rest, copies = [], []
    for item, row in zip(items, rows, strict=True):
        rest.append(_without_column(item, names, tensors, memory))
        places = {name: tensors[name][row] for name in item if name in tensors}
        copies += [(_fitting(item, name, at), at) for name, at in places.items() if not lies_at(item[name], at)]
    # A subclass may give an entry what was read for another one, whose row is written too.
    for tensor, place in [
        (cloned(tensor) if tensor.data_ptr() in memory else tensor, place) for tensor, place in copies
    ]:
        copy_frame(tensor, place)
    return tuple(rest)


def _without_column(
    item: Mapping[str, Any], names: Sequence[str], tensors: Mapping[str, torch.Tensor], memory: range
) -> dict[str, Any]:
    if item.keys() != set(names):
        one, other = sorted(set(names) - item.keys()), sorted(item.keys() - set(names))
        what = f"lacks {one[0]!r}, which the first item has" if one else f"has {other[0]!r}, which the first item lacks"
        raise UsageError(
            f"draw {item.get('draw')}: the item {what}; items of a batch have the same entries: where several datasets "
            "are mixed, give all of them the same outputs and metadata"
        )
    alone = partial(_alone, memory=memory)
    return {name: with_values(value, alone) for name, value in item.items() if name not in tensors}


def _fitting(item: Mapping[str, Any], name: str, place: torch.Tensor) -> torch.Tensor:
    """An entry as a tensor that goes into a row."""
    value = item[name]
    tensor = as_tensor(value)
    if tensor is None or tensor.shape != place.shape or tensor.dtype != place.dtype:
        found = type(value).__name__ if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
        raise UsageError(
            f"draw {item.get('draw')}: {name!r} is {found}, that of the first item is {place.dtype} "
            f"{tuple(place.shape)}; items of a batch have the same shapes and dtypes, except for entries that "
            f"ClipLoader has a function for, as collate={{{name!r}: list}}"
        )
    return tensor.detach()
