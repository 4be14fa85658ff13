"""Entries of items that no tensor was made for beforehand -> what a batch has of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils.data import default_collate

from ...arguments import fits_int64
from ...errors import UsageError, WrongTypeError

Collate = Mapping[str, Callable[[list[Any]], Any]]
"""Functions of the user's, by the names of items' entries: what a batch has of the entries of all of its clips."""


def checked_collate(collate: Any) -> Collate:
    """WrongTypeError for what is no dict of functions."""
    given = {} if collate is None else collate
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and callable(each) for name, each in given.items()
    ):
        raise WrongTypeError(
            f"collate is {collate!r}; it is a dict of functions by the names of items' entries, such as "
            '{"boxes": list}. For a function of whole items take a DataLoader, whose collate_fn that is'
        )
    return dict(given)


def check_names(collate: Collate, names: Sequence[str]) -> None:
    """UsageError for a function of an entry that no item has."""
    for name in collate:
        if name not in names:
            raise UsageError(f"collate has {name!r}, and items have no such entry; they have {', '.join(names)}")


def gathered(name: str, items: Sequence[Mapping[str, Any]], collate: Collate) -> Any:
    """The entry of this name of all items, as a function of the user's puts them together, or `collated`."""
    if name not in collate:
        return collated(name, items)
    try:
        return collate[name]([item[name] for item in items])
    except Exception as error:
        error.add_note(f"collate of ClipLoader called its function for {name!r} with those of {len(items)} clips")
        raise


def collated(name: str, items: Sequence[Mapping[str, Any]]) -> Any:
    """The entry of this name of all items, as torch's default_collate puts them together. Its errors do not say which
    entry they are about; the UsageError in their place does."""
    if any(name not in item for item in items):
        raise UsageError(
            f"some clips of a batch have an entry {name!r}, and others have none: give all of them one in `items`"
        )
    values = [item[name] for item in items]
    try:
        return _batch_of(values)
    except (RuntimeError, TypeError, ValueError, KeyError) as error:
        raise UsageError(
            f"the entries {name!r} of the clips of a batch{_differences(values)} do not make one tensor or list "
            f"({error}): make a tensor of each in `items` of a subclass, choose one value, or on the CPU keep them as "
            f"a list with ClipLoader(collate={{{name!r}: list}}), as docs/training.md says under Lists"
        ) from error


def _batch_of(values: list[Any]) -> Any:
    # Torch takes texts unless the first is None: whether an epoch fails would depend on its order.
    if _has_none(values):
        raise TypeError("no batch is made of None")
    return default_collate(values)


def _has_none(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_none, value.values()))
    return value is None or (isinstance(value, list | tuple) and any(map(_has_none, value)))


def _differences(values: Sequence[Any]) -> str:
    """In which plain way the values differ, for a message; empty where it is none of these."""
    if _has_none(values):
        return ", of which some are or have None,"
    if any(isinstance(value, int) and not fits_int64(value) for value in values):
        return ", of which some are integers that 64 bits do not hold,"
    if all(isinstance(value, list | tuple) for value in values):
        lengths = sorted({len(value) for value in values})
        if len(lengths) > 1:
            return f", which are lists of {lengths[0]} to {lengths[-1]} values,"
    return ""
