"""What checks of a dataset find."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import DatasetError, UnreadableDataError


@dataclass(frozen=True)
class Problem:
    """A place where the dataset differs from its manifest.

    `byte_range` and `frames` are half-open ranges [start, stop), in the file and in the video; `segment` is a row of
    the segment table. What does not apply is None. `is_unread`: the system could not read it, and it may be as written.
    """

    what: str
    file: str
    byte_range: tuple[int, int] | None = None
    segment: int | None = None
    video: str | None = None
    frames: tuple[int, int] | None = None
    is_unread: bool = False

    def __str__(self) -> str:
        where = f"{self.file}, bytes {self.byte_range[0]} to {self.byte_range[1]}" if self.byte_range else self.file
        if self.video is None:
            return f"{where}: {self.what}"
        frames = f"frames {self.frames[0]} to {self.frames[1] - 1} of " if self.frames else ""
        return f"{where}: {self.what} ({frames}video {self.video!r}, segment {self.segment})"


def is_unread(error: DatasetError) -> bool:
    """Whether an error says that the system could not read a file, which may be as it was written."""
    return isinstance(error, UnreadableDataError)
