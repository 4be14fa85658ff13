"""Ids of some of a dataset's videos, as a sequence of texts. They are decoded when they are asked for: ten million of
them take a gigabyte, and most callers ask how many there are, and for the first few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from .ragged import Array, Ragged

_DECODED_ROWS = 1 << 14
_SHOWN = 10


class ChosenIds(Sequence[str]):
    """The texts of these rows of some columns of ids, one column after the other. Equal to a tuple of them."""

    def __init__(self, parts: Sequence[tuple[Ragged, Array]]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(rows) for _, rows in parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(len(self))))
        place = range(len(self))[index]
        part = int(np.searchsorted(self._ends, place, side="right"))
        ids, rows = self._parts[part]
        return ids.text(int(rows[place - int(self._ends[part])]))

    def __iter__(self) -> Iterator[str]:
        for ids, rows in self._parts:
            for start in range(0, len(rows), _DECODED_ROWS):
                yield from ids.take(rows[start : start + _DECODED_ROWS]).texts()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (ChosenIds, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(self[:]) if len(self) <= _SHOWN else f"<{len(self)} ids, from {self[0]!r} to {self[-1]!r}>"
