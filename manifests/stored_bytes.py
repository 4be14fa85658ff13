"""How many bytes of shards the rows of a manifest stand for. Pure."""

from __future__ import annotations

import numpy as np

from .ragged import Array, offsets_of
from .tables import Manifest


def gops_of_segments(manifest: Manifest) -> Array:
    """The first GOP of each segment, then the number of all GOPs: int64. The GOPs of a segment are one run."""
    videos = manifest.videos
    segment_gops = np.repeat(videos.segment_gops, manifest.segment_counts).astype(np.int64)
    last = manifest.first_segments[1:] - 1
    segment_gops[last] = manifest.gop_counts - (manifest.segment_counts - 1) * videos.segment_gops
    return offsets_of(segment_gops)


def segment_bytes(manifest: Manifest) -> Array:
    """The length of each segment in its shard: int64."""
    ends = offsets_of(manifest.gops.length.astype(np.int64))[gops_of_segments(manifest)]
    return np.diff(ends) + manifest.segments.init_length


def live_bytes(manifest: Manifest) -> Array:
    """The bytes of each shard that belong to videos of the manifest: int64."""
    return np.bincount(manifest.segments.shard, weights=segment_bytes(manifest), minlength=len(manifest.shards)).astype(
        np.int64
    )
