"""Shards of which a part is not needed any more, written again without it.

The inits and GOPs that stay keep their bytes; their CRC-32s are checked on the way. The new shards have new names, and
the videos in them a greater revision, so the next snapshot reads these and earlier snapshots the old ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..storage.interface import Storage
from .edits import last_number
from .layout import open_timeline, shard_key
from .lost import lost_videos
from .parts import write_part
from .ragged import Array, concatenate, from_texts
from .shard_bytes import ShardBytes, gop_piece, init_piece
from .stacking import with_videos
from .stored_bytes import gops_of_segments, live_bytes
from .tables import Manifest, Timeline, empty, shards_table


@dataclass(frozen=True)
class Rewrite:
    """Shards to write again, and the videos that have segments in them, as rows of a manifest, ascending. `new_bytes`
    is the length of what stays of the shards, `old_bytes` their length now."""

    shards: tuple[int, ...]
    videos: tuple[int, ...]
    new_bytes: int
    old_bytes: int


def plan_rewrites(manifest: Manifest, *, lost: Collection[int] = ()) -> list[Rewrite]:
    """What to write again so that each shard holds nothing but segments of the manifest's videos.

    A video moves as a whole, so shards that share one are written again together. Shards in `lost` cannot be read, and
    stay as they are.
    """
    live, length = live_bytes(manifest), manifest.shards.length
    waiting = {row for row in np.flatnonzero(live < length).tolist() if row not in lost}
    shards_of: dict[int, list[int]] = {}
    for video in lost_videos(manifest, waiting).tolist():
        first, stop = manifest.first_segments[video : video + 2].tolist()
        shards_of[video] = sorted(set(manifest.segments.shard[first:stop].tolist()) & waiting)
    rewrites = []
    while waiting:
        shards = _connected(min(waiting), shards_of)
        waiting -= shards
        rows = sorted(shards)
        videos = tuple(sorted(video for video, its in shards_of.items() if shards & set(its)))
        rewrites.append(Rewrite(tuple(rows), videos, int(live[rows].sum()), int(length[rows].sum())))
    return rewrites


def _connected(shard: int, shards_of: Mapping[int, Sequence[int]]) -> set[int]:
    """The shards that share videos with this one, or with others of them."""
    found: set[int] = set()
    more = {shard}
    while more - found:
        found |= more
        more = {each for its in shards_of.values() if found & set(its) for each in its}
    return found


def rewrite(dataset: Storage, snapshot: str, manifest: Manifest, plan: Rewrite, profile: Mapping[str, Any]) -> None:
    """Commit the new shards and a part that names them. The caller holds the writer lock and publishes.

    CorruptDataError or MissingDataError if the shards do not have the bytes that were written; then they stay.
    """
    unit = _unit(manifest, plan)
    names: list[str] = []
    starts: dict[int, int] = {}
    for number, shard in enumerate(plan.shards):
        name, new = _write_again(dataset, manifest, shard, f"{unit}-{number}")
        names.append(name)
        starts |= new
    rows = _moved(manifest, plan, names, starts)
    first = manifest.first_frames
    pts = [open_timeline(dataset, snapshot, int(first[row]), int(first[row + 1])) for row in plan.videos]
    write_part(dataset, unit, replace(rows, timeline=Timeline(pts=np.concatenate(pts))), profile)


def _unit(manifest: Manifest, plan: Rewrite) -> str:
    names = [manifest.shards.name.text(shard) for shard in plan.shards]
    videos = [(manifest.ids[row], int(manifest.videos.revision[row])) for row in plan.videos]
    text = repr(("rewritten", names, videos))
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def _write_again(dataset: Storage, manifest: Manifest, shard: int, stem: str) -> tuple[str, dict[int, int]]:
    """Write the manifest's segments of a shard to a new one. Returns its name, and where each segment starts in it."""
    segments = np.flatnonzero(manifest.segments.shard == shard)
    segments = segments[np.argsort(manifest.segments.offset[segments], kind="stable")]
    key = shard_key(manifest.shards.name.text(shard))
    first_gops = gops_of_segments(manifest).tolist()
    source = ShardBytes(dataset)
    new = dataset.start(shard_key(stem), ".shard")
    starts = {}
    try:
        for segment in segments.tolist():
            starts[segment] = new.num_bytes
            gops = range(first_gops[segment], first_gops[segment + 1])
            for piece in (init_piece(manifest, segment), *(gop_piece(manifest, gop) for gop in gops)):
                new.write(source.piece(key, piece))
        name = new.commit().removeprefix(shard_key(""))
    except BaseException:
        new.discard()
        raise
    return name, starts


def _moved(manifest: Manifest, plan: Rewrite, names: Sequence[str], starts: Mapping[int, int]) -> Manifest:
    """The rows of the plan's videos, with the places of their segments in the new shards."""
    moved = np.array(sorted(starts), dtype=np.int64)
    shard, offset = manifest.segments.shard.copy(), manifest.segments.offset.copy()
    offset[moved] = [starts[segment] for segment in moved.tolist()]
    new_shards = np.arange(len(plan.shards), dtype=shard.dtype) + len(manifest.shards)
    shard[moved] = new_shards[np.searchsorted(plan.shards, shard[moved])]
    shift = np.repeat(offset - manifest.segments.offset, np.diff(gops_of_segments(manifest)))
    added = shards_table([(name, int(length)) for name, length in zip(names, _lengths(manifest, plan), strict=True)])
    nothing = empty()
    rows = replace(
        manifest,
        segments=replace(manifest.segments, shard=shard, offset=offset),
        gops=replace(manifest.gops, offset=manifest.gops.offset + shift),
        shards=replace(
            added,
            name=concatenate([manifest.shards.name, from_texts(names)]),
            length=np.concatenate([manifest.shards.length, added.length]),
        ),
        failures=nothing.failures,
        edits=nothing.edits,
        drops=nothing.drops,
        timeline=None,
    )
    chosen = with_videos(rows, np.array(plan.videos, dtype=np.int64))
    videos = chosen.videos
    number = np.full(len(videos), last_number(manifest), dtype="<i8")
    return replace(chosen, videos=replace(videos, revision=videos.revision + np.int32(1), after_edit=number))


def _lengths(manifest: Manifest, plan: Rewrite) -> Array:
    return live_bytes(manifest)[list(plan.shards)]
