"""Lists of sources or labels: text, CSV, TSV, JSONL and Parquet files -> lines of a path, an id, and other columns."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import json
import math
import os
import posixpath
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ..errors import ToolError, UsageError
from ..wording import counted
from .addresses import is_url, shown
from .column_types import TEXT, ColumnType, typed
from .places import is_shortest

# Types of Parquet columns that JSON does not have, and whose text loses nothing.
_WRITTEN_AS_TEXT = (dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID)
# How Python reads bytes of a file that are not UTF-8.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
# json.dumps would make an encoder for each line.
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True)
class Row:
    """One line of a list; of a Parquet list, one row of its table. `place` names the line in messages. `attributes` is
    a JSON object."""

    place: str
    path: str
    id: str | None
    attributes: str


@dataclass(frozen=True)
class Labels:
    """One line of a list of labels: a video's id, and values for some of its columns."""

    place: str
    id: str
    columns: dict[str, Any]


# Is told the type of each column of a CSV or TSV list other than `path` and `id`.
OnTypes = Callable[[str, Mapping[str, str]], None]


def ignore_types(_file: str, _types: Mapping[str, str]) -> None:
    """An OnTypes that does nothing."""


def is_list(name: str) -> bool:
    return Path(name).suffix.lower() in _READERS


def read_list(file: str, types: Mapping[str, str] | None = None, on_types: OnTypes = ignore_types) -> Iterator[Row]:
    """The lines of a list, in order. UsageError names the line that is wrong and says why. CSV and TSV lists, whose
    types are those of whole columns, are read twice.

    A text list has one path on each line; blank lines and lines that start with # are skipped. The other kinds have a
    column, or a key, `path`, and may have `id`: text or a whole number, where null or empty text means no id. All other
    columns become attributes, in the order of the columns. JSONL and Parquet have types; those of CSV and TSV columns
    are inferred from all their cells, unless `types` gives them. `on_types` is told which they are.
    """
    return (_row(place, values) for place, values in _lines(file, ("path",), types or {}, on_types))


def read_labels(
    file: str,
    types: Mapping[str, str] | None = None,
    on_types: OnTypes = ignore_types,
    part_of: Callable[[Row], object] = lambda _: None,
) -> list[Labels]:
    """All lines of a list of labels, in order: like `read_list`, but a line needs only an `id`, or a `path` that stands
    for the id that prep gives it; `part_of` says which part of the file a line without an id is, if it is one.
    UsageError names the line that is wrong, or the second of two lines with one id that disagree."""
    found: dict[str, Labels] = {}
    for place, values in _lines(file, ("id", "path"), types or {}, on_types):
        path, row_id = values.get("path"), _id(place, values)
        if not row_id and (not isinstance(path, str) or not path):
            raise UsageError(f"{place} has neither an `id` nor a `path`; give one of them")
        values.pop("path", None)
        columns = _attributes(place, values)
        if not row_id:
            part = part_of(Row(place, str(path), None, json.dumps(columns)))
            row_id = id_of_path(str(path)) + (f"@{part}" if part else "")
        labels = Labels(place, row_id, columns)
        known = found.setdefault(labels.id, labels)
        if json.dumps(known.columns) != json.dumps(labels.columns):
            raise UsageError(
                f"{known.place} and {place} give {labels.id!r} different columns; remove one of them, or name the "
                "columns with the times of stretches with --cuts START,END"
            )
    return list(found.values())


def id_of_path(path: str) -> str:
    """The id of a path in a list without an `id`: the path as it is written, in its shortest form; a URL without its
    query."""
    if is_url(path):
        return valid_text(shown(path))
    return valid_text((path if is_shortest(path) else posixpath.normpath(path)).lstrip("/"))


