"""Videos that are taken out of a dataset. Their bytes go with `collect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...storage.interface import Storage
from ..dataset_files.in_place import changing
from ..dataset_files.parts import unit_of_content, write_part
from ..dataset_files.publish import publish
from ..dataset_files.root_file import read_root
from ..dataset_files.snapshots import open_current
from ..equal_contents import rows_of_identities
from ..id_patterns import meant_ids
from ..merging.edits import Drop, drops_table, last_number
from ..near_ids import near_ids
from ..row_of_id import RowOfId
from ..shared_memory.host_copies import copies_in
from ..stacking import with_videos
from ..tables import Manifest, empty
from .stored_bytes import segment_bytes


@dataclass(frozen=True)
class Dropped:
    """What `drop` did, or would do: the ids that it took out, those that were out already, and those that the dataset
    never had. `num_frames` and `num_bytes` are those of the videos that it took out, `num_failed` counts the ids of
    sources that could not be prepared; `snapshot` is the current one. `same_content` are the ids of videos that stay
    and have the content of one that goes, `near` those that look like the first one that the dataset never had."""

    ids: tuple[str, ...]
    already: tuple[str, ...]
    unknown: tuple[str, ...]
    num_frames: int
    num_bytes: int
    snapshot: str
    same_content: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    num_failed: int = 0


def drop(dataset: Storage, ids: Sequence[str] = (), *, patterns: Sequence[str] = (), dry_run: bool = False) -> Dropped:
    """Take videos out of the next snapshot, and leave them out when their sources are prepared again.

    An id may also be that of a source that could not be prepared. `patterns` stand for the ids that fit them. Ids that
    the dataset does not have are returned, and so are patterns that none fits. There is one new snapshot if anything is
    taken out. NotADatasetError if there is no dataset, DatasetBusyError if a job writes to it.
    """
    read_root(dataset)
    if dry_run:
        root, manifest = open_current(dataset, copies=copies_in(None))
        ids = [*ids, *meant_ids([manifest], patterns)]
        return _result(manifest, ids, plan_drops(manifest, ids), root.snapshot or "")
    with changing(dataset):
        publish(dataset)
        root, manifest = open_current(dataset, copies=copies_in(None))
        ids = [*ids, *meant_ids([manifest], patterns)]
        drops = plan_drops(manifest, ids)
        snapshot = root.snapshot
        if drops:
            write_part(dataset, unit_of_content(sorted(drops.items())), replace(empty(), drops=drops_table(drops)))
            snapshot = publish(dataset)
    return _result(manifest, ids, drops, snapshot or "")


def plan_drops(manifest: Manifest, ids: Sequence[str]) -> dict[str, Drop]:
    """The drops that take these ids out. Ids that are neither a video nor a failure of the manifest are passed over."""
    number = last_number(manifest) + 1
    revisions = dict.fromkeys(RowOfId(manifest.failures.id).of(ids), 0)
    revisions |= {video_id: int(manifest.videos.revision[row]) for video_id, row in manifest.row_of_id.of(ids).items()}
    return {video_id: Drop(number, revisions[video_id]) for video_id in ids if video_id in revisions}


def _result(manifest: Manifest, ids: Sequence[str], drops: Mapping[str, Drop], snapshot: str) -> Dropped:
    rows = np.array(list(manifest.row_of_id.of(drops).values()), dtype=np.int64)
    identities = manifest.videos.identity
    same = rows_of_identities(identities, identities[rows])
    rest = [video_id for video_id in dict.fromkeys(ids) if video_id not in drops]
    before = RowOfId(manifest.drops.id).of(rest)
    unknown = tuple(video_id for video_id in rest if video_id not in before)
    return Dropped(
        ids=tuple(drops),
        already=tuple(video_id for video_id in rest if video_id in before),
        unknown=unknown,
        near=tuple(near_ids(manifest.videos.id, unknown[0])) if unknown else (),
        num_failed=len(drops) - len(rows),
        num_frames=int(manifest.videos.num_frames[rows].sum()),
        num_bytes=int(segment_bytes(with_videos(manifest, rows)).sum()),
        snapshot=snapshot,
        same_content=tuple(manifest.videos.id.text(row) for row in np.setdiff1d(same, rows).tolist()),
    )
