"""Paths that mean the same wherever a unit of work runs."""

from __future__ import annotations

import os
from pathlib import Path


def from_home(path: str) -> str:
    """The path with `~` or `~name` in front replaced by the home folder, as a shell does it, unless there is a file
    that is really called so."""
    if not path.startswith("~") or os.path.lexists(path):
        return path
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        # There is no such user, or nobody knows where the home folder is.
        return path


def absolute(path: Path) -> Path:
    """The path as any process on any machine understands it. Links are kept: the name outlives what it points to."""
    return Path(from_home(str(path))).absolute()
