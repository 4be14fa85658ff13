"""Warns the user, at the line of theirs that led to it."""

from __future__ import annotations

import inspect
import sys
import warnings

from .errors import DatasetWarning

# What may stand between a line of the user's and this package: a DataLoader of torch, a `with` statement, a thread.
_BETWEEN = {__name__.partition(".")[0], "torch"} | sys.stdlib_module_names


def warn(text: str) -> None:
    """Give a DatasetWarning. It names the innermost line that is neither of this package, nor of torch or Python's
    library, such as one of a training loop; where there is none, the line that this thread began with."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_back is not None and _root(frame.f_globals) in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, DatasetWarning, stacklevel=level)


def _root(module: dict[str, object]) -> str:
    return str(module.get("__name__", "")).partition(".")[0]
