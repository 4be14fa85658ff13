"""Bytes that are searched for in all of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_LONGEST_BYTES, _READ_BYTES = 64, 1 << 20


def found_behind(path: str, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Where a pattern is found behind the first byte of a file, rising, and what matches it: no more than 64 bytes, as
    many as it may look at before it."""
    with Path(path).open("rb") as file:
        for at in range(0, Path(path).stat().st_size, _READ_BYTES):
            # Each block overlaps both of its neighbours, and has the matches that begin in it.
            begin = file.seek(max(0, at - _LONGEST_BYTES))
            for found in pattern.finditer(file.read(at - begin + _READ_BYTES + _LONGEST_BYTES)):
                place = begin + found.start()
                if max(1, at) <= place < at + _READ_BYTES:
                    yield place, found
