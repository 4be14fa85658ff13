"""Copies of what a user gives to keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def own(values: Any) -> Any:
    """Values that whoever gave them cannot change any more: a copy of a list, an array or a tensor. An order or a table
    stays what it was made as, also where code writes the next epoch's weights into the same array.

    A read-only array is copied too, as it may be a view of memory that others write. An iterator, such as a generator
    or what `map` makes, becomes a list, since it gives its values once. What has no way to be copied is kept as it is.
    """
    if isinstance(values, Iterator):
        return list(values)
    if isinstance(values, torch.Tensor):
        return values.detach().clone()
    for name in ("copy", "__copy__"):
        copied = getattr(values, name, None)
        if callable(copied):
            try:
                return copied()
            except TypeError:
                # It wants arguments: a method that copies something else, or a class in place of its object.
                continue
    return values
