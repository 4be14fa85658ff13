"""Lists of sources: text, CSV, TSV, JSONL and Parquet files -> lines of a path, perhaps an id, and attributes."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import json
import math
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ..errors import ToolError, UsageError
from ..wording import counted

# Types of Parquet columns that JSON does not have, and whose text loses nothing.
_WRITTEN_AS_TEXT = (dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID)


@dataclass(frozen=True)
class Row:
    """One line of a list; of a Parquet list, one row of its table. `place` names the line in messages. `attributes` is
    a JSON object."""

    place: str
    path: str
    id: str | None
    attributes: str


def is_list(name: str) -> bool:
    return Path(name).suffix.lower() in _READERS


def read_list(file: str) -> list[Row]:
    """All lines of a list, in order. UsageError names the line that is wrong and says why.

    A text list has one path on each line; blank lines and lines that start with # are skipped. The other kinds have a
    column, or a key, `path`, and may have `id`: text or a whole number, where null or empty text means no id. All other
    columns become attributes, in the order of the columns.
    """
    try:
        read = _READERS[Path(file).suffix.lower()]
        rows = [_row(f"{place} of {file!r}", values) for place, values in read(file)]
    except OSError as error:
        raise UsageError(
            f"cannot read the list {file!r}: {error.strerror or error}; fix that, or give another list",
            file=file,
        ) from error
    if not rows:
        raise UsageError(f"the list {file!r} is empty; add a line for each video", file=file)
    return rows


def valid_text(text: str) -> str:
    """The text with \\udc.. written out for each byte of a file name that is not UTF-8, as manifests store it."""
    return text.encode("utf-8", errors="backslashreplace").decode()


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
    row_id = values.pop("id", None)
    if isinstance(row_id, int) and not isinstance(row_id, bool):
        row_id = str(row_id)
    if not isinstance(row_id, str | None):
        raise UsageError(f"{place} has {row_id!r} as its `id`; write it as text or as a whole number")
    try:
        attributes = _plain(values)
    except _NotJsonError as error:
        raise UsageError(f"{place} has {error}; turn that column into text or numbers, or drop it") from None
    text = json.dumps(attributes, ensure_ascii=False, allow_nan=False)
    return Row(place, path, valid_text(row_id) if row_id else None, text)


class _NotJsonError(Exception):
    """A value that JSON cannot hold. The message describes it."""


def _plain(value: Any) -> Any:
    """The value in the types of JSON: text for dates and decimals, null for NaN and infinities. _NotJsonError for a
    type that JSON cannot hold."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {valid_text(str(key)): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, _WRITTEN_AS_TEXT):
        return str(value)
    raise _NotJsonError(f"a value of type {type(value).__name__}")


def _open_text(file: str, newline: str) -> TextIO:
    # Paths need not be UTF-8. An invalid byte becomes a lone surrogate here, and the same byte again when the path is
    # opened.
    return Path(file).open(encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _text_rows(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open_text(file, "\n") as lines:
        for number, line in enumerate(lines, 1):
            path = line.removesuffix("\n").removesuffix("\r")
            if path.strip() and not path.lstrip().startswith("#"):
                yield f"line {number}", {"path": path}


def _json_rows(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
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


def _comma_rows(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return _table_rows(file, ",")


def _tab_rows(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return _table_rows(file, "\t")


def _table_rows(file: str, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open_text(file, "") as stream:
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        header: list[str] | None = None
        line = 1
        try:
            for cells in reader:
                if cells and header is None:
                    header = [cell.strip() for cell in cells]
                    _check_columns(file, header)
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


def _parquet_rows(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
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
            _check_columns(file, table.schema_arrow.names)
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


def _check_columns(file: str, columns: Sequence[str]) -> None:
    if "path" not in columns:
        raise UsageError(
            f"the list {file!r} has no column `path`, only {_names(columns)}; rename the column of files to `path`",
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
