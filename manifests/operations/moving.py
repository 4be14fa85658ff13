"""Segments that are written into other shards, of the same dataset or of another, without encoding anything.

Inits and GOPs keep their bytes; their CRC-32s are checked on the way. New shards hold nothing but the segments that
were moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ...storage.interface import Storage, Upload
from ..dataset_files.layout import shard_key
from ..dataset_files.parts import unit_of_content
from ..ragged import Array, concatenate, from_texts, ragged_indices
from ..stacking import with_videos
from ..tables import Manifest, Timeline, empty, shards_table
from .lost import damage_remedy, lost_remedy
from .shard_bytes import ShardBytes, ShardPiece, gop_piece, init_piece
from .stored_bytes import gops_of_segments

# Read at once. GOPs lie back to back, and a request to a store takes long.
_READ_BYTES = 8 << 20
# Of datasets whose profile does not say how long a shard becomes.
DEFAULT_SHARD_BYTES = 256_000_000
# Videos whose shards are looked up at a time.
_LOOKED_AT = 1 << 16


@dataclass(frozen=True, eq=False)
class Move:
    """Shards to move together: `groups`, each of which becomes one new shard, and the videos that have segments in
    them. All are rows of a manifest, ascending."""

    groups: tuple[tuple[int, ...], ...]
    videos: Array

    @property
    def shards(self) -> tuple[int, ...]:
        return tuple(sorted(shard for group in self.groups for shard in group))


@dataclass(frozen=True, eq=False)
class VideosInShards:
    """Entry i says that the video in row `videos[i]` has segments in the shard in row `shards[i]`. Each pair comes
    once, sorted by video and then by shard."""

    videos: Array
    shards: Array


@dataclass(frozen=True)
class _Moved:
    """A new shard, and where each segment begins in it."""

    name: str
    num_bytes: int
    starts: dict[int, int]


def in_shards(manifest: Manifest, videos: Array, among: Array | None = None) -> VideosInShards:
    """The shards that these videos, which ascend, lie in; of those `among` these rows alone, if that is given."""
    num_shards = max(1, len(manifest.shards))
    is_wanted = np.zeros(num_shards, dtype=bool)
    is_wanted[slice(None) if among is None else among] = True
    # A video and a shard as one number.
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(videos), _LOOKED_AT):
        some = videos[start : start + _LOOKED_AT]
        first = manifest.first_segments[some]
        lengths = manifest.first_segments[some + 1] - first
        shards = manifest.segments.shard[ragged_indices(first, lengths)]
        wanted = is_wanted[shards]
        found.append(np.unique(np.repeat(some, lengths)[wanted] * num_shards + shards[wanted]))
    pairs = np.concatenate(found)
    return VideosInShards(pairs // num_shards, pairs % num_shards)


def sharing_videos(lying: VideosInShards) -> list[list[int]]:
    """Shards that share videos, together: each list ascending, in the order of their first ones."""
    parent: dict[int, int] = {shard: shard for shard in np.unique(lying.shards).tolist()}

    def root(shard: int) -> int:
        while parent[shard] != shard:
            parent[shard] = parent[parent[shard]]
            shard = parent[shard]
        return shard

    is_next = np.flatnonzero(lying.videos[1:] == lying.videos[:-1])
    neighbours = np.stack([lying.shards[is_next], lying.shards[is_next + 1]], axis=1)
    for pair in np.unique(neighbours, axis=0).tolist():
        one, other = map(root, pair)
        parent[max(one, other)] = min(one, other)
    groups: dict[int, list[int]] = {}
    for shard in sorted(parent):
        groups.setdefault(root(shard), []).append(shard)
    return list(groups.values())


def videos_of(groups: Sequence[Sequence[int]], lying: VideosInShards) -> list[Array]:
    """The videos that lie in any shard of each group, ascending. No shard is in two groups."""
    number_of_shard = np.full(int(lying.shards.max(initial=0)) + 1, -1)
    for number, group in enumerate(groups):
        number_of_shard[group] = number
    numbers = number_of_shard[lying.shards]
    # Stable: the videos of a group stay in their order.
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(groups) + 1))
    return [np.unique(lying.videos[order[start:stop]]) for start, stop in pairwise(bounds.tolist())]


def put_together(lying: VideosInShards, num_bytes: Array, max_bytes: int) -> list[Move]:
    """Moves that put shards together to new ones of at most about `max_bytes`. Those that share a video stay together.
    `num_bytes` is what each shard has."""
    groups: list[list[int]] = []
    size = 0
    for shards in sharing_videos(lying):
        more = int(num_bytes[shards].sum())
        if not groups or size + more > max_bytes:
            groups.append([])
            size = 0
        groups[-1] += shards
        size += more
    return [
        Move((tuple(sorted(group)),), videos) for group, videos in zip(groups, videos_of(groups, lying), strict=True)
    ]


def unit_of_move(kind: str, manifest: Manifest, move: Move) -> str:
    """The unit of a part that a move writes: the same for the same move, so that it is found when it is repeated."""
    names = [manifest.shards.name.text(shard) for shard in move.shards]
    videos = [(manifest.videos.id.text(row), int(manifest.videos.revision[row])) for row in move.videos.tolist()]
    return unit_of_content((kind, names, videos))


def move_segments(
    source: Storage, manifest: Manifest, move: Move, target: Storage, unit: str, *, pts: Array
) -> Manifest:
    """Write the segments into new shards of `target`. Returns the rows of the videos, whose segments lie there now.

    `pts` are the rows of the timeline of the videos. CorruptDataError or MissingDataError if the shards do not have the
    bytes that were written.
    """
    # A move is a small part of a large manifest, and there are many moves.
    part = with_videos(manifest, move.videos)
    row_of_name = {name: row for row, name in enumerate(part.shards.name.texts())}
    moved = []
    for number, group in enumerate(move.groups):
        rows = [row_of_name[manifest.shards.name.text(shard)] for shard in group]
        moved.append(_write(source, part, rows, target.start(shard_key(f"{unit}-{number}"), ".shard")))
    placed = _with_new_places(part, moved)
    return replace(with_videos(placed, np.arange(len(part.videos))), timeline=Timeline(pts=pts))


def _write(source: Storage, manifest: Manifest, shards: Sequence[int], new: Upload) -> _Moved:
    starts: dict[int, int] = {}
    try:
        for shard in shards:
            segments = np.flatnonzero(manifest.segments.shard == shard)
            segments = segments[np.argsort(manifest.segments.offset[segments], kind="stable")]
            key = shard_key(manifest.shards.name.text(shard))
            for segment, data in _pieces(source, key, manifest, segments.tolist()):
                starts.setdefault(segment, new.num_bytes)
                new.write(bytes(data))
        num_bytes = new.num_bytes
        return _Moved(new.commit().removeprefix(shard_key("")), num_bytes, starts)
    except BaseException:
        new.discard()
        raise


def _pieces(
    source: Storage, key: str, manifest: Manifest, segments: Sequence[int]
) -> Iterator[tuple[int, bytes | memoryview]]:
    """The inits and GOPs of segments of one shard, each with its segment, and checked."""
    reader = ShardBytes(source, lost_remedy=lost_remedy(source), damage_remedy=damage_remedy(source))
    first_gops = gops_of_segments(manifest)
    run: list[tuple[int, ShardPiece]] = []

    def read() -> Iterator[tuple[int, bytes | memoryview]]:
        start, stop = run[0][1].start, run[-1][1].stop
        data = memoryview(reader.read(key, start, stop))
        for segment, piece in run:
            yield segment, reader.checked(data[piece.start - start : piece.stop - start], key, piece)
        run.clear()

    for segment in segments:
        gops = range(int(first_gops[segment]), int(first_gops[segment + 1]))
        for piece in (init_piece(manifest, segment), *(gop_piece(manifest, gop) for gop in gops)):
            if run and (piece.start != run[-1][1].stop or piece.stop - run[0][1].start > _READ_BYTES):
                yield from read()
            run.append((segment, piece))
    if run:
        yield from read()


def _with_new_places(manifest: Manifest, moved: Sequence[_Moved]) -> Manifest:
    """The manifest's rows, with the new shards below its own, and with the new places of the segments that moved."""
    shard, offset = manifest.segments.shard.copy(), manifest.segments.offset.copy()
    for number, each in enumerate(moved, len(manifest.shards)):
        segments = np.array(list(each.starts), dtype=np.int64)
        shard[segments] = number
        offset[segments] = list(each.starts.values())
    shift = np.repeat(offset - manifest.segments.offset, np.diff(gops_of_segments(manifest)))
    added = shards_table([(each.name, each.num_bytes) for each in moved])
    nothing = empty()
    return replace(
        manifest,
        segments=replace(manifest.segments, shard=shard, offset=offset),
        gops=replace(manifest.gops, offset=manifest.gops.offset + shift),
        shards=replace(
            added,
            name=concatenate([manifest.shards.name, from_texts(each.name for each in moved)]),
            length=np.concatenate([manifest.shards.length, added.length]),
        ),
        failures=nothing.failures,
        edits=nothing.edits,
        drops=nothing.drops,
        timeline=None,
    )
