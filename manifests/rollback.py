"""A dataset's content as it was in an earlier snapshot. It is a new snapshot, and nothing that came since is lost."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

import numpy as np

from ..errors import MissingDataError, UsageError
from ..storage.interface import Storage
from .edits import Drop, Edit, drops_of, drops_table, edits_table, last_number, to_json
from .host_copies import copies_in
from .layout import read_root, snapshots
from .parts import write_part
from .publish import has_its_shards, publish
from .ragged import Array
from .snapshots import open_current, open_manifest, timeline_of
from .stacking import with_videos
from .tables import Manifest, Timeline, empty


@dataclass(frozen=True)
class RolledBack:
    """What `rollback` did, or would do: ids of videos that it took out, stored as they were, or gave their earlier
    columns. `snapshot` is the current one."""

    dropped: tuple[str, ...]
    restored: tuple[str, ...]
    relabelled: tuple[str, ...]
    snapshot: str


def rollback(dataset: Storage, snapshot: str, *, dry_run: bool = False) -> RolledBack:
    """Give a dataset the videos and columns that it had in an earlier `snapshot`. There is one new snapshot if that
    changes anything.

    Videos that came since are dropped, as `drop` does. UsageError for a snapshot that the dataset does not have,
    MissingDataError if shards of it are gone, NotADatasetError if there is no dataset, DatasetBusyError if a job writes
    to it.
    """
    read_root(dataset)
    if dry_run:
        root, manifest = open_current(dataset, copies=copies_in(None))
        return _plan(manifest, _earlier(dataset, snapshot), root.snapshot or "")[0]
    with dataset.lock():
        publish(dataset)
        root, manifest = open_current(dataset, copies=copies_in(None))
        earlier = _earlier(dataset, snapshot)
        done, part = _plan(manifest, earlier, root.snapshot or "")
        if done.dropped or done.restored or done.relabelled:
            restored = [earlier.row_of(video_id) for video_id in done.restored]
            part = replace(part, timeline=Timeline(pts=timeline_of(dataset, snapshot, earlier, restored)))
            if not has_its_shards(dataset, part):
                raise MissingDataError(
                    f"shards of snapshot {snapshot} of {dataset} are gone, so its videos cannot come back; prepare "
                    "their sources again",
                    file=dataset.url,
                )
            text = repr((snapshot, root.snapshot, done.dropped, done.restored, done.relabelled))
            unit = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
            write_part(dataset, unit, part, root.profile)
            publish(dataset)
        return replace(done, snapshot=read_root(dataset).snapshot or "")


def _earlier(dataset: Storage, snapshot: str) -> Manifest:
    there = sorted(snapshots(dataset), key=int)
    if snapshot not in there:
        raise UsageError(f"{dataset} has no snapshot {snapshot!r}; it has {', '.join(there)}", file=dataset.url)
    return open_manifest(dataset, snapshot)


def _plan(now: Manifest, earlier: Manifest, snapshot: str) -> tuple[RolledBack, Manifest]:
    """What to do, and the part that does it, without a timeline."""
    number = last_number(now) + 1
    gone = drops_of(now.drops)
    # All videos of both are compared, so dicts of them are the fastest.
    revisions = dict(zip(now.ids, now.videos.revision.tolist(), strict=True))
    before = set(earlier.ids)
    dropped = {video_id: Drop(number, revision) for video_id, revision in revisions.items() if video_id not in before}
    row_of = {video_id: row for row, video_id in enumerate(now.ids)}
    restored, edits = [], []
    for row, video_id in enumerate(earlier.ids):
        row_now = row_of.get(video_id)
        if row_now is None or not _same_frames(now, row_now, earlier, row):
            restored.append(row)
            continue
        texts = now.videos.attributes.text(row_now), earlier.videos.attributes.text(row)
        edit = _edit(video_id, number, *texts)
        if edit is not None:
            edits.append(edit)
    rows = with_videos(
        replace(earlier, failures=empty().failures, edits=edits_table(edits), drops=drops_table(dropped)),
        np.array(restored, dtype=np.int64),
    )
    last = [
        max(revisions.get(video_id, 0), gone[video_id].revision if video_id in gone else 0, int(revision))
        for video_id, revision in zip(rows.ids, rows.videos.revision.tolist(), strict=True)
    ]
    videos = replace(
        rows.videos,
        revision=np.array(last, dtype="<i4") + np.int32(1),
        after_edit=np.full(len(rows.videos), number, dtype="<i8"),
    )
    done = RolledBack(tuple(dropped), tuple(rows.ids), tuple(edit.id for edit in edits), snapshot)
    return done, replace(rows, videos=videos)


def _same_frames(one: Manifest, row: int, other: Manifest, other_row: int) -> bool:
    """Whether a video has the same source and the same bytes in both, wherever these lie."""
    if one.videos.identity[row] != other.videos.identity[other_row]:
        return False
    return np.array_equal(_checksums(one, row), _checksums(other, other_row))


def _checksums(manifest: Manifest, row: int) -> Array:
    return manifest.gops.crc32[int(manifest.first_gops[row]) : int(manifest.first_gops[row + 1])]


def _edit(video_id: str, number: int, now: str, earlier: str) -> Edit | None:
    """The edit that turns the present attributes into the earlier ones; None if they are the same."""
    have, want = json.loads(now or "{}"), json.loads(earlier or "{}")
    new = {name: value for name, value in want.items() if name not in have or to_json(have[name]) != to_json(value)}
    gone = [name for name in have if name not in want]
    return Edit(video_id, number, new, gone) if new or gone else None
