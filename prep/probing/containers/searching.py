"""Bytes that are searched for in all of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_LONGEST_BYTES, _READ_BYTES = 64, 1 << 20


def found_behind(path: str, pattern: re.Pattern[bytes], begin: int = 1) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Where a pattern is found in a file from `begin` on, rising, and what matches it. A match has at most 64 bytes,
    and the pattern may look at as many before it."""
    with Path(path).open("rb") as file:
        for at in range(begin, Path(path).stat().st_size, _READ_BYTES):
            # Each block overlaps both of its neighbours, and has the matches that begin in it.
            start = file.seek(max(0, at - _LONGEST_BYTES))
            for found in pattern.finditer(file.read(at - start + _READ_BYTES + _LONGEST_BYTES)):
                place = start + found.start()
                if at <= place < at + _READ_BYTES:
                    yield place, found
