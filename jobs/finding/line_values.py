"""What one line of a list says: its id as text, and its other columns as JSON has them."""

from __future__ import annotations

import re
from typing import Any

from ...errors import UsageError
from .plain_values import NotJsonError, plain, valid_text

# How Python reads bytes of a file that are not UTF-8.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


def id_of_line(place: str, given: Any) -> str | None:
    """The `id` of a line as text. None if it is missing or empty."""
    row_id = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(row_id, str | None):
        raise UsageError(f"{place} has {row_id!r} as its `id`; write it as text or as a whole number")
    return valid_text(row_id) if row_id else None


def attributes_of_line(place: str, values: dict[str, Any]) -> dict[str, Any]:
    """The columns of a line other than its path and id. UsageError for one that JSON cannot hold."""
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
