"""Files read one behind the other as if they were one, as FFmpeg reads the segments of a playlist."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast


class FilePart(NamedTuple):
    """A part of a file: where it begins, and its length in bytes, 0 for all from there on."""

    path: str
    begin: int = 0
    length: int = 0

    @property
    def num_bytes(self) -> int:
        """How many bytes of it there are."""
        left = max(0, Path(self.path).stat().st_size - self.begin)
        return min(self.length or left, left)


Paths = str | tuple[FilePart, ...]

_BUFFER_BYTES = 1 << 18


def open_joined(path: Paths) -> BinaryIO:
    """Open a file, or parts of files as one."""
    if isinstance(path, str):
        return Path(path).open("rb")
    return cast(BinaryIO, io.BufferedReader(_JoinedFiles(path), buffer_size=_BUFFER_BYTES))


class _JoinedFiles(io.RawIOBase):
    """Opens each file where it is read: a playlist may name thousands."""

    def __init__(self, parts: Sequence[FilePart]) -> None:
        self._parts = parts
        self._starts = [0, *accumulate(part.num_bytes for part in parts)]
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._starts[-1]}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        if self._at >= self._starts[-1]:
            return 0
        number = bisect_right(self._starts, self._at) - 1
        part = self._parts[number]
        with Path(part.path).open("rb") as file:
            file.seek(part.begin + self._at - self._starts[number])
            data = file.read(min(len(buffer), self._starts[number + 1] - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
