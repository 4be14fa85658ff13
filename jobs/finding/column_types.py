"""Types of the columns of CSV and TSV lists, whose cells are all text. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...arguments import fits_int64
from ...errors import UsageError, WrongTypeError
from ...manifests.label_columns import FLOAT_TEXT, INTEGER_TEXT

TEXT = "text"

_NOT_FINITE = ("nan", "inf", "-inf", "+inf", "infinity", "-infinity")


def _integer(cell: str) -> int:
    if not INTEGER_TEXT.fullmatch(cell) or not fits_int64(int(cell)):
        raise ValueError
    return int(cell)


def _float(cell: str) -> float | None:
    if cell.lower() in _NOT_FINITE:
        return None
    if not FLOAT_TEXT.fullmatch(cell):
        raise ValueError
    if cell.removeprefix("-").isdigit():
        # An integer that is too long is a code, and a float would lose digits of it.
        _integer(cell)
    value = float(cell)
    return value if math.isfinite(value) else None


def _boolean(cell: str) -> bool:
    return {"true": True, "false": False}[cell.lower()]


def _json(cell: str) -> Any:
    value = json.loads(cell)
    if not isinstance(value, dict | list):
        raise TypeError
    return value


# Numbers as most programs write them, which need no closer look: integers of up to 18 digits, and floats that are
# finite. "-0" is text.
_PLAIN: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "integer": (re.compile(r"0|-?[1-9][0-9]{0,17}"), int),
    "float": (re.compile(r"(?!-0\Z)-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]+)?(?:[eE]-?[0-9]{1,2})?"), float),
}

# In the order in which they are tried.
_TYPES: dict[str, Callable[[str], Any]] = {"integer": _integer, "boolean": _boolean, "float": _float, "json": _json}
_REFUSED = (ValueError, TypeError, KeyError, RecursionError)


def parse_types(texts: Sequence[str]) -> dict[str, str]:
    """The types that texts such as `label=text,score=float` give to columns. UsageError for anything else."""
    types: dict[str, str] = {}
    for text in texts:
        for each in filter(None, text.split(",")):
            name, _, kind = each.rpartition("=")
            _check_kind(name, kind, each)
            types[name] = kind
    return types


def known_types(types: Mapping[str, str] | None) -> Mapping[str, str]:
    """The types that a caller gives to columns; none for None. UsageError for a type that there is not,
    WrongTypeError for no mapping."""
    if not isinstance(types, Mapping | None):
        raise WrongTypeError(f"types is {types!r}; give a dict of columns and their types, such as {{'label': 'text'}}")
    for name, kind in (types or {}).items():
        _check_kind(name, kind, f"{name}={kind}")
    return types or {}


def _check_kind(name: str, kind: str, shown: str) -> None:
    if not name or kind not in (*_TYPES, TEXT):
        raise UsageError(f"--types has {shown!r}; it takes COLUMN=TYPE, with {', '.join(_TYPES)} or {TEXT}")


def check_types(types: Mapping[str, str], columns: Collection[str]) -> None:
    """UsageError if `types` names a column that is not one of those that CSV and TSV lists have."""
    unknown = sorted(types.keys() - set(columns))
    if unknown:
        known = (
            f"name one of {', '.join(map(repr, sorted(columns)))}" if columns else "leave it out: no such list is given"
        )
        raise UsageError(f"--types names {unknown[0]!r}, which is no column of a CSV or TSV list; {known}")


class ColumnType:
    """Infers the type of a column from its cells, one after the other.

    It is integer, boolean, float or json (objects and lists) if all cells that are not empty are of that type; else
    text. A column of empty cells is text. Numbers with leading zeros or a plus sign and integers beyond 64 bits are
    text: they are codes or phone numbers, and as numbers they would lose digits. Cells `nan` and `inf` are floats if
    other cells of the column are numbers.
    """

    def __init__(self) -> None:
        self._possible = list(_TYPES)
        self._is_told = False

    def see_all(self, cells: Sequence[str]) -> None:
        """Take more cells into account: at least one."""
        self.see(cells[0])
        # Where the first one may be an integer, so may the others, and then they may be all that it may be.
        if self._possible and not _are_plain(cells, self._possible[0]):
            for cell in set(cells):
                self.see(cell)

    def see(self, cell: str) -> None:
        """Take one more cell into account."""
        cell = cell.strip()
        if cell and self._possible:
            self._possible = [kind for kind in self._possible if _is(kind, cell)]
            self._is_told = self._is_told or cell.lower() not in _NOT_FINITE

    @property
    def kind(self) -> str:
        """The type of the cells so far."""
        return self._possible[0] if self._possible and self._is_told else TEXT


def _are_plain(cells: Sequence[str], kind: str) -> bool:
    """Whether cells are certainly of a type, and written as most are."""
    return kind in _PLAIN and all(map(_PLAIN[kind][0].fullmatch, cells))


def _is(kind: str, cell: str) -> bool:
    try:
        _TYPES[kind](cell)
    except _REFUSED:
        return False
    return True


def typed(cell: str, kind: str) -> Any:
    """The cell as a value of a type. An empty cell is None, but "" in a text column. ValueError if it is not of it."""
    if kind == TEXT:
        return cell
    cell = cell.strip()
    try:
        return _TYPES[kind](cell) if cell else None
    except _REFUSED:
        raise ValueError(cell) from None


def typed_cells(cells: Sequence[str], kind: str) -> list[Any]:
    """What `typed` makes of each of some cells."""
    if _are_plain(cells, kind):
        return list(map(_PLAIN[kind][1], cells))
    return [typed(cell, kind) for cell in cells]


def types_text(file: str, types: Mapping[str, str]) -> str:
    """One line for people: `labels.csv: label integer, split text`."""
    return f"{file}: {', '.join(f'{name} {kind}' for name, kind in types.items())}"
