"""Where the rows of a timeline come from that is put together from several: read in blocks, never held in memory whole,
since at eight bytes a frame it is by far the largest table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..ragged import Array, offsets_of

# Reads rows [start, stop) of one timeline.
ReadRows = Callable[[int, int], Array]


@dataclass(frozen=True, eq=False)
class FrameRuns:
    """Where the frames of each video of a merged manifest come from: the number of the input manifest, the first row in
    its timeline and the number of rows there. `len` is the total number of frames."""

    manifest: Array
    start: Array
    length: Array

    def __len__(self) -> int:
        return int(self.length.sum())


def timeline_blocks(runs: FrameRuns, timelines: Sequence[ReadRows], *, block_rows: int) -> Iterator[Array]:
    """The merged timeline in blocks of `block_rows` rows; the last one may be shorter.

    A block reads each timeline at most once, from the first row that it needs to the last. Videos of a merged manifest
    are sorted by id, so nearly all rows in between are needed too.
    """
    ends = offsets_of(runs.length)
    total = int(ends[-1])
    for start in range(0, total, block_rows):
        yield timeline_rows(runs, ends, timelines, start, min(start + block_rows, total))


def timeline_rows(runs: FrameRuns, ends: Array, timelines: Sequence[ReadRows], start: int, stop: int) -> Array:
    """Rows [start, stop) of the merged timeline. `ends` has the first row of each video, and the end of the last."""
    # The videos that have frames among them.
    videos = slice(int(np.searchsorted(ends, start, side="right")) - 1, int(np.searchsorted(ends, stop, side="left")))
    first_rows = ends[:-1][videos]
    targets = np.maximum(first_rows, start)
    pieces = FrameRuns(
        manifest=runs.manifest[videos],
        start=runs.start[videos] + (targets - first_rows),
        length=np.minimum(first_rows + runs.length[videos], stop) - targets,
    )
    return _block(pieces, targets - start, timelines)


def _block(pieces: FrameRuns, targets: Array, timelines: Sequence[ReadRows]) -> Array:
    """One block of the timeline. The rows of piece i start at `targets[i]`."""
    block = np.zeros(len(pieces), dtype="<i8")
    order = np.argsort(pieces.manifest, kind="stable")
    numbers, first = np.unique(pieces.manifest[order], return_index=True)
    for number, members in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        starts, lengths = pieces.start[members], pieces.length[members]
        origin = int(starts.min())
        rows = timelines[number](origin, int((starts + lengths).max()))
        for target, source, length in zip(
            targets[members].tolist(), (starts - origin).tolist(), lengths.tolist(), strict=True
        ):
            block[target : target + length] = rows[source : source + length]
    return block
