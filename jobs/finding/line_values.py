"""What one line of a list says: its id as text, and its other columns as JSON has them."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError
from .list_lines import NOT_UTF8
from .plain_values import NotJsonError, plain, valid_text


def id_of_line(place: str, given: Any) -> str | None:
    """The `id` of a line as text. None if it is missing or empty."""
    row_id = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(row_id, str | None):
        raise UsageError(f"{place} has {row_id!r} as its `id`; write it as text or as a whole number")
    return valid_text(row_id) if row_id else None


def two_files(place: str, key: str) -> UsageError:
    """For a line that has a `path` beside the column `key`, which has the files by the list's first line: it may mean
    either file."""
    return UsageError(
        f"{place} has a `path` and a `{key}`, and the list's first line has no `path`; leave `path` out here, or give "
        "each line one"
    )


def attributes_of_line(place: str, values: dict[str, Any]) -> dict[str, Any]:
    """The columns of a line other than its path and id. UsageError for one that JSON cannot hold."""
    attributes = {}
    for name, value in values.items():
        # What is no UTF-8 in a file of another encoding; a path may be such bytes, and a label is text.
        strange = _not_utf8(name) or _not_utf8(value)
        if strange is not None:
            raise UsageError(f"{place} has {strange!r} in column {name!r}, which is not UTF-8; write lists in UTF-8")
        try:
            attributes[valid_text(name)] = plain(value)
        except NotJsonError as error:
            raise UsageError(
                f"{place} has {error} in column {name!r}; turn that column into text or numbers, or drop it"
            ) from None
    return attributes


def _not_utf8(value: Any) -> str | None:
    """Text that is not UTF-8 in a value of JSON or Parquet, also in the names of its entries. None if all is."""
    if isinstance(value, str):
        return None if value.isascii() or not NOT_UTF8.search(value) else value
    if isinstance(value, dict):
        return _not_utf8([*value, *value.values()])
    if isinstance(value, list | tuple):
        return next(filter(None, map(_not_utf8, value)), None)
    return None
