"""Lists of labels: the same files as lists of sources -> a video's id, and values for some of its columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ...errors import UsageError
from .line_values import attributes_of_line, id_of_line, two_files
from .list_lines import NO_LABELS, batches_of, names_of, path_key
from .source_lists import Row, id_of_path
from .typed_lines import OnTypes, ignore_types, lines_of

_KEYS = ("id", "path")


@dataclass(frozen=True)
class Labels:
    """One line of a list of labels: a video's id, and values for some of its columns. Where the line has no id, `path`
    is what it has, and `part` says which part of that file, if it is one."""

    place: str
    id: str
    columns: dict[str, Any]
    path: str = ""
    part: str = ""


def read_labels(
    file: str,
    types: Mapping[str, str] | None = None,
    on_types: OnTypes = ignore_types,
    part_of: Callable[[Row], object] = lambda _: None,
    *,
    may_set_nothing: bool = False,
) -> list[Labels]:
    """All lines of a list of labels, in order: like `read_list`, but a line needs only an `id`, or a file that stands
    for the id that prep gives it; `part_of` says which part of the file a line without an id is, if it is one.
    UsageError names the line that is wrong, or, without `may_set_nothing`, the list if no line has a column to set."""
    found: list[Labels] = []
    key, own, names = "", set[str](), set[str]()
    for place, values in chain.from_iterable(lines_of(file, _KEYS, types or {}, on_types)):
        if not key:
            names, key = set(values), path_key(values)
            own = {"path", key}.intersection(NO_LABELS)
        path, row_id = values.get(key), id_of_line(place, values.pop("id", None))
        if not row_id and (not isinstance(path, str) or not path):
            raise UsageError(f"{place} has neither an `id` nor a `{key}`; give one of them")
        if not row_id and key != "path" and "path" in values:
            raise two_files(place, key)
        columns = attributes_of_line(place, {name: each for name, each in values.items() if name not in own})
        if row_id:
            found.append(Labels(place, row_id, columns))
            continue
        part = part_of(Row(place, str(path), None, json.dumps(columns))) or ""
        found.append(Labels(place, id_of_path(str(path)) + (f"@{part}" if part else ""), columns, str(path), str(part)))
    if not may_set_nothing and not any(line.columns for line in found):
        # Beside ids the other one may be meant as a label.
        rename = f", or rename {key!r} if it is a label" if names == {"id", key} else ""
        raise UsageError(
            f"the list {file!r} has no column to set besides those that say which videos are meant, {names_of(names)}; "
            f"add one{rename}",
            file=file,
        )
    return found


def goes_by_paths(file: str) -> bool:
    """Whether the first line of a list of labels names its video by a path."""
    _, values = next(batches_of(file, _KEYS))[0]
    return values.get("id") in (None, "")


def columns_by_id(lines: Iterable[Labels]) -> dict[str, dict[str, Any]]:
    """The columns of each id. UsageError names the second of two lines with one id that disagree."""
    found: dict[str, Labels] = {}
    for line in lines:
        known = found.setdefault(line.id, line)
        if json.dumps(known.columns) != json.dumps(line.columns):
            raise UsageError(
                f"{known.place} and {line.place} give {line.id!r} different columns; remove one of them, or, in a list "
                "of stretches, name the columns with their times with --cuts START,END"
            )
    return {line.id: line.columns for line in found.values()}
