"""Lists of sources: text, CSV, TSV, JSONL and Parquet files -> rows of a path, perhaps an id, and other columns."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from reprlib import repr as shortened
from typing import Any, NamedTuple

from ...errors import UsageError
from .addresses import is_store_url, shown
from .line_values import attributes_of_line, id_of_line, two_files
from .list_lines import NO_LABELS, Line, names_of, path_key
from .places import can_be_a_path, is_shortest
from .plain_values import valid_text
from .typed_lines import OnTypes, ignore_types, lines_of

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


def read_list(file: str, types: Mapping[str, str] | None = None, on_types: OnTypes = ignore_types) -> Iterator[Row]:
    """The lines of a list, in order. UsageError names the line that is wrong and says why. CSV and TSV lists, whose
    types are those of whole columns, are read twice.

    A text list has one path on each line; blank lines and lines that start with # are skipped. The other kinds have a
    column, or a key, `path`, and may have `id`: text or a whole number, where null or empty text means no id. Without
    `path`, the first of `file_name`, `video_path` and `video` that its first line has is taken for it, and the first
    two are attributes too. All other columns become attributes, in the order of the columns. JSONL and Parquet have
    types; those of CSV and TSV columns are inferred from all their cells, unless `types` gives them. `on_types` is told
    which they are.
    """
    return chain.from_iterable(_in_batches(lines_of(file, ("path",), types or {}, on_types)))


def id_of_path(path: str) -> str:
    """The id of a path in a list without an `id`: the path as it is written, in its shortest form; a URL without its
    query."""
    if is_shortest(path):  # and no URL, which has two slashes
        return valid_text(path.lstrip("/"))
    return valid_text(shown(path) if is_store_url(path) else posixpath.normpath(path).lstrip("/"))


def _in_batches(batches: Iterator[list[Line]]) -> Iterator[Iterator[Row]]:
    key = ""
    # There are no lines in front of a wrong first one.
    for lines in filter(None, batches):
        key = key or path_key(lines[0][1])
        yield _rows(lines, key)


def _rows(lines: list[Line], key: str) -> Iterator[Row]:
    """The rows of some lines, whose file is in the column `key`."""
    found = []
    for place, values in lines:
        path = values.pop(key, None) if key in NO_LABELS else values.get(key)
        # A message about a line without a path names all its columns.
        found.append((place, path, None if path is None else values.pop("id", None), values))
    texts = _texts([values for _, values in lines])
    for number, (place, path, given_id, values) in enumerate(found):
        if path is None:
            columns = names_of(values.keys() - {key})
            raise UsageError(f"{place} has no `{key}`, only {columns}; give the video's file as `{key}`")
        if "path" in values:  # and so it is not the key
            raise two_files(place, key)
        if path == "":
            raise UsageError(f"{place} has an empty `{key}`; give the video's file there, or leave the line out")
        if not isinstance(path, str):
            raise UsageError(
                f"{place} has {shortened(path)} as its `{key}`; write the name of the video's file there, as text"
            )
        if not can_be_a_path(path):
            raise UsageError(
                f"{place} has {shortened(path)} as its `{key}`, which cannot be a file's name; write lists in UTF-8"
            )
        row_id = None if given_id is None else id_of_line(place, given_id)
        text = texts[number] if texts else _to_json(attributes_of_line(place, values)) if values else "{}"
        yield Row(place, path, row_id, text)


def _texts(objects: Sequence[dict[str, Any]]) -> list[str]:
    """What `attributes_of_line` and `_to_json` make of each of some objects, made at once: a call for each of a million
    takes longer than its work. Empty if that is not certain to be the same."""
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
