"""Shards that are written again: those that hold more than is needed, and small ones, several of which become one.

The new shards have new names, and the videos in them a greater revision, so the next snapshot reads these and earlier
snapshots the old ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...storage.interface import Storage
from ..dataset_files.parts import write_part
from ..dataset_files.snapshots import timeline_of
from ..merging.edits import last_number
from ..ragged import Array
from ..tables import Manifest
from .lost import lost_videos
from .moving import (
    Move,
    VideosInShards,
    in_shards,
    move_segments,
    put_together,
    sharing_videos,
    unit_of_move,
    videos_of,
)
from .stored_bytes import live_bytes


def plan_rewrites(manifest: Manifest, *, lost: Collection[int] = ()) -> list[Move]:
    """What to write again so that each shard holds nothing but segments of the manifest's videos.

    Shards that share a video are written again together. Shards in `lost` cannot be read, and stay as they are.
    """
    lying = _lying(manifest, live_bytes(manifest) < manifest.shards.length, lost)
    groups = sharing_videos(lying)
    return [
        Move(tuple((shard,) for shard in group), videos)
        for group, videos in zip(groups, videos_of(groups, lying), strict=True)
    ]


def plan_compaction(manifest: Manifest, shard_bytes: int, *, lost: Collection[int] = ()) -> list[Move]:
    """What to write again so that there are fewer shards: those below half of `shard_bytes` are put together, up to
    about `shard_bytes`. Shards that share a video stay together, in an order of their own."""
    live = live_bytes(manifest)
    moves = put_together(_lying(manifest, live < shard_bytes // 2, lost), live, shard_bytes)
    # One that would become one gains nothing.
    return [move for move in moves if len(move.shards) > 1]


def _lying(manifest: Manifest, is_wanted: Array, lost: Collection[int]) -> VideosInShards:
    """The videos that lie in the shards that are wanted, one flag for each, but for the lost ones."""
    among = np.setdiff1d(np.flatnonzero(is_wanted), list(lost))
    return in_shards(manifest, lost_videos(manifest, among.tolist()), among)


def rewrite(dataset: Storage, snapshot: str, manifest: Manifest, move: Move, profile: Mapping[str, Any]) -> None:
    """Commit the new shards and a part that names them. The caller holds the writer lock and publishes.

    CorruptDataError or MissingDataError if the shards do not have the bytes that were written; then they stay.
    """
    unit = unit_of_move("rewritten", manifest, move)
    pts = timeline_of(dataset, snapshot, manifest, move.videos)
    rows = move_segments(dataset, manifest, move, dataset, unit, pts=pts)
    videos = rows.videos
    number = np.full(len(videos), last_number(manifest), dtype="<i8")
    videos = replace(videos, revision=videos.revision + np.int32(1), after_edit=number)
    write_part(dataset, unit, replace(rows, videos=videos), profile)
