"""Raw streams whose headers state another rate further on, as of cameras that are slower at night.

FFmpeg's demuxer says so by the durations of packets. But it counts all frames of H.264 at the first rate, and those of
HEVC and MPEG-2 with B-frames wrongly where the rate changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ....manifests.ragged import Array

# Demuxers of streams that have a rate and no times.
RAW_DEMUXERS = ("h264", "hevc", "mpegvideo")


def counted_times(durations: Sequence[int], keyframes: Collection[int]) -> tuple[Array, int] | None:
    """The times of the frames of a raw stream in the order shown, int64, rising from 0, and how long the last one
    lasts, if its rate changes; None where it does not. `durations`: those of its packets; `keyframes`: the numbers of
    those at which a rate may change.

    Where durations change elsewhere they are those of frames that are shown for two fields and three in turn.
    """
    # A rate that is no rate, for which FFmpeg knows no duration, changes none.
    known = np.array(durations, dtype=np.int64)
    places = np.maximum.accumulate(np.where(known > 0, np.arange(len(known)), 0))
    steps = known[places]
    changes = np.flatnonzero(np.diff(steps)) + 1
    if not len(changes) or (steps <= 0).any() or not set(changes.tolist()) <= set(keyframes):
        return None
    return np.concatenate([[0], np.cumsum(steps[:-1])]), int(steps[-1])
