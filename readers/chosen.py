"""Which videos of a snapshot a dataset has: all of them, or those that `Dataset.where` chose.

A **row** is a video's place in the snapshot's table of videos, a **number** its place in the dataset. They are the same
until some videos are chosen. Readers work with rows, so that datasets of different videos of a snapshot share one
reader and its tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arguments import integer
from ..errors import VideoNotFoundError, WrongTypeError
from ..manifests.ragged import Array
from ..manifests.tables import Manifest
from ..wording import counted


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """The rows of a dataset's videos: `count` ascending ones, or with None the first `count`, which are all."""

    count: int
    rows: Array | None = None

    def only(self, chosen: Array) -> ChosenRows:
        """Those of these videos for which `chosen` is True."""
        if chosen.all():
            return self
        numbers = np.flatnonzero(chosen)
        rows = numbers if self.rows is None else self.rows[numbers]
        rows.flags.writeable = False
        return replace(self, count=len(rows), rows=rows)

    def row_of(self, key: str | int, manifest: Manifest) -> int:
        """The row of the video with this id or number; -1 is the last. VideoNotFoundError when there is none."""
        if isinstance(key, str):
            row = manifest.row_of(key)
            if row not in self:
                raise VideoNotFoundError(
                    f"video {key!r} is not one of the {counted(self.count, 'video')} that where() or a slice chose",
                    video=key,
                )
            return row
        try:
            number = integer(key, "a video's number")
        except WrongTypeError as error:
            raise WrongTypeError(f"{error.message}, or its id as a string") from None
        place = number + self.count if number < 0 else number
        if not 0 <= place < self.count:
            raise VideoNotFoundError(f"the dataset has no video number {number}: it has {counted(self.count, 'video')}")
        return place if self.rows is None else int(self.rows[place])

    def __contains__(self, row: int) -> bool:
        if self.rows is None:
            return 0 <= row < self.count
        place = int(np.searchsorted(self.rows, row))
        return place < self.count and int(self.rows[place]) == row

    def rows_at(self, numbers: Array) -> Array:
        """The rows of videos by their numbers, which exist."""
        return numbers if self.rows is None else np.asarray(self.rows[numbers])

    def numbers_of(self, rows: Sequence[int] | Array) -> Array:
        """The numbers of videos by their rows, which are among these."""
        wanted = np.asarray(rows, dtype=np.int64)
        return wanted if self.rows is None else np.searchsorted(self.rows, wanted)

    def all_rows(self) -> Array:
        """Every row, int64, ascending."""
        return np.arange(self.count) if self.rows is None else self.rows
