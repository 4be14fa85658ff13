"""Which importer reads an argument of a job."""

from __future__ import annotations

from pathlib import Path

from ..source_parts import Recognised
from .lerobot import episodes_of, is_lerobot


def recognised(path: Path) -> Recognised | None:
    """The sources that a file or folder of another tool's format stands for; None for any other file or folder."""
    if path.is_dir() and is_lerobot(path):
        return episodes_of(path)
    return None
