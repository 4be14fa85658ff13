"""Entries of items and batches that are dicts, lists, tuples or dataclasses of other values."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

# None of them holds others.
_PLAIN = {int, float, bool, str, bytes, type(None), torch.Tensor, np.ndarray}


def with_values(entry: Any, change: Callable[[Any], Any]) -> Any:
    """An entry with each value changed that is no dict, list, tuple or dataclass: one alone, or those in these, however
    deep. What holds no value that `change` gives another one for is in the result itself, uncopied. A container that
    the entry has in several places is one in the result, too, and it may hold itself."""
    return _changed(entry, change, set(), {})


def _changed(value: Any, change: Callable[[Any], Any], begun: set[int], found: dict[int, tuple[Any, Any]]) -> Any:
    """As `with_values`. `found` has what each container became, by its id, beside that container: its id is no other's
    meanwhile. No function within one, which would hold all of this until Python collects garbage."""
    parts = _parts(value)
    if parts is None:
        return change(value)
    if id(value) in begun and id(value) not in found and not isinstance(value, tuple):
        # It holds itself, so its copy holds that copy.
        found[id(value)] = value, copy(value)
    if id(value) in found:
        return found[id(value)][1]
    begun.add(id(value))
    others = {place: other for place, part in parts if (other := _changed(part, change, begun, found)) is not part}
    if others:
        found[id(value)] = value, _with_parts(value, others, found.get(id(value), (value, None))[1])
    return found.setdefault(id(value), (value, value))[1]


def _parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """The places in a container and what is there; None for what is none."""
    if type(value) in _PLAIN:
        return None
    if isinstance(value, (dict, UserDict)):
        # What processors of transformers return is a UserDict.
        return list(value.items())
    if type(value) in {list, tuple} or _is_named_tuple(value):
        return enumerate(value)
    if is_dataclass(value) and not isinstance(value, type):
        # Also what is no field, such as a property that was cached.
        names = dict.fromkeys([field.name for field in fields(value)]) | getattr(value, "__dict__", {})
        return [(name, getattr(value, name)) for name in names if hasattr(value, name)]
    return None


def _is_named_tuple(value: Any) -> bool:
    # A dict may have an attribute of any name.
    return isinstance(value, tuple) and hasattr(value, "_make")


def _with_parts(value: Any, others: Mapping[Any, Any], made: Any) -> Any:
    """A container with others in these places: `made`, its copy, or a new one where that is None."""
    if isinstance(value, tuple):
        parts = (others.get(place, part) for place, part in enumerate(value))
        return tuple(parts) if type(value) is tuple else value._make(parts)  # type: ignore[attr-defined]
    made = copy(value) if made is None else made
    for place, other in others.items():
        if isinstance(value, (dict, list, UserDict)):
            made[place] = other
        else:
            # Also where it is frozen.
            object.__setattr__(made, place, other)
    return made
