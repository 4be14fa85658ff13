"""What source lists say of all videos, as columns, and the arrays that users get of them.

`parsed_columns.py` makes them of the JSON text of each video.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from .ragged import Array, Ragged

Kind = Literal["boolean", "integer", "float", "text", "json"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DTYPES = {"boolean": "u1", "integer": "<i8", "float": "<f8"}

# Numbers in the cells of lists. Leading zeros and a plus sign belong to codes and phone numbers rather than to numbers.
INTEGER_TEXT = re.compile(r"0|-?[1-9][0-9]*")
FLOAT_TEXT = re.compile(r"-?(0|[1-9][0-9]*)?\.[0-9]+([eE][-+]?[0-9]+)?|-?(0|[1-9][0-9]*)\.?([eE][-+]?[0-9]+)?")

# Parsed values take many times the memory of their text.
PARSED_ROWS = 1 << 16
# Texts are decoded in matrices of at most this many rows, as wide as their longest text, and this many bytes.
_MATRIX_ROWS = 1 << 14
_MATRIX_BYTES = 1 << 23
# All integers up to it are floats of 64 bits too.
EXACT_IN_FLOAT = 1 << 53


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """A column of the source lists, with an entry for each video.

    `values` is int64 for "integer", float64 for "float", uint8 of 0 and 1 for "boolean", and ragged UTF-8 for "text",
    and for "json", of any JSON values. `present` is uint8: 0 for a video that the lists say nothing of, or null. There
    `values` is 0 or empty.
    """

    kind: Kind
    values: Array | Ragged
    present: Array

    def same(self, other: LabelColumn) -> bool:
        """Whether both hold the same values; NaN is the same as NaN."""
        if self.kind != other.kind or not np.array_equal(self.present, other.present):
            return False
        if isinstance(self.values, Ragged) and isinstance(other.values, Ragged):
            return np.array_equal(self.values.offsets, other.values.offsets) and np.array_equal(
                self.values.values, other.values.values
            )
        return np.array_equal(self.values, other.values, equal_nan=self.kind == "float")  # type: ignore[arg-type]

    def array(self, rows: Array | None = None) -> Array:
        """The values of all videos, or of those in `rows`, which ascend, as a read-only array that users get:

        - "integer": int64, or float64 where a value is missing, as in pandas; object where float64 cannot hold one;
        - "float": float64;
        - "boolean": bool, or object where a value is missing;
        - "text": numpy's StringDType;
        - "json": object, what json.loads makes of each value.

        A missing value is NaN in float64 and text, and None in object.
        """
        if isinstance(self.values, Ragged):
            if self.kind == "json":
                return _read_only(_objects(self.values, rows))
            return _read_only(text_array(self.values, rows, self.present.astype(bool)))
        column = self if rows is None else replace(self, values=self.values[rows], present=self.present[rows])
        return _read_only(_numbers(column.kind, np.asarray(column.values), column.present.astype(bool)))


def _read_only(array: Array) -> Array:
    # Read-only, since all callers get the same array.
    array = array.view()
    array.flags.writeable = False
    return array


def _numbers(kind: Kind, values: Array, present: Array) -> Array:
    if kind == "boolean":
        values = values.astype(bool)
    if present.all():
        return values
    if kind == "boolean" or (kind == "integer" and not fits_float(values)):
        objects = values.astype(object)
        objects[~present] = None
        return objects
    return np.where(present, values, np.nan)


def fits_float(values: Array) -> bool:
    """Whether floats of 64 bits hold these integers."""
    return not len(values) or (int(values.min()) >= -EXACT_IN_FLOAT and int(values.max()) <= EXACT_IN_FLOAT)


def _objects(texts: Ragged, rows: Array | None) -> Array:
    chosen = texts.texts() if rows is None else [texts.text(row) for row in rows.tolist()]
    objects = np.full(len(chosen), None, dtype=object)
    for start in range(0, len(chosen), PARSED_ROWS):
        # One by one, since numpy would make lists of equal length one array.
        for place, value in enumerate(parsed(chosen[start : start + PARSED_ROWS], "null"), start):
            objects[place] = value
    return objects


def parsed(texts: Sequence[str], empty: str) -> list[Any]:
    """The values of these JSON texts, with the JSON text `empty` in place of each that is empty. ValueError if one is
    not JSON."""
    # In one call they take half the time.
    values = json.loads(f"[{','.join(text or empty for text in texts)}]")
    if len(values) != len(texts):
        raise ValueError("a text is not one JSON value")
    return list(values)


def text_array(texts: Ragged, rows: Array | None = None, present: Array | None = None) -> Array:
    """Ragged UTF-8, or its `rows`, which ascend, as an array of numpy's StringDType. It is NaN where `present`, which
    has an entry for each text, is False.

    A list of Python's strings in between takes several times as long, and so does choosing rows of the result.
    """
    some_are_missing = present is not None and not present.all()
    dtype = np.dtypes.StringDType(na_object=np.nan) if some_are_missing else np.dtypes.StringDType()
    out = np.empty(len(texts) if rows is None else len(rows), dtype=dtype)
    for start in range(0, len(texts), _MATRIX_ROWS):
        stop = min(start + _MATRIX_ROWS, len(texts))
        some = _some_texts(texts, start, stop)
        if rows is None:
            out[start:stop] = some
        else:
            first, last = np.searchsorted(rows, [start, stop]).tolist()
            out[first:last] = some[rows[first:last] - start]
    if present is not None and some_are_missing:
        out[~present if rows is None else ~present[rows]] = np.nan
    return out


def _some_texts(texts: Ragged, start: int, stop: int) -> Array:
    """Rows [start, stop) as an array of bytes of one width, or as objects where that is not possible."""
    offsets = texts.offsets[start : stop + 1]
    values, lengths = texts.values[offsets[0] : offsets[-1]], np.diff(offsets)
    width = max(1, int(lengths.max(initial=0)))
    # Numpy takes zero bytes at the end of a value for padding.
    if width * len(lengths) > _MATRIX_BYTES or not values.all():
        return np.array([texts.text(row) for row in range(start, stop)], dtype=object)
    matrix = np.zeros((len(lengths), width), dtype="u1")
    matrix[np.arange(width) < lengths[:, None]] = values
    return matrix.view(f"S{width}").ravel()
