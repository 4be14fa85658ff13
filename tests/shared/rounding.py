"""How far RGB of a frame's own size may be from what it is compared with.

libswscale has code of its own for x86-64 and for ARM, which round otherwise. On ARM it takes that for widths of a
multiple of 16 alone, so that a frame that is converted in two parts differs from one that is converted as a whole.
"""

import platform

import numpy as np

from shortgop.manifests.ragged import Array

MOST_LEVELS = 0 if platform.machine() == "x86_64" else 3


def rounds_alike(one: Array, other: Array) -> bool:
    """Whether two pictures are equal, or as close as this processor lets them be."""
    apart = np.abs(one.astype(np.int16) - other.astype(np.int16)) if one.shape == other.shape else None
    return apart is not None and int(apart.max()) <= MOST_LEVELS
