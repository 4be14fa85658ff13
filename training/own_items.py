"""Subclasses of ClipDataset and MixedClips that make items of their own: which of their methods are called."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError


def has_own(dataset: Any, base: type, name: str) -> bool:
    """Whether the class of a dataset has another method of this name than its base."""
    return getattr(type(dataset), name) is not getattr(base, name)


def is_read_one_by_one(dataset: Any, base: type) -> bool:
    """Whether only the `__getitem__` of a subclass makes its items, so that several of them are made with it."""
    return has_own(dataset, base, "__getitem__") and not has_own(dataset, base, "__getitems__")


def refuse_own_items(dataset: Any, base: type, reader: str) -> None:
    """UsageError for a `__getitem__` or `__getitems__` other than the base's: this reader calls `items` alone."""
    for name in ("__getitem__", "__getitems__"):
        if has_own(dataset, base, name):
            raise UsageError(
                f"{type(dataset).__name__} has a {name} of its own, which {reader} does not call: it calls "
                "items(draws, rows), so add to items there (docs/training.md shows how), or take a DataLoader"
            )
