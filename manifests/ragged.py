"""Ragged columns: rows of different lengths, in two flat arrays. The manifest holds text, bytes and patterns in them.

Row i of `Ragged(values, offsets)` is `values[offsets[i]:offsets[i + 1]]`. Text is UTF-8, because the version 3
specification of Zarr does not settle Zarr's own string types.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Keys of one width take at most so many bytes a text, or this many times the bytes of the texts. Wider ones take more
# memory than objects, since a sort copies them.
_KEY_BYTES, _TIMES_THE_TEXTS = 128, 2
_WIDEST_KEY_BYTES = 256
# Numbers that are compared at a time: they and the result stay in a processor's cache.
_COMPARED_ROWS = 1 << 16
# Rows of text that are decoded at a time where they need not be in memory together.
_DECODED_ROWS = 1 << 14
# From so many values on, on average, it takes less time to copy a run of rows than to pick its values one by one.
_VALUES_OF_A_COPY = 128


@dataclass(frozen=True, eq=False)
class Ragged:
    """`len(offsets) - 1` rows; `offsets` is int64, starts at 0, never falls and ends at `len(values)`."""

    values: Array
    offsets: Array

    def __post_init__(self) -> None:
        offsets, end = self.offsets, len(self.values)
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != end or ever_falls(offsets):
            raise ValueError(f"offsets do not fit {end} values")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> Array:
        return self.values[int(self.offsets[index]) : int(self.offsets[index + 1])]

    def bytes(self, index: int) -> bytes:
        return self.row(index).tobytes()

    def text(self, index: int) -> str:
        return self.bytes(index).decode()

    def texts(self) -> list[str]:
        """All rows as text, from one copy of the bytes."""
        blob = self.values.tobytes()
        bounds = self.offsets.tolist()
        return [blob[start:stop].decode() for start, stop in pairwise(bounds)]

    def blocks(self, rows: int = _DECODED_ROWS) -> Iterator[Ragged]:
        """The rows in their order, so many at a time."""
        for start in range(0, len(self), rows):
            yield self.between(start, min(start + rows, len(self)))

    def each_text(self) -> Iterator[str]:
        """The rows as text, like `texts`, of which few are in memory at a time."""
        for block in self.blocks():
            yield from block.texts()

    def find(self, text: str) -> int | None:
        """The row with this text, where the bytes of the rows ascend; None if there is none. No row is decoded, and few
        are looked at."""
        # A text that is no valid Unicode is in no row: see `from_texts`.
        wanted = text.encode(errors="surrogatepass")
        row = bisect_left(range(len(self)), wanted, key=self.bytes)
        return row if row < len(self) and self.bytes(row) == wanted else None

    def search(self, texts: Ragged, *, right: bool = False) -> tuple[Array, Array]:
        """For each of `texts` how many rows are below it, where the bytes of the rows ascend, and whether a row has it.
        With `right` rows that have it count too, as in numpy.searchsorted.

        All texts are looked up at the same time: first among as many rows as there are texts, evenly spread, and
        between two of these by a binary search. So it takes little of a long column.
        """
        keys = texts.sort_keys()
        spread = np.arange(0, len(self), max(1, len(self) // max(1, len(texts))))
        rows, wanted = _comparable(self.take(spread), texts, keys)
        place = np.searchsorted(rows, wanted, side="right" if right else "left")
        # What is below the row at `place`, and above the one before it.
        ends = np.append(spread, len(self))
        low, high = np.where(place > 0, ends[place - 1] + 1, 0), ends[place]
        # The row that may have the text is not looked at again.
        likely = place - 1 if right else place
        found = np.zeros(len(texts), bool)
        compared = np.flatnonzero((likely >= 0) & (likely < len(rows)))
        found[compared] = rows[likely[compared]] == wanted[compared]
        while len(active := np.flatnonzero(low < high)):
            middle = (low[active] + high[active]) // 2
            rows, wanted = _comparable(self.take(middle), texts, keys, active)
            same = rows == wanted
            found[active] |= same
            is_below = (rows < wanted) | (same if right else False)
            low[active[is_below]] = middle[is_below] + 1
            high[active[~is_below]] = middle[~is_below]
        return low, found

    def ascends(self, *, may_repeat: bool = False) -> bool:
        """Whether each row's bytes are above those of the one before it, or the same where they `may_repeat`."""
        for start in range(0, len(self) - 1, _COMPARED_ROWS):
            keys = self.between(start, min(start + _COMPARED_ROWS + 1, len(self))).sort_keys()
            if not (keys[:-1] <= keys[1:] if may_repeat else keys[:-1] < keys[1:]).all():
                return False
        return True

    def unique(self) -> Ragged:
        """Each text once, ascending."""
        return self.take(np.unique(self.sort_keys(), return_index=True)[1])

    def sort_keys(self) -> Array:
        """An array in which the rows of text compare as their bytes do, and as Python's strings do: bytes of one width,
        or objects where some are long, or much longer than others, or end with zero bytes."""
        lengths = np.diff(self.offsets)
        width = max(1, int(lengths.max(initial=0)))
        most = max(_KEY_BYTES * len(lengths), _TIMES_THE_TEXTS * len(self.values))
        if width > _WIDEST_KEY_BYTES or width * len(lengths) > most or not self.values.all():
            return _objects(self)
        matrix = np.zeros((len(lengths), width), dtype="u1")
        matrix[np.arange(width) < lengths[:, None]] = self.values
        return matrix.view(f"S{width}").ravel()

    def between(self, start: int, stop: int) -> Ragged:
        """The rows [start, stop). Their values are not copied."""
        offsets = self.offsets[start : stop + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def take(self, rows: Array) -> Ragged:
        """The given rows, in the given order."""
        starts, stops = self.offsets[:-1][rows], self.offsets[1:][rows]
        offsets = offsets_of(stops - starts)
        # Rows that are neighbours here, too, are copied together. Indices take 24 bytes for each value.
        is_first = np.concatenate([np.ones(min(1, len(starts)), bool), starts[1:] != stops[:-1]])
        firsts = np.flatnonzero(is_first)
        if offsets[-1] < _VALUES_OF_A_COPY * len(firsts) or not len(firsts):
            return Ragged(self.values[ragged_indices(starts, stops - starts)], offsets)
        lasts = np.append(firsts[1:], len(starts)) - 1
        runs = zip(starts[firsts].tolist(), stops[lasts].tolist(), strict=True)
        return Ragged(np.concatenate([self.values[start:stop] for start, stop in runs]), offsets)


def _comparable(rows: Ragged, texts: Ragged, keys: Array, some: Array | None = None) -> tuple[Array, Array]:
    """Keys of rows, and those of texts or of `some` of them, of one kind."""
    found, wanted = rows.sort_keys(), keys if some is None else keys[some]
    if found.dtype == wanted.dtype == object or object not in (found.dtype, wanted.dtype):
        return found, wanted
    return _objects(rows), _objects(texts if some is None else texts.take(some))


def _objects(ragged: Ragged) -> Array:
    keys = np.empty(len(ragged), dtype=object)
    keys[:] = ragged.texts()
    return keys


def from_rows(rows: Iterable[Sequence[int] | Array | bytes], dtype: str = "u1") -> Ragged:
    """A ragged array from one sequence per row."""
    arrays = [
        np.frombuffer(row, dtype="u1") if isinstance(row, bytes) else np.asarray(row, dtype=dtype) for row in rows
    ]
    values = np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    return Ragged(values.astype(dtype, copy=False), offsets_of(lengths))


def from_texts(rows: Iterable[str]) -> Ragged:
    """A ragged array of UTF-8."""
    # File names need not be valid Unicode. Python holds invalid bytes as lone surrogates. They are stored as \\udc..
    # text, so that different names stay different.
    encoded = [row.encode("utf-8", errors="backslashreplace") for row in rows]
    lengths = np.array([len(row) for row in encoded], dtype=np.int64)
    return Ragged(np.frombuffer(b"".join(encoded), dtype="u1"), offsets_of(lengths))


def concatenate(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, one part after the other."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return Ragged(np.concatenate([part.values for part in parts]), offsets_of(lengths))


def ragged_as_is(values: Array, offsets: Array) -> Ragged:
    """A ragged array of offsets that are known to fit. Checking them reads all of them."""
    made = Ragged.__new__(Ragged)
    vars(made).update(values=values, offsets=offsets)
    return made


def ever_falls(numbers: Array) -> bool:
    """Whether any of some numbers is below the one before it."""
    for start in range(0, len(numbers) - 1, _COMPARED_ROWS):
        some = numbers[start : start + _COMPARED_ROWS + 1]
        if (some[1:] < some[:-1]).any():
            return True
    return False


def offsets_of(lengths: Array) -> Array:
    """The start of each row and the end of the last: [0, l0, l0 + l1, ...], one longer than `lengths`."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def stretches_of(offsets: Array, most: int) -> Iterator[tuple[int, int]]:
    """Rows [first, last) in their order, as many at a time as have `most` values together; a row that has more comes
    alone."""
    first = 0
    while first < len(offsets) - 1:
        fitting = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
        last = max(first + 1, fitting)
        yield first, last
        first = last


def ragged_indices(starts: Array, lengths: Array) -> Array:
    """`arange(start, start + length)` of every row, one after the other, without a loop."""
    offsets = offsets_of(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
