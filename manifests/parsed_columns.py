"""From the JSON text of each video, what source lists say of it, to columns over all videos.

The text is what counts. A snapshot has the columns too, since a million texts take seconds to parse, and
`derived_columns` is the one place that makes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..arguments import fits_int64
from ..errors import CorruptDataError
from .label_columns import DTYPES, EXACT_IN_FLOAT, PARSED_ROWS, Kind, LabelColumn, fits_float, parsed
from .ragged import Array, Ragged, concatenate, from_texts

# json.dumps would make an encoder for each value.
_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def derived_columns(attributes: Ragged) -> dict[str, LabelColumn]:
    """The columns of all videos from their attributes, by name, in the order in which they first come.

    Each row of `attributes` is a JSON object, or empty. CorruptDataError for a row that is none.
    """
    columns: dict[str, list[Piece]] = {}
    for start in range(0, len(attributes), PARSED_ROWS):
        rows = _objects_in(attributes.between(start, min(start + PARSED_ROWS, len(attributes))), start)
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
        return Needs(self.kind, self.kind != "integer" or fits_float(np.asarray(self.column.values)))

    def values_as(self, kind: Kind) -> Array | Ragged:
        """The values, which a column of this kind can hold."""
        values, present = self.column.values, self.column.present
        if self.kind == kind:
            return values
        if kind not in ("text", "json"):
            # Integers among floats, or rows without values.
            return np.asarray(values if self.kind else np.zeros(len(present))).astype(DTYPES[kind])
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
        rows = parsed(attributes.texts(), "{}")
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
    numbers = np.array([0 if value is None else value for value in values], dtype=DTYPES[kind])
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
