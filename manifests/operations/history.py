"""The snapshots of a dataset: what is in each, and what changed from one to the next."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import CorruptDataError, MissingDataError
from ...storage.interface import Storage, Stored
from ..dataset_files.layout import has_snapshot, snapshots
from ..dataset_files.root_file import read_root
from ..dataset_files.snapshot_files import snapshot_attributes
from ..dataset_files.snapshots import open_once
from ..matching import equal_lists, matching_rows
from ..ragged import Array
from ..tables import Manifest


@dataclass(frozen=True)
class Difference:
    """How many videos of a snapshot differ from those of the one before.

    `added` and `dropped` count ids that only one of them has. Of the other videos, `relabelled` counts those with other
    columns, `replaced` those of another source file, and `stored_again` those of the same file in another place,
    because they were lost or their shard was written again. A video may be counted more than once.
    """

    added: int = 0
    relabelled: int = 0
    replaced: int = 0
    stored_again: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class SnapshotSummary:
    """A snapshot that is on disk. `written` is the time in UTC, `num_bytes` that of its videos' shards. `difference` is
    that to the snapshot before it that can be read, and None for the first. `trouble` says why a snapshot cannot be
    read, of which nothing else is known then."""

    name: str
    written: str
    num_videos: int
    num_frames: int
    num_bytes: int
    current: bool
    difference: Difference | None
    trouble: str = ""


def history(dataset: Storage) -> list[SnapshotSummary]:
    """The snapshots of a dataset, oldest first. NotADatasetError if there is no dataset."""
    current = read_root(dataset).snapshot
    found: list[SnapshotSummary] = []
    before: Manifest | None = None
    there = snapshots(dataset)
    for name in sorted({*there, *([] if current is None else [current])}, key=int):
        try:
            manifest = open_once(dataset, name)
            written = _written(dataset, name, there.get(name, ()))
        except (MissingDataError, CorruptDataError) as error:
            # A job may remove a snapshot meanwhile.
            if name == current or has_snapshot(dataset, name):
                found.append(SnapshotSummary(name, "", 0, 0, 0, name == current, None, error.message))
            continue
        found.append(
            SnapshotSummary(
                name=name,
                written=written,
                num_videos=len(manifest.videos),
                num_frames=int(manifest.first_frames[-1]),
                num_bytes=int(manifest.shards.length.sum()),
                current=name == current,
                difference=None if before is None else _difference(before, manifest),
            )
        )
        before = manifest
    return found


def _written(dataset: Storage, name: str, files: Sequence[Stored]) -> str:
    written_by = snapshot_attributes(dataset, name).get("written_by")
    if written_by is not None:
        return str(written_by["since"])
    # Version 1 did not store it.
    changed_ns = max((stored.modified_ns for stored in files), default=0)
    return dt.datetime.fromtimestamp(changed_ns // 10**9, dt.UTC).isoformat(timespec="seconds")


def _difference(one: Manifest, other: Manifest) -> Difference:
    """What changed from one snapshot's videos to another's."""
    both = relabelled = replaced = stored_again = 0
    numbers = _numbers_of_shards(one, other)
    for block, matches in matching_rows(one.videos.id, other.videos.id):
        here = np.flatnonzero(matches >= 0)
        rows, other_rows = block[here], matches[here]
        is_same_source = one.videos.identity[rows] == other.videos.identity[other_rows]
        is_same_text = equal_lists(one.videos.attributes, rows, other.videos.attributes, other_rows)
        (shard, offset), (other_shard, other_offset) = _places(one, rows), _places(other, other_rows)
        is_same_place = (numbers[shard] == other_shard) & (offset == other_offset)
        both += len(rows)
        relabelled += int(np.count_nonzero(~is_same_text))
        replaced += int(np.count_nonzero(~is_same_source))
        stored_again += int(np.count_nonzero(is_same_source & ~is_same_place))
    return Difference(
        added=len(other.videos) - both,
        relabelled=relabelled,
        replaced=replaced,
        stored_again=stored_again,
        dropped=len(one.videos) - both,
    )


def _numbers_of_shards(one: Manifest, other: Manifest) -> Array:
    """Of each shard of one manifest the number that it has in the other; -1 if that lacks it."""
    row_of_name = {name: row for row, name in enumerate(other.shards.name.texts())}
    return np.array([row_of_name.get(name, -1) for name in one.shards.name.texts()], np.int64)


def _places(manifest: Manifest, rows: Array) -> tuple[Array, Array]:
    """The shard and the offset at which each video starts."""
    first = manifest.first_segments[rows]
    return manifest.segments.shard[first], manifest.segments.offset[first]
