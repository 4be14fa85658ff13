"""What source lists say of their videos, as columns: from the JSON text of each video to arrays over all of them.

The text is what counts. A snapshot has the columns too, since a million texts take seconds to parse, and
`derived_columns` is the one place that makes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from ..arguments import fits_int64
from ..errors import CorruptDataError
from .ragged import Array, Ragged, concatenate, from_texts

Kind = Literal["boolean", "integer", "float", "text", "json"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_DTYPES = {"boolean": "u1", "integer": "<i8", "float": "<f8"}

# Parsed values take many times the memory of their text.
_PARSED_ROWS = 1 << 16
# Texts are decoded in matrices of at most this many rows, as wide as their longest text, and this many bytes.
_MATRIX_ROWS = 1 << 14
_MATRIX_BYTES = 1 << 23
# All integers up to it are floats of 64 bits too.
EXACT_IN_FLOAT = 1 << 53
# json.dumps would make an encoder for each value.
_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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
    if kind == "boolean" or (kind == "integer" and not _fits_float(values)):
        objects = values.astype(object)
        objects[~present] = None
        return objects
    return np.where(present, values, np.nan)


def _fits_float(values: Array) -> bool:
    return not len(values) or (int(values.min()) >= -EXACT_IN_FLOAT and int(values.max()) <= EXACT_IN_FLOAT)


def _objects(texts: Ragged, rows: Array | None) -> Array:
    chosen = texts.texts() if rows is None else [texts.text(row) for row in rows.tolist()]
    objects = np.full(len(chosen), None, dtype=object)
    for start in range(0, len(chosen), _PARSED_ROWS):
        # One by one, since numpy would make lists of equal length one array.
        for place, value in enumerate(_parsed(chosen[start : start + _PARSED_ROWS], "null"), start):
            objects[place] = value
    return objects


def _parsed(texts: Sequence[str], empty: str) -> list[Any]:
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


def derived_columns(attributes: Ragged) -> dict[str, LabelColumn]:
    """The columns of all videos from their attributes, by name, in the order in which they first come.

    Each row of `attributes` is a JSON object, or empty. CorruptDataError for a row that is none.
    """
    columns: dict[str, list[Piece]] = {}
    for start in range(0, len(attributes), _PARSED_ROWS):
        rows = _objects_in(attributes.between(start, min(start + _PARSED_ROWS, len(attributes))), start)
        for name in dict.fromkeys(chain.from_iterable(rows)):
            columns.setdefault(name, [Piece(LabelColumn("boolean", *np.zeros((2, start), "u1")))])
        for name, pieces in columns.items():
            pieces.append(_piece_of([row.get(name) for row in rows]))
    return {name: _put_together(columns[name]) for name in list(columns)}


def pieces_of(attributes: Ragged, first_row: int, names: Iterable[str]) -> tuple[dict[str, Piece], list[str]]:
    """What `derived_columns` puts together: of the videos from `first_row` that have these attributes, the columns with
    these names; and all names that they have, in the order in which they first come."""
    rows = _objects_in(attributes, first_row)
    return {name: _piece_of([row.get(name) for row in rows]) for name in names}, list(dict.fromkeys(chain(*rows)))


@dataclass(frozen=True)
class Needs:
    """The kind of some rows, None if none has a value, and whether floats of 64 bits hold them if they are integers."""

    kind: Kind | None
    fits_float: bool


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a column, of the narrowest kind that holds them: many times shorter than Python's objects. `whole`
    tells the integers among numbers that are not all integers."""

    column: LabelColumn
    whole: Array | None = None

    @property
    def kind(self) -> Kind | None:
        """None if no row has a value."""
        return self.column.kind if self.column.present.any() else None

    @property
    def needs(self) -> Needs:
        """What the piece needs of the kind of its column."""
        return Needs(self.kind, self.kind != "integer" or _fits_float(np.asarray(self.column.values)))

    def values_as(self, kind: Kind) -> Array | Ragged:
        """The values, which a column of this kind can hold."""
        values, present = self.column.values, self.column.present
        if self.kind == kind:
            return values
        if kind not in ("text", "json"):
            # Integers among floats, or rows without values.
            return np.asarray(values if self.kind else np.zeros(len(present))).astype(_DTYPES[kind])
        there: list[Any] = values.texts() if isinstance(values, Ragged) else np.asarray(values).tolist()
        if self.kind == "boolean":
            there = list(map(bool, there))
        if self.whole is not None:
            there = [int(value) if whole else value for value, whole in zip(there, self.whole.tolist(), strict=True)]
        return from_texts(_TO_JSON(value) if has else "" for value, has in zip(there, present.tolist(), strict=True))


