"""Entries of items and batches that are dicts, lists, tuples or dataclasses of other values."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any


def with_values(entry: Any, change: Callable[[Any], Any]) -> Any:
    """An entry with each value changed that is no dict, list, tuple or dataclass: one alone, or those in these, however
    deep."""
    if isinstance(entry, dict):
        changed = copy(entry)
        changed.update((key, with_values(each, change)) for key, each in entry.items())
        return changed
    if type(entry) in {list, tuple}:
        return type(entry)(with_values(each, change) for each in entry)
    if hasattr(entry, "_make"):
        # A named tuple.
        return entry._make(with_values(each, change) for each in entry)
    if is_dataclass(entry) and not isinstance(entry, type):
        made = copy(entry)
        for name in (field.name for field in fields(entry) if hasattr(entry, field.name)):
            # Also where it is frozen.
            object.__setattr__(made, name, with_values(getattr(entry, name), change))
        return made
    return change(entry)
