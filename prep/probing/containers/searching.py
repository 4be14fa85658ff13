"""Bytes that are searched for in all of a file, and positions that a file states of itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_LONGEST_BYTES, _READ_BYTES = 64, 1 << 20


def found_behind(path: str, pattern: re.Pattern[bytes], begin: int = 1) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Where a pattern is found in a file from this byte on, by default behind the first one, rising, and what matches
    it: no more than 64 bytes, as many as it may look at before it."""
    with Path(path).open("rb") as file:
        for at in range(begin, Path(path).stat().st_size, _READ_BYTES):
            # Each block overlaps both of its neighbours, and has the matches that begin in it.
            start = file.seek(max(0, at - _LONGEST_BYTES))
            for found in pattern.finditer(file.read(at - start + _READ_BYTES + _LONGEST_BYTES)):
                place = start + found.start()
                if at <= place < at + _READ_BYTES:
                    yield place, found


def seek_within(file: BinaryIO, at: int) -> None:
    """Go to this position, which damage may put anywhere, or to the end of the file where that comes before it: no file
    system has one of 2**56 bytes, and going there is an error."""
    file.seek(min(at, file.seek(0, os.SEEK_END)))
