"""Ids that look like one that a dataset does not have, for messages."""

from __future__ import annotations

from bisect import bisect_left
from difflib import get_close_matches

import numpy as np

from .ragged import Ragged

_SHOWN = 3
# So many are compared in a quarter of a second. Of more ids only neighbours of the wanted one are.
_MAX_COMPARED = 4096
# A shorter text is in many ids.
_MIN_PART = 3


def near_ids(ids: Ragged, wanted: str) -> list[str]:
    """Up to three ids that hold the wanted text, or differ in little from it. Of a column of many ids, which ascend,
    those are looked at that come shortly before or after it: they begin alike."""
    start, stop = 0, len(ids)
    if stop > _MAX_COMPARED:
        place = bisect_left(range(stop), wanted.encode(errors="surrogatepass"), key=ids.bytes)
        start = max(0, place - _MAX_COMPARED // 2)
        stop = min(stop, start + _MAX_COMPARED)
    candidates = ids.take(np.arange(start, stop)).texts()
    holding = [each for each in candidates if wanted in each] if len(wanted) >= _MIN_PART else []
    return holding[:_SHOWN] or get_close_matches(wanted, candidates, _SHOWN)
