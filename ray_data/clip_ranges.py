"""Which clips each read task reads, and in which blocks: arithmetic on places in the order of videos."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..manifests.ragged import Array


def task_ranges(firsts: Array, shards: Array, num_tasks: int) -> list[range]:
    """Divide the clips of all videos into `num_tasks` ranges of places, or one for each clip if there are fewer clips.

    `firsts` are running counts of the clips of each video, int64, (videos + 1,); `shards` are the numbers of the
    videos' shards, (videos,). The ranges are about equally long. A range ends where another shard begins if one begins
    within a quarter of a range's length, else where another video begins if one begins there, so that few shards and
    few GOPs are read by two tasks.
    """
    count = int(firsts[-1])
    if not count:
        return []
    num_tasks = min(num_tasks, count)
    window = count // (4 * num_tasks)
    # Python's integers: the product may exceed int64.
    cuts = np.array([task * count // num_tasks for task in range(1, num_tasks)], dtype=np.int64)
    has_clips = np.flatnonzero(np.diff(firsts))
    videos = firsts[has_clips[1:]]
    new_shard = np.diff(shards[has_clips]) != 0
    cuts = _moved(cuts, videos[new_shard], videos, window)
    bounds = [0, *cuts.tolist(), count]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def block_ranges(places: range, clips_per_block: int) -> list[range]:
    """Divide a task's places into blocks of at most `clips_per_block`."""
    return [
        range(start, min(start + clips_per_block, places.stop))
        for start in range(places.start, places.stop, clips_per_block)
    ]


def _moved(cuts: Array, shards: Array, videos: Array, window: int) -> Array:
    """Each cut at the nearest place in `shards` if that is at most `window` away, else at the nearest in `videos` if
    that is, else where it was."""
    result = cuts.copy()
    for places in (videos, shards):
        if len(places):
            nearest = _nearest(places, cuts)
            result = np.where(np.abs(nearest - cuts) <= window, nearest, result)
    return result


def _nearest(places: Array, cuts: Array) -> Array:
    after = np.searchsorted(places, cuts).clip(max=len(places) - 1)
    before = np.maximum(after - 1, 0)
    return np.asarray(np.where(cuts - places[before] < places[after] - cuts, places[before], places[after]))
