"""Which storage a path or a URL means."""

from __future__ import annotations

import os

from .disk import DiskStorage
from .interface import Storage


def storage_at(place: str | os.PathLike[str]) -> Storage:
    """The storage at a path."""
    return DiskStorage(place)
