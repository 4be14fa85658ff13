"""Videos of a dataset that have the same content under different ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tables import Manifest

_PAIRS_SHOWN = 10


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
    identities = manifest.videos.identity
    # Rows are sorted by id, and a stable sort keeps the rows of one identity in that order.
    order = np.argsort(identities, kind="stable")
    ordered = identities[order]
    is_again = np.zeros(len(order), dtype=bool)
    is_again[1:] = (ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)
    first = np.flatnonzero(~is_again)
    again = np.flatnonzero(is_again)
    shown = again[np.argsort(order[again])[:_PAIRS_SHOWN]]
    originals = first[np.searchsorted(first, shown) - 1]
    ids = manifest.videos.id
    pairs = zip(order[originals].tolist(), order[shown].tolist(), strict=True)
    return EqualContents(len(again), tuple((ids.text(one), ids.text(other)) for one, other in pairs))