def _piece_of(values: Sequence[Any]) -> Piece:
    column = _column_of(values)
    return Piece(column, np.array([type(value) is int for value in values]) if column.kind == "float" else None)


def _put_together(pieces: list[Piece]) -> LabelColumn:
    """The column of all pieces, one below the other."""
    kind = common_kind([piece.needs for piece in pieces])
    present = np.concatenate([piece.column.present for piece in pieces])
    values = [piece.values_as(kind) for piece in pieces]
    ragged = [each for each in values if isinstance(each, Ragged)]
    return LabelColumn(kind, concatenate(ragged) if ragged else np.concatenate(values), present)  # type: ignore[arg-type]


def common_kind(needs: Iterable[Needs]) -> Kind:
    """The narrowest kind that holds the values of all pieces: what `_kind` says of all values."""
    needs = set(needs)
    kinds = {each.kind for each in needs} - {None}
    if kinds == {"integer", "float"}:
        return "float" if all(each.fits_float for each in needs) else "json"
    return (kinds.pop() or "json") if len(kinds) == 1 else "json"


def has_name(name: str, attributes: Ragged) -> bool:
    """Whether the attributes of any video have this name. Only those that have it as a JSON text are parsed: none, in
    nearly all datasets."""
    forms = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
    in_bytes = b"|".join(re.escape(form.encode(errors="backslashreplace")) for form in forms)
    if re.search(in_bytes, attributes.values.data) is None:
        return False
    texts = (text for text in attributes.texts() if any(form in text for form in forms))
    try:
        return any(name in json.loads(text) for text in texts)
    except ValueError as error:
        raise CorruptDataError(
            f"the column videos/attributes has what is no JSON: {error}; copy the manifest to the dataset again"
        ) from error


def _objects_in(attributes: Ragged, first_row: int) -> list[dict[str, Any]]:
    """The attributes of the videos from `first_row`, parsed."""
    try:
        rows = _parsed(attributes.texts(), "{}")
    except ValueError:
        rows = [None]
    if any(type(row) is not dict for row in rows):
        raise CorruptDataError(
            f"rows {first_row} to {first_row + len(attributes) - 1} of the column videos/attributes are not a JSON "
            "object each; copy the manifest to the dataset again"
        )
    return rows


def _column_of(values: Sequence[Any]) -> LabelColumn:
    kind = _kind([value for value in values if value is not None])
    present = np.array([value is not None for value in values], dtype="u1")
    if kind == "json":
        texts = ["" if value is None else _TO_JSON(value) for value in values]
        return LabelColumn(kind, from_texts(texts), present)
    if kind == "text":
        return LabelColumn(kind, from_texts("" if value is None else value for value in values), present)
    numbers = np.array([0 if value is None else value for value in values], dtype=_DTYPES[kind])
    return LabelColumn(kind, numbers, present)


def _kind(values: Sequence[Any]) -> Kind:
    """The narrowest kind that holds all values as they are."""
    types = set(map(type, values))
    if types == {bool}:
        return "boolean"
    if types == {int} and fits_int64(min(values)) and fits_int64(max(values)):
        return "integer"
    if types in ({float}, {int, float}):
        whole = [value for value in values if type(value) is int]
        return "float" if all(abs(value) <= EXACT_IN_FLOAT for value in whole) else "json"
    return "text" if types == {str} else "json"
