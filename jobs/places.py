"""Paths that mean the same wherever a unit of work runs."""

from __future__ import annotations

import os
from pathlib import Path


def from_home(path: str) -> str:
    """The path with a leading `~` or `~name` replaced by the home folder, as a shell does it. A path that exists
    literally is kept."""
    if not path.startswith("~") or os.path.lexists(path):
        return path
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        # The user does not exist, or the home folder is not known.
        return path


def absolute(path: Path) -> Path:
    """The absolute path, which means the same in any process. Links are kept: a link's name stays when its target
    moves."""
    return Path(from_home(str(path))).absolute()
