"""Lists of sources or labels: text, CSV, TSV, JSONL and Parquet files -> lines of a path, an id, and other columns."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import UsageError
from .addresses import is_store_url, shown
from .column_types import TEXT, ColumnType, typed, typed_cells
from .list_lines import Line, batches_of, names_of
from .places import can_be_a_path, is_shortest
from .plain_values import NotJsonError, plain, valid_text

# How Python reads bytes of a file that are not UTF-8.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
# json.dumps would make an encoder for each line.
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_to_lines = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",\n", ": ")).encode


class Row(NamedTuple):
    """One line of a list; of a Parquet list, one row of its table. `place` names the line in messages. `attributes` is
    a JSON object."""

    place: str
    path: str
    id: str | None
    attributes: str


@dataclass(frozen=True)
class Labels:
    """One line of a list of labels: a video's id, and values for some of its columns. Where the line has no id, `path`
    is what it has, and `part` says which part of that file, if it is one."""

    place: str
    id: str
    columns: dict[str, Any]
    path: str = ""
    part: str = ""


# Is told the type of each column of a CSV or TSV list other than `path` and `id`.
OnTypes = Callable[[str, Mapping[str, str]], None]


def ignore_types(_file: str, _types: Mapping[str, str]) -> None:
    """An OnTypes that does nothing."""


def read_list(file: str, types: Mapping[str, str] | None = None, on_types: OnTypes = ignore_types) -> Iterator[Row]:
    """The lines of a list, in order. UsageError names the line that is wrong and says why. CSV and TSV lists, whose
    types are those of whole columns, are read twice.

    A text list has one path on each line; blank lines and lines that start with # are skipped. The other kinds have a
    column, or a key, `path`, and may have `id`: text or a whole number, where null or empty text means no id. All other
    columns become attributes, in the order of the columns. JSONL and Parquet have types; those of CSV and TSV columns
    are inferred from all their cells, unless `types` gives them. `on_types` is told which they are.
    """
    return chain.from_iterable(map(_rows, _lines(file, ("path",), types or {}, on_types)))


def read_labels(
    file: str,
    types: Mapping[str, str] | None = None,
    on_types: OnTypes = ignore_types,
    part_of: Callable[[Row], object] = lambda _: None,
) -> list[Labels]:
    """All lines of a list of labels, in order: like `read_list`, but a line needs only an `id`, or a `path` that stands
    for the id that prep gives it; `part_of` says which part of the file a line without an id is, if it is one.
    UsageError names the line that is wrong."""
    found = []
    for place, values in chain.from_iterable(_lines(file, ("id", "path"), types or {}, on_types)):
        path, row_id = values.get("path"), _id(place, values.pop("id", None))
        if not row_id and (not isinstance(path, str) or not path):
            raise UsageError(f"{place} has neither an `id` nor a `path`; give one of them")
        values.pop("path", None)
        columns = _attributes(place, values)
        if row_id:
            found.append(Labels(place, row_id, columns))
            continue
        part = part_of(Row(place, str(path), None, json.dumps(columns))) or ""
        found.append(Labels(place, id_of_path(str(path)) + (f"@{part}" if part else ""), columns, str(path), str(part)))
    return found


def columns_by_id(lines: Iterable[Labels]) -> dict[str, dict[str, Any]]:
    """The columns of each id. UsageError names the second of two lines with one id that disagree."""
    found: dict[str, Labels] = {}
    for line in lines:
        known = found.setdefault(line.id, line)
        if json.dumps(known.columns) != json.dumps(line.columns):
            raise UsageError(
                f"{known.place} and {line.place} give {line.id!r} different columns; remove one of them, or name the "
                "columns with the times of stretches with --cuts START,END"
            )
    return {line.id: line.columns for line in found.values()}


def id_of_path(path: str) -> str:
    """The id of a path in a list without an `id`: the path as it is written, in its shortest form; a URL without its
    query."""
    if is_shortest(path):  # and no URL, which has two slashes
        return valid_text(path.lstrip("/"))
    return valid_text(shown(path) if is_store_url(path) else posixpath.normpath(path).lstrip("/"))


def _lines(file: str, keys: tuple[str, ...], types: Mapping[str, str], on_types: OnTypes) -> Iterator[list[Line]]:
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
    is_first = True
    for batch in batches_of(file, keys):
        if is_first:
            kinds = {name: types.get(name, TEXT) for name in batch[0][1] if name not in ("path", "id")}
            inferred = {name: ColumnType() for name in kinds if name not in types}
            is_first = False
        for name, column in inferred.items():
            column.see_all([values[name] for _, values in batch])
    kinds |= {name: column.kind for name, column in inferred.items()}
    if kinds:
        on_types(file, kinds)
    kinds = {name: kind for name, kind in kinds.items() if kind != TEXT}
    for batch in batches_of(file, keys):
        yield from _typed_lines(file, batch, kinds)


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
            f"correct that cell, or give --types {name}=text",
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


def _rows(lines: list[Line]) -> Iterator[Row]:
    found = []
    for place, values in lines:
        path = values.pop("path", None)
        # A message about a line without a path names all its columns.
        found.append((place, path, None if path is None else values.pop("id", None), values))
    texts = _texts([values for _, values in lines])
    for number, (place, path, given_id, values) in enumerate(found):
        if path is None:
            raise UsageError(f"{place} has no `path`, only {names_of(values)}; give the video's file as `path`")
        if path == "":
            raise UsageError(f"{place} has an empty `path`; give the video's file there, or leave the line out")
        if not isinstance(path, str):
            raise UsageError(f"{place} has {path!r} as its `path`; write the name of the video's file there, as text")
        if not can_be_a_path(path):
            raise UsageError(f"{place} has {path!r} as its `path`, which cannot be a file's name; write lists in UTF-8")
        row_id = None if given_id is None else _id(place, given_id)
        text = texts[number] if texts else _to_json(_attributes(place, values)) if values else "{}"
        yield Row(place, path, row_id, text)


def _id(place: str, given: Any) -> str | None:
    """The `id` of a line as text. None if it is missing or empty."""
    row_id = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(row_id, str | None):
        raise UsageError(f"{place} has {row_id!r} as its `id`; write it as text or as a whole number")
    return valid_text(row_id) if row_id else None


def _texts(objects: Sequence[dict[str, Any]]) -> list[str]:
    """What `_attributes` and `_to_json` make of each of some objects, made at once: a call for each of a million takes
    longer than its work. Empty if that is not certain to be the same."""
    # JSON has no line break but in front of what follows a comma. So a null between each two objects, on a line of its
    # own, shows where one ends; with another such line in an object there are too many.
    mixed: list[dict[str, Any] | None] = [None] * (2 * len(objects) - 1)
    mixed[::2] = objects
    try:
        text = _to_lines(mixed)
        text.encode()  # without bytes that are not UTF-8, and others that are no text
    except (ValueError, TypeError, RecursionError):
        return []
    texts = text[1:-1].replace(",\nnull,\n", "\n\n").replace(",\n", ", ").split("\n\n")
    return texts if len(texts) == len(objects) else []


def _attributes(place: str, values: dict[str, Any]) -> dict[str, Any]:
    attributes = {}
    for name, value in values.items():
        # What is no UTF-8 in a file of another encoding; a path may be such bytes, and a label is text.
        if isinstance(value, str) and _NOT_UTF8.search(f"{name}{value}"):
            raise UsageError(f"{place} has {value!r} in column {name!r}, which is not UTF-8; write lists in UTF-8")
        try:
            attributes[valid_text(name)] = plain(value)
        except NotJsonError as error:
            raise UsageError(
                f"{place} has {error} in column {name!r}; turn that column into text or numbers, or drop it"
            ) from None
    return attributes
