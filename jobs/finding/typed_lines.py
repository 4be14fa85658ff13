"""The lines of lists, of CSV and TSV ones with the values that their cells have by the type of their column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...errors import UsageError
from ...wording import type_option
from .column_types import TEXT, ColumnType, typed, typed_cells
from .list_lines import NO_LABELS, Line, batches_of, path_key

# Is told the type of each column of a CSV or TSV list other than `path` and `id`.
OnTypes = Callable[[str, Mapping[str, str]], None]


def ignore_types(_file: str, _types: Mapping[str, str]) -> None:
    """An OnTypes that does nothing."""


def lines_of(file: str, keys: tuple[str, ...], types: Mapping[str, str], on_types: OnTypes) -> Iterator[list[Line]]:
    """The lines of a list, some at a time. A list of columns has one of the `keys`."""
    is_empty = True
    try:
        is_table = file.lower().endswith((".csv", ".tsv"))
        for batch in _with_types(file, keys, types, on_types) if is_table else batches_of(file, keys):
            is_empty = False
            yield batch
    except OSError as error:
        raise UsageError(
            f"cannot read the list {file!r}: {error.strerror or error}; fix that, or give another list",
            file=file,
        ) from error
    if is_empty:
        raise UsageError(f"the list {file!r} is empty; add a line for each video", file=file)


def _with_types(file: str, keys: tuple[str, ...], types: Mapping[str, str], on_types: OnTypes) -> Iterator[list[Line]]:
    """The lines with each cell turned into a value of its column's type. The file is read once for the types, and once
    for the values: a list may be too long for memory."""
    if Path(file).is_fifo():
        raise UsageError(
            f"the list {file!r} is a pipe, and a list of columns is read twice; write it into a file", file=file
        )
    inferred: dict[str, ColumnType] = {}
    kinds: dict[str, str] = {}
    own = {"path", "id"}
    is_first = True
    for batch in batches_of(file, keys):
        if is_first:
            columns = batch[0][1]
            key = path_key(columns)
            own |= {key}.intersection(NO_LABELS)
            kinds = {name: types.get(name, TEXT) for name in columns if name not in own}
            inferred = {name: ColumnType() for name in kinds if name not in types and name != key}
            is_first = False
        for name, column in inferred.items():
            column.see_all([values[name] for _, values in batch])
    kinds |= {name: column.kind for name, column in inferred.items()}
    if kinds:
        on_types(file, kinds)
    parsed = {name: kind for name, kind in kinds.items() if kind != TEXT}
    for batch in batches_of(file, keys):
        if batch[0][1].keys() - own != kinds.keys():
            raise UsageError(
                f"the list {file!r} got other columns while it was read; run the same command again",
                file=file,
            )
        yield from _typed_lines(file, batch, parsed)


def _typed_lines(file: str, lines: list[Line], kinds: Mapping[str, str]) -> Iterator[list[Line]]:
    """The lines with the cells of some columns turned into values. UsageError after those in front of a wrong one."""
    try:
        columns = {name: typed_cells([values[name] for _, values in lines], kind) for name, kind in kinds.items()}
    except ValueError:
        number, name = next(_wrong_cells(lines, kinds))
        yield from _typed_lines(file, lines[:number], kinds)
        place, values = lines[number]
        raise UsageError(
            f"{place} has {values[name]!r} in column {name!r}, which is to be {kinds[name]}; "
            f"correct that cell, or give {type_option(name, TEXT)}",
            file=file,
        ) from None
    for name, column in columns.items():
        for (_, values), value in zip(lines, column, strict=True):
            values[name] = value
    yield lines


def _wrong_cells(lines: list[Line], kinds: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The numbers of the lines with cells that are not of their column's type, and the names of the columns."""
    for number, (_, values) in enumerate(lines):
        for name, kind in kinds.items():
            try:
                typed(values[name], kind)
            except ValueError:
                yield number, name
