"""Which samples resizing by interpolation="nearest" takes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..manifests.ragged import Array


@lru_cache(maxsize=256)
def nearest_samples(source: int, target: int) -> Array:
    """For each of `target` samples of an axis the index of that of `source` which contains its middle: int64.

    So does torch's interpolate(mode="nearest-exact"). A middle just between two samples belongs to the latter, where
    torch's float32 may round to the former. libswscale's SWS_POINT counts in steps of 1 / 65536, and takes the former
    at 32 of 224 samples of 256.
    """
    found = (2 * np.arange(target, dtype=np.int64) + 1) * source // (2 * target)
    found.flags.writeable = False
    return found
