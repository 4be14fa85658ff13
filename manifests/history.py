"""The snapshots of a dataset: what is in each, and what changed from one to the next."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import MissingDataError
from ..storage.interface import Storage, Stored
from .layout import read_root, snapshots
from .snapshot_files import snapshot_attributes
from .snapshots import open_manifest
from .tables import Manifest

# Of each id the identity of its source, its columns, and the shard and offset at which it starts.
_Videos = dict[str, tuple[int, str, tuple[str, int]]]


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
    that to the snapshot before it on disk, and None for the first."""

    name: str
    written: str
    num_videos: int
    num_frames: int
    num_bytes: int
    current: bool
    difference: Difference | None


def history(dataset: Storage) -> list[SnapshotSummary]:
    """The snapshots of a dataset, oldest first. NotADatasetError if there is no dataset."""
    current = read_root(dataset).snapshot
    found: list[SnapshotSummary] = []
    before: _Videos | None = None
    for name, files in sorted(snapshots(dataset).items(), key=lambda each: int(each[0])):
        # A job may remove a snapshot meanwhile.
        with contextlib.suppress(MissingDataError):
            manifest = open_manifest(dataset, name)
            videos = _videos(manifest)
            found.append(
                SnapshotSummary(
                    name=name,
                    written=_written(dataset, name, files),
                    num_videos=len(manifest.videos),
                    num_frames=int(manifest.first_frames[-1]),
                    num_bytes=int(manifest.shards.length.sum()),
                    current=name == current,
                    difference=None if before is None else _difference(before, videos),
                )
            )
            before = videos
    return found


def _written(dataset: Storage, name: str, files: Sequence[Stored]) -> str:
    written_by = snapshot_attributes(dataset, name).get("written_by")
    if written_by is not None:
        return str(written_by["since"])
    # Version 1 did not store it.
    changed_ns = max(stored.modified_ns for stored in files)
    return dt.datetime.fromtimestamp(changed_ns // 10**9, dt.UTC).isoformat(timespec="seconds")


def _difference(one: _Videos, other: _Videos) -> Difference:
    """What changed from one snapshot's videos to another's."""
    both = one.keys() & other.keys()
    same_source = [video_id for video_id in both if one[video_id][0] == other[video_id][0]]
    return Difference(
        added=len(other.keys() - both),
        relabelled=sum(one[video_id][1] != other[video_id][1] for video_id in both),
        replaced=len(both) - len(same_source),
        stored_again=sum(one[video_id][2] != other[video_id][2] for video_id in same_source),
        dropped=len(one.keys() - both),
    )


def _videos(manifest: Manifest) -> _Videos:
    first = manifest.first_segments[:-1]
    names = manifest.shards.name.texts()
    shards, offsets = manifest.segments.shard[first].tolist(), manifest.segments.offset[first].tolist()
    columns = zip(
        manifest.ids,
        manifest.videos.identity.tolist(),
        manifest.videos.attributes.texts(),
        shards,
        offsets,
        strict=True,
    )
    return {
        video_id: (identity, attributes, (names[shard], offset))
        for video_id, identity, attributes, shard, offset in columns
    }