def _lines(
    file: str, keys: tuple[str, ...], types: Mapping[str, str], on_types: OnTypes
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The place and the values of each line. A list of columns has one of the `keys`."""
    suffix, is_empty = Path(file).suffix.lower(), True
    try:
        name = repr(file)

        def read() -> Iterator[tuple[str, dict[str, Any]]]:
            return ((f"{place} of {name}", values) for place, values in _READERS[suffix](file, keys))

        for line in _with_types(file, read, types, on_types) if suffix in (".csv", ".tsv") else read():
            is_empty = False
            yield line
    except OSError as error:
        raise UsageError(
            f"cannot read the list {file!r}: {error.strerror or error}; fix that, or give another list",
            file=file,
        ) from error
    if is_empty:
        raise UsageError(f"the list {file!r} is empty; add a line for each video", file=file)


def _with_types(
    file: str,
    read: Callable[[], Iterator[tuple[str, dict[str, Any]]]],
    types: Mapping[str, str],
    on_types: OnTypes,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines with each cell turned into a value of its column's type. The file is read once for the types, and once
    for the values: a list may be too long for memory."""
    inferred: dict[str, ColumnType] = {}
    kinds: dict[str, str] = {}
    for number, (_, values) in enumerate(read()):
        if not number:
            kinds = {name: types.get(name, TEXT) for name in values if name not in ("path", "id")}
            inferred = {name: ColumnType() for name in kinds if name not in types}
        for name, column in inferred.items():
            column.see(values[name])
    kinds |= {name: column.kind for name, column in inferred.items()}
    if kinds:
        on_types(file, kinds)
    for place, values in read():
        for name, kind in kinds.items():
            cell = values[name]
            try:
                values[name] = typed(cell, kind)
            except ValueError:
                raise UsageError(
                    f"{place} has {cell!r} in column {name!r}, which is to be {kind}; correct that cell, or give "
                    f"--types {name}=text",
                    file=file,
                ) from None
        yield place, values


def valid_text(text: str) -> str:
    """The text with \\udc.. written out for each byte of a file name that is not UTF-8, as manifests store it."""
    return text if text.isascii() else text.encode("utf-8", errors="backslashreplace").decode()


def can_be_a_path(text: str) -> bool:
    """Whether the operating system accepts the text as a path. The file need not exist."""
    try:
        return bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _row(place: str, values: dict[str, Any]) -> Row:
    path = values.pop("path", None)
    if path is None:
        raise UsageError(f"{place} has no `path`, only {_names(values)}; give the video's file as `path`")
    if not isinstance(path, str) or not can_be_a_path(path):
        raise UsageError(f"{place} has {path!r} as its `path`, which cannot be a file's name; write lists in UTF-8")
    row_id = _id(place, values)
    return Row(place, path, row_id, _to_json(_attributes(place, values)) if values else "{}")


def _id(place: str, values: dict[str, Any]) -> str | None:
    """Take the `id` out of a line's values. None if it is missing or empty."""
    row_id = values.pop("id", None)
    if isinstance(row_id, int) and not isinstance(row_id, bool):
        row_id = str(row_id)
    if not isinstance(row_id, str | None):
        raise UsageError(f"{place} has {row_id!r} as its `id`; write it as text or as a whole number")
    return valid_text(row_id) if row_id else None


def _attributes(place: str, values: dict[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        # What is no UTF-8 in a file of another encoding; a path may be such bytes, and a label is text.
        if isinstance(value, str) and _NOT_UTF8.search(f"{name}{value}"):
            raise UsageError(f"{place} has {value!r} in column {name!r}, which is not UTF-8; write lists in UTF-8")
    try:
        return dict(plain(values))
    except NotJsonError as error:
        raise UsageError(f"{place} has {error}; turn that column into text or numbers, or drop it") from None


class NotJsonError(Exception):
    """A value that JSON cannot hold. The message describes it."""


def plain(value: Any) -> Any:
    """The value in the types of JSON: text for dates and decimals, null for NaN and infinities. NotJsonError for a
    type that JSON cannot hold."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {valid_text(str(key)): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, _WRITTEN_AS_TEXT):
        return str(value)
    raise NotJsonError(f"a value of type {type(value).__name__}")


def _open_text(file: str, newline: str) -> TextIO:
    # Paths need not be UTF-8. An invalid byte becomes a lone surrogate here, and the same byte again when the path is
    # opened.
    return Path(file).open(encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _text_rows(file: str, _keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open_text(file, "\n") as lines:
        for number, line in enumerate(lines, 1):
            path = line.removesuffix("\n").removesuffix("\r")
            if path.strip() and not path.lstrip().startswith("#"):
                yield f"line {number}", {"path": path}


def _json_rows(file: str, _keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open_text(file, "\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(
                    f"line {number} of {file!r} is not JSON: {error}; write one object on each line", file=file
                ) from None
            if not isinstance(values, dict):
                raise UsageError(
                    f'line {number} of {file!r} is not an object; write objects such as {{"path": "a.mp4"}}',
                    file=file,
                )
            yield f"line {number}", values


def _comma_rows(file: str, keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    return _table_rows(file, ",", keys)


def _tab_rows(file: str, keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    return _table_rows(file, "\t", keys)


def _table_rows(file: str, delimiter: str, keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open_text(file, "") as stream:
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        header: list[str] | None = None
        line = 1
        try:
            for cells in reader:
                if cells and header is None:
                    header = [cell.strip() for cell in cells]
                    _check_columns(file, header, keys)
                elif cells and header is not None:
                    if len(cells) != len(header):
                        raise UsageError(
                            f"line {line} of {file!r} has {counted(len(cells), 'cell')} and the header {len(header)}; "
                            "put text that holds the separator in double quotes",
                            file=file,
                        )
                    yield f"line {line}", dict(zip(header, cells, strict=True))
                line = reader.line_num + 1
        except csv.Error as error:
            raise UsageError(
                f"line {line} of {file!r} is malformed: {error}; "
                "put text that holds quotes in double quotes, and write each quote in it twice",
                file=file,
            ) from None


def _parquet_rows(file: str, keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ToolError(
            f"reading the list {file!r} needs pyarrow ({error}); run `pip install pyarrow`", file=file
        ) from error
    number = 0
    with Path(file).open("rb") as stream:
        try:
            table = pq.ParquetFile(stream)
            _check_columns(file, table.schema_arrow.names, keys)
            for batch in table.iter_batches():
                columns = {
                    # Python's own types hold microseconds at most, so these columns become text.
                    name: (
                        column.cast(pa.string())
                        if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type)
                        else column
                    ).to_pylist()
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                }
                for values in zip(*columns.values(), strict=True):
                    number += 1
                    yield f"row {number}", dict(zip(columns, values, strict=True))
        except UsageError:
            raise
        except (pa.ArrowException, ValueError) as error:
            raise UsageError(
                f"cannot read {file!r} as Parquet: {error}; write it again, or give a CSV or JSONL list",
                file=file,
            ) from error


def _check_columns(file: str, columns: Sequence[str], keys: tuple[str, ...]) -> None:
    if not set(keys) & set(columns):
        what = " or ".join(f"`{key}`" for key in keys)
        of = "files" if keys == ("path",) else "ids"
        raise UsageError(
            f"the list {file!r} has no column {what}, only {_names(columns)}; rename the column of {of} to `{keys[0]}`",
            file=file,
        )
    if "" in columns:
        raise UsageError(
            f"the list {file!r} has a column without a name; name it, or leave it out (pandas: to_csv(index=False))",
            file=file,
        )
    twice = {name for name in columns if columns.count(name) > 1}
    if twice:
        raise UsageError(f"the list {file!r} has two columns {_names(twice)}; rename one", file=file)


def _names(columns: Sequence[str] | set[str] | dict[str, Any]) -> str:
    return ", ".join(repr(column) for column in sorted(columns)) or "nothing"


_READERS = {
    ".txt": _text_rows,
    ".csv": _comma_rows,
    ".tsv": _tab_rows,
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    ".parquet": _parquet_rows,
}
