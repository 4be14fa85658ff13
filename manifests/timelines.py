"""Putting timelines together without holding them: at eight bytes a frame they are by far the largest table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .ragged import Array, offsets_of

# Reads rows [start, stop) of one timeline.
ReadRows = Callable[[int, int], Array]


@dataclass(frozen=True, eq=False)
class FrameRuns:
    """For each video of a merged manifest: which of the merged ones its frames come from, and where they lie
    there. `len` is the number of frames."""

    manifest: Array
    start: Array
    length: Array

    def __len__(self) -> int:
        return int(self.length.sum())


def timeline_blocks(runs: FrameRuns, timelines: Sequence[ReadRows], *, block_rows: int) -> Iterator[Array]:
    """The merged timeline in blocks of `block_rows` rows; the last one may be shorter.

    For each block every timeline that takes part is read once, from the first to the last row that is needed: for
    timelines of manifests that stand by id, as merged ones do, that is little more than what is used.
    """
    ends = offsets_of(runs.length)
    total = int(ends[-1])
    for start in range(0, total, block_rows):
        stop = min(start + block_rows, total)
        # The videos that have frames in this block.
        videos = slice(
            int(np.searchsorted(ends, start, side="right")) - 1, int(np.searchsorted(ends, stop, side="left"))
        )
        first_rows = ends[:-1][videos]
        targets = np.maximum(first_rows, start)
        pieces = FrameRuns(
            manifest=runs.manifest[videos],
            start=runs.start[videos] + (targets - first_rows),
            length=np.minimum(first_rows + runs.length[videos], stop) - targets,
        )
        yield _block(pieces, targets - start, timelines)


def _block(pieces: FrameRuns, targets: Array, timelines: Sequence[ReadRows]) -> Array:
    """The pieces, each put where `targets` says."""
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
