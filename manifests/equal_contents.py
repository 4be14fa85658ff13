"""Videos of a dataset that have the same content under different ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .ragged import Array
from .tables import Manifest

_PAIRS_SHOWN = 10
# Identities that are compared at a time: they and what comes of them stay in a processor's cache.
_COMPARED_ROWS = 1 << 16


@dataclass(frozen=True)
class EqualContents:
    """`videos` counts the videos whose content is in the dataset under an earlier id as well. `pairs` are the first ten
    of them: (the first id with that content, the id)."""

    videos: int = 0
    pairs: tuple[tuple[str, str], ...] = ()


NO_EQUAL_CONTENTS = EqualContents()


def equal_contents(manifest: Manifest) -> EqualContents:
    """Compares the identities of all videos. An identity is a 64-bit hash over a file's size, start and end, so two
    files with the same identity have the same size. Identity 0 means that it is not known."""
    rows = _of_shared_identities(manifest.videos.identity)
    identities = manifest.videos.identity[rows]
    # Rows are sorted by id, and a stable sort keeps the rows of one identity in that order.
    order = np.argsort(identities, kind="stable")
    ordered = identities[order]
    is_again = np.zeros(len(order), dtype=bool)
    is_again[1:] = ordered[1:] == ordered[:-1]
    first = np.flatnonzero(~is_again)
    again = np.flatnonzero(is_again)
    shown = again[np.argsort(order[again])[:_PAIRS_SHOWN]]
    originals = first[np.searchsorted(first, shown) - 1]
    ids = manifest.videos.id
    pairs = zip(rows[order[originals]].tolist(), rows[order[shown]].tolist(), strict=True)
    return EqualContents(len(again), tuple((ids.text(one), ids.text(other)) for one, other in pairs))


def _of_shared_identities(identities: Array) -> Array:
    """The rows of all identities but 0 that several rows have. Sorting them takes less time, and half of the memory, of
    sorting rows by them; most often none is shared."""
    ordered = np.sort(identities)
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    return rows_of_identities(identities, shared[shared != 0])


def rows_of_identities(identities: Array, wanted: Array) -> Array:
    """The rows with one of the `wanted` identities: int64, ascending. Few rows are in memory at a time."""
    values = np.unique(wanted)
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(identities) if len(values) else 0, _COMPARED_ROWS):
        some = identities[start : start + _COMPARED_ROWS]
        places = np.minimum(np.searchsorted(values, some), len(values) - 1)
        found.append(start + np.flatnonzero(values[places] == some))
    return np.concatenate(found)
