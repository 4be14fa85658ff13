"""Values as manifests store them: text that is valid Unicode, and the types of JSON. Pure."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import numpy as np

# Types of pandas, which need not be installed.
_MISSING = ("NAType", "NaTType")
# Types of Parquet columns that JSON does not have, and whose text loses nothing.
_WRITTEN_AS_TEXT = (dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID)


def valid_text(text: str) -> str:
    """The text with \\udc.. written out for each byte of a file name that is not UTF-8, as manifests store it."""
    return text if text.isascii() else text.encode("utf-8", errors="backslashreplace").decode()


class NotJsonError(Exception):
    """A value that JSON cannot hold. The message describes it."""


def plain(value: Any) -> Any:
    """The value in the types of JSON: numpy's as Python's, text for dates and decimals, null for NaN, infinities and
    what pandas has for missing values. NotJsonError for a type that JSON cannot hold."""
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
    return _plain_of_libraries(value)


def _plain_of_libraries(value: Any) -> Any:
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, np.floating):
        return plain(float(value))
    if isinstance(value, np.ndarray):
        # Its own numbers: `tolist` makes integers of nanoseconds.
        return [plain(entry) for entry in value] if value.ndim else plain(value[()])
    if type(value).__name__ in _MISSING:
        return None
    if isinstance(value, _WRITTEN_AS_TEXT):
        return str(value)
    raise NotJsonError(f"a value of type {type(value).__name__}")
