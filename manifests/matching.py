"""Two manifests side by side: which rows have the same id, and which of these have the same values. Pure.

Ids ascend in both, as in every snapshot. So a block of one is compared with the few rows of the other that its ids lie
between, and what is in memory does not grow with the number of videos.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from .ragged import Array, Ragged, offsets_of, ragged_as_is, ragged_indices, stretches_of
from .tables import Manifest

# Ids that are looked for at a time. They, and the rows that they lie between, stay in a processor's cache.
_BLOCK_ROWS = 1 << 15
# Values of lists that are compared at a time, unless a single list has more.
_COMPARED_VALUES = 1 << 18
# Where the rows that a block's ids lie between are so many times its own, most of them are passed over.
_SPARSE = 16


def matching_rows(ids: Ragged, others: Ragged) -> Iterator[tuple[Array, Array]]:
    """Some rows of ids at a time, and the row of each among others, -1 where there is none: int64. Which rows come
    together depends on the number of ids alone."""
    low = 0
    for start in range(0, len(ids), _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, len(ids))
        some = ids.between(start, stop)
        high = bisect_right(range(len(others)), ids.bytes(stop - 1), lo=low, key=others.bytes)
        if high - low > _SPARSE * len(some):
            rows, found = others.search(some)
        else:
            rows, found = others.between(low, high).search(some)
            rows = rows + low
        yield np.arange(start, stop), np.where(found, rows, -1)
        low = high


def equal_lists(one: Ragged, rows: Array, other: Ragged, other_rows: Array) -> Array:
    """Whether row `rows[i]` of one has the values of row `other_rows[i]` of the other: bool."""
    starts, other_starts = one.offsets[rows], other.offsets[other_rows]
    lengths = one.offsets[rows + 1] - starts
    equal: Array = lengths == other.offsets[other_rows + 1] - other_starts
    left = np.flatnonzero(equal)
    ends = offsets_of(lengths[left])
    for first, last in stretches_of(ends, _COMPARED_VALUES):
        some = left[first:last]
        values = one.values[ragged_indices(starts[some], lengths[some])]
        others = other.values[ragged_indices(other_starts[some], lengths[some])]
        # How many values differ in all lists before each one.
        differing = offsets_of(values != others)
        bounds = ends[first : last + 1] - ends[first]
        equal[some] = differing[bounds[1:]] == differing[bounds[:-1]]
    return equal


def equal_gops(one: Manifest, rows: Array, other: Manifest, other_rows: Array) -> Array:
    """Whether videos have as many GOPs with the same checksums, wherever these lie: bool."""
    return equal_lists(_checksums(one), rows, _checksums(other), other_rows)


def _checksums(manifest: Manifest) -> Ragged:
    return ragged_as_is(manifest.gops.crc32, manifest.first_gops)
