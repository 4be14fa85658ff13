"""Which video the n-th clip of a dataset belongs to, in memory that does not grow with the clips.

Running counts of the clips of each video say it by binary search. For ten million videos they are 80 MB, in each
process that was not forked. So of many videos one count for each run of them is kept, and those within a run are
counted again when a clip of it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...manifests.ragged import Array, offsets_of

# Of fewer videos every count is kept: 8 MB at most.
_MOST_KEPT = 1 << 20
_RUN_VIDEOS = 256
# Looked at together, where all are: the arrays that this takes stay small.
BLOCK_VIDEOS = 1 << 16


@dataclass(frozen=True, eq=False)
class RunningCounts:
    """`count` says how many clips the videos [start, stop) have. `of_runs` are the running counts before each run of
    `run_videos` videos, and after the last one; int64."""

    num_videos: int
    count: Callable[[int, int], Array]
    of_runs: Array
    run_videos: int

    def __len__(self) -> int:
        return int(self.of_runs[-1])

    def all(self) -> Array:
        """The running counts of all videos: int64, (videos + 1,)."""
        if self.run_videos == 1:
            return self.of_runs
        starts = range(0, self.num_videos, BLOCK_VIDEOS)
        blocks = [self.count(start, min(start + BLOCK_VIDEOS, self.num_videos)) for start in starts]
        return offsets_of(np.concatenate(blocks))

    def located(self, clips: Array) -> tuple[Array, Array]:
        """The videos of these clips, and the number of each among the clips of its video."""
        runs = np.searchsorted(self.of_runs, clips, side="right") - 1
        within = clips - self.of_runs[runs]
        if self.run_videos == 1:
            return runs, within
        videos = runs * self.run_videos
        for run in np.unique(runs).tolist():
            start = run * self.run_videos
            before = offsets_of(self.count(start, min(start + self.run_videos, self.num_videos)))
            here = np.flatnonzero(runs == run)
            found = np.searchsorted(before, within[here], side="right") - 1
            videos[here] += found
            within[here] -= before[found]
        return videos, within


def running_counts(num_videos: int, count: Callable[[int, int], Array], *, may_count_again: bool) -> RunningCounts:
    """The running counts of so many videos. `may_count_again` says that a few can be counted without all others."""
    if num_videos <= _MOST_KEPT or not may_count_again:
        return RunningCounts(num_videos, count, offsets_of(count(0, num_videos)), 1)
    sums = []
    for start in range(0, num_videos, BLOCK_VIDEOS):
        counts = count(start, min(start + BLOCK_VIDEOS, num_videos))
        sums.append(np.add.reduceat(counts, np.arange(0, len(counts), _RUN_VIDEOS)))
    return RunningCounts(num_videos, count, offsets_of(np.concatenate(sums)), _RUN_VIDEOS)
