"""Which videos a dataset has lost with its shards."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from .dataset import lost_remedy
from .errors import DatasetError
from .ragged import Array
from .tables import Manifest


def lost_videos(manifest: Manifest, shards: Collection[int]) -> Array:
    """The rows of the videos that lie in any of these shards, rising, int64."""
    if not shards:
        return np.zeros(0, dtype=np.int64)
    hit = np.isin(manifest.segments.shard, list(shards))
    video_of_segment = np.repeat(np.arange(len(manifest.videos)), manifest.segment_counts)
    return np.unique(video_of_segment[hit])


def lost_text(dataset: Path, manifest: Manifest, lost: Mapping[int, DatasetError]) -> str:
    """What to tell the user of lost shards, in a sentence or two."""
    videos, first = len(lost_videos(manifest, lost)), next(iter(lost.values()))
    what = first.message.removesuffix(f"; {lost_remedy(dataset)}")
    return (
        f"{videos} of {len(manifest.videos)} videos of {dataset} cannot be read, or not all of them: "
        f"{len(lost)} of {len(manifest.shards)} shards are not as they were written, the first: {what}. To mend that, "
        f"{lost_remedy(dataset)}"
    )
