"""How many bytes of shards the rows of a manifest stand for. Pure."""

from __future__ import annotations

import numpy as np

from ..ragged import Array, offsets_of, stretches_of
from ..tables import Manifest

# GOPs that are summed up at a time, unless a single video has more.
_SUMMED_GOPS = 1 << 18


def gops_of_segments(manifest: Manifest, start: int = 0, stop: int | None = None) -> Array:
    """The first GOP of each segment of the videos [start, stop), counted from that of the first one, then the number of
    all GOPs: int64. The GOPs of a segment are one run."""
    stop = len(manifest.videos) if stop is None else stop
    segments = np.diff(manifest.first_segments[start : stop + 1])
    of_each = manifest.videos.segment_gops[start:stop].astype(np.int64)
    found = np.repeat(of_each, segments)
    # The last segment of a video has the GOPs that are left.
    found[np.cumsum(segments) - 1] = np.diff(manifest.first_gops[start : stop + 1]) - (segments - 1) * of_each
    return offsets_of(found)


def segment_bytes(manifest: Manifest, start: int = 0, stop: int | None = None) -> Array:
    """The length of each segment of the videos [start, stop) in its shard: int64."""
    stop = len(manifest.videos) if stop is None else stop
    first_gop, end_gop = manifest.first_gops[start], manifest.first_gops[stop]
    first, end = manifest.first_segments[start], manifest.first_segments[stop]
    ends = offsets_of(manifest.gops.length[first_gop:end_gop].astype(np.int64))
    return np.diff(ends[gops_of_segments(manifest, start, stop)]) + manifest.segments.init_length[first:end]


def live_bytes(manifest: Manifest, is_counted: Array | None = None) -> Array:
    """The bytes of each shard that belong to videos of the manifest, or to those of them that `is_counted` says: int64.
    Some videos are looked at at a time."""
    found = np.zeros(len(manifest.shards), np.int64)
    for start, stop in stretches_of(manifest.first_gops, _SUMMED_GOPS):
        shards = manifest.segments.shard[manifest.first_segments[start] : manifest.first_segments[stop]]
        num_bytes = segment_bytes(manifest, start, stop)
        if is_counted is not None:
            num_bytes *= np.repeat(is_counted[start:stop], np.diff(manifest.first_segments[start : stop + 1]))
        found += np.bincount(shards, num_bytes, len(found)).astype(np.int64)
    return found
