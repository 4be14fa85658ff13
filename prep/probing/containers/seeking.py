"""Positions that a file states of itself, which damage may put anywhere."""

from __future__ import annotations

import os
from typing import BinaryIO


def seek_within(file: BinaryIO, at: int) -> None:
    """Go to this position, or to the end of the file where that comes before it: no file system has one of 2**56 bytes,
    and going there is an error."""
    file.seek(min(at, file.seek(0, os.SEEK_END)))
