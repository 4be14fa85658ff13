"""Rows of several columns as one column: which runs of rows it is made of, in their order. Pure.

What is planned here grows with the number of runs, and not with that of rows: a layer of a hundred thousand videos cuts
the ten million below it into so many runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..merging.frame_runs import ReadRows
from ..ragged import Array, offsets_of, ragged_indices
from ..zarr_files import zarr_sizes

# Runs of so many rows on average are copied one by one, shorter ones by the numbers of their rows.
_LONG_RUN = 64
# A block of rows is a chunk of the longest column, or some chunks of short values. It stays in a processor's cache
# between reading and writing.
BLOCK_ROWS = zarr_sizes.CHUNK_ROWS
_LONGEST_VALUE_BYTES = 8
# Where the longest column lacks so many rows in a row, the others are cut.
_MAX_BLOCKS = 8


@dataclass(frozen=True, eq=False)
class Runs:
    """Run i is the rows from `start[i]` of the column number `source[i]`, and becomes the rows from `target[i]` to
    `target[i + 1]`. The rows of each source ascend."""

    source: Array
    start: Array
    target: Array

    @property
    def lengths(self) -> Array:
        return np.diff(self.target)

    @property
    def num_rows(self) -> int:
        return int(self.target[-1])

    def which(self, start: int, stop: int) -> slice:
        """The numbers of the runs that have any of the rows [start, stop)."""
        return slice(
            int(np.searchsorted(self.target, start, side="right")) - 1, int(np.searchsorted(self.target, stop))
        )

    def between(self, start: int, stop: int) -> Runs:
        """The runs of the rows [start, stop), which become the rows from 0."""
        some = self.which(start, stop)
        first, end = self.target[:-1][some], self.target[1:][some]
        begin = np.maximum(first, start)
        return Runs(
            self.source[some],
            self.start[some] + (begin - first),
            np.append(begin, np.minimum(end[-1:], stop)) - start,
        )


def runs_of(source: Array, start: Array, lengths: Array) -> Runs:
    """These runs in their order. Those that follow each other on both sides are one, and those without rows are left
    out."""
    there = np.flatnonzero(lengths)
    source, start, lengths = source[there], start[there], lengths[there]
    apart = (source[1:] != source[:-1]) | (start[1:] != start[:-1] + lengths[:-1])
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(there)), bool), apart]))
    target = offsets_of(lengths)
    return Runs(source[first], start[first], np.append(target[first], target[-1]))


def visible_runs(source: int, rows: int, hidden: Array) -> Runs:
    """The rows of one column without those that are `hidden`, which ascend."""
    start = np.concatenate([[0], hidden + 1])
    return runs_of(np.full(len(start), source), start, np.append(hidden, rows) - start)


def inserted(runs: Runs, others: Runs, before: Array) -> Runs:
    """The rows of `runs` with those of `others` put in, row i of these before row `before[i]` of the others; `before`
    never falls."""
    places, first = np.unique(before, return_index=True)
    # The rows of `runs` that stay together, and those of `others` that go to one place, cut where either has a cut.
    starts = np.unique(np.concatenate([runs.target[:-1], places[places < runs.num_rows]]))
    here = np.searchsorted(runs.target, starts, side="right") - 1
    new = np.unique(np.concatenate([others.target[:-1], first]))
    there = np.searchsorted(others.target, new, side="right") - 1
    source = np.concatenate([others.source[there], runs.source[here]])
    start = np.concatenate(
        [others.start[there] + (new - others.target[there]), runs.start[here] + (starts - runs.target[here])]
    )
    lengths = np.concatenate([np.diff(np.append(new, others.num_rows)), np.diff(np.append(starts, runs.num_rows))])
    place = np.concatenate([places[np.searchsorted(first, new, side="right") - 1], starts])
    # Stable: what is put in comes first.
    order = np.argsort(place, kind="stable")
    return runs_of(source[order], start[order], lengths[order])


def of_lists(runs: Runs, offsets: Sequence[Array]) -> Runs:
    """The runs of a column that has a list for each row of another, whose runs these are. `offsets` has where the
    lists of each source start, and the end of the last."""
    start, end = np.zeros(len(runs.start), np.int64), np.zeros(len(runs.start), np.int64)
    for number, each in enumerate(offsets):
        here = np.flatnonzero(runs.source == number)
        start[here] = each[runs.start[here]]
        end[here] = each[runs.start[here] + runs.lengths[here]]
    return Runs(runs.source, start, offsets_of(end - start))


def blocks_of(runs: Runs, value_bytes: int = _LONGEST_VALUE_BYTES) -> list[tuple[int, int]]:
    """The rows [start, stop) in blocks, each to be put together by itself. They are cut where a chunk of the longest
    source ends, so that each of its chunks is in one block. Of short values a block has several chunks, and as many
    bytes."""
    block_rows = BLOCK_ROWS * max(1, _LONGEST_VALUE_BYTES // value_bytes)
    lengths = np.bincount(runs.source, weights=runs.lengths, minlength=1)
    here = np.flatnonzero(runs.source == int(np.argmax(lengths)))
    cuts = np.zeros(1, np.int64)
    if len(here):
        first, target, length = runs.start[here], runs.target[here], runs.lengths[here]
        chunks = np.arange(int(first[0]) // block_rows + 1, -(-int(first[-1] + length[-1]) // block_rows)) * block_rows
        run = np.searchsorted(first, chunks, side="right") - 1
        cuts = np.concatenate([cuts, target[run] + np.minimum(chunks - first[run], length[run])])
    bounds = np.unique(np.append(cuts, runs.num_rows)).tolist()
    most = _MAX_BLOCKS * block_rows
    return [(first, min(first + most, stop)) for start, stop in pairwise(bounds) for first in range(start, stop, most)]


def rows_between(runs: Runs, reads: Sequence[ReadRows], start: int, stop: int) -> Array:
    """The rows [start, stop). `reads` reads each source, once, from the first row that is needed to the last."""
    some = runs.which(start, stop)
    if some.stop - some.start == 1:
        ahead = int(runs.start[some.start] - runs.target[some.start])
        return reads[int(runs.source[some.start])](start + ahead, stop + ahead)
    pieces = runs.between(start, stop)
    lengths = pieces.lengths
    rows: list[Array] = []
    # Of each source: which of `rows` it is, its first row there, and the place of that among all rows that are read.
    which, first, before = (np.zeros(len(reads), np.int64) for _ in range(3))
    for number in np.flatnonzero(np.bincount(pieces.source, minlength=len(reads))).tolist():
        here = np.flatnonzero(pieces.source == number)
        which[number], first[number], before[number] = len(rows), pieces.start[here[0]], sum(map(len, rows))
        rows.append(reads[number](int(first[number]), int(pieces.start[here[-1]] + lengths[here[-1]])))
    at = pieces.start - first[pieces.source]
    if len(at) * _LONG_RUN > stop - start:
        return np.asarray(np.concatenate(rows)[ragged_indices(at + before[pieces.source], lengths)])
    numbers, ends = which[pieces.source].tolist(), (at + lengths).tolist()
    return np.concatenate([rows[number][a:b] for number, a, b in zip(numbers, at.tolist(), ends, strict=True)])
