"""Files read one behind the other as if they were one, as FFmpeg reads the segments of a playlist."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, cast

Paths = str | tuple[str, ...]

_BUFFER_BYTES = 1 << 18


def open_joined(path: Paths) -> BinaryIO:
    """Open a file, or several as one."""
    if isinstance(path, str):
        return Path(path).open("rb")
    return cast(BinaryIO, io.BufferedReader(_JoinedFiles(path), buffer_size=_BUFFER_BYTES))


class _JoinedFiles(io.RawIOBase):
    """Opens each file where it is read: a playlist may name thousands."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._starts = [0, *accumulate(Path(path).stat().st_size for path in paths)]
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
        with Path(self._paths[number]).open("rb") as file:
            file.seek(self._at - self._starts[number])
            data = file.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
