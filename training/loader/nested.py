"""Entries of items and batches that are dicts, lists, tuples or dataclasses of other values."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

# None of them holds others.
_PLAIN = {int, float, bool, str, bytes, type(None), torch.Tensor, np.ndarray}


def with_values(entry: Any, change: Callable[[Any], Any]) -> Any:
    """An entry with each value changed that is no dict, list, tuple or dataclass: one alone, or those in these, however
    deep. What holds no value that `change` gives another one for is in the result itself, uncopied. A container that
    the entry has in several places is one in the result, too. What holds itself is copied."""
    return _changed(entry, change, {})


def _changed(value: Any, change: Callable[[Any], Any], found: dict[int, tuple[Any, Any]]) -> Any:
    """As `with_values`. `found` has what each container became, by its id, or None while its parts are changed. It has
    the container, too: its id is no other's meanwhile. No function within one, which would hold all of this until
    Python collects garbage."""
    parts = _parts(value)
    if parts is None:
        return change(value)
    made = found.get(id(value), (value, None))[1]
    if made is None and id(value) in found and not isinstance(value, tuple):
        # It holds itself, so its copy holds that copy.
        made = copy(value)
    found[id(value)] = value, made
    if made is not None:
        return made
    others = {place: other for place, part in parts if (other := _changed(part, change, found)) is not part}
    made = found[id(value)][1]
    # A tuple that holds itself is made already, where it was met within.
    if others and not (isinstance(value, tuple) and made is not None):
        made = _with_parts(value, others, made)
    found[id(value)] = value, value if made is None else made
    return found[id(value)][1]


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
    # A dict may have an attribute of any name. A packed sequence is one value: its sizes stay on the CPU.
    return isinstance(value, tuple) and hasattr(value, "_make") and not isinstance(value, PackedSequence)


def is_followed(value: Any) -> bool:
    """Whether a value is a tensor whose memory torch keeps for a stream (`record_stream`): not a sparse one, nor a
    nested one of the old kind, whose layout is said to be strided."""
    is_tensor = isinstance(value, torch.Tensor)
    return is_tensor and (value.layout == torch.jagged or (value.layout == torch.strided and not value.is_nested))


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
