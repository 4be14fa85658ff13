"""A dataset's content as it was in an earlier snapshot. It is a new snapshot, and nothing that came since is lost."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...errors import CorruptDataError, MissingDataError, UsageError
from ...storage.interface import Storage
from ...wording import counted
from ..dataset_files.in_place import changing
from ..dataset_files.layout import snapshots
from ..dataset_files.parts import unit_of_content, write_part
from ..dataset_files.publish import catch_up, has_its_shards, publish
from ..dataset_files.root_file import Root, read_root
from ..dataset_files.snapshots import open_current, open_once, timeline_of
from ..matching import equal_gops, equal_lists, matching_rows
from ..merging.edits import Drop, Edit, changes_between, drops_of, drops_table, edits_table, last_number
from ..ragged import Array
from ..shared_memory.host_copies import copies_in
from ..stacking import with_videos
from ..tables import Manifest, Timeline, empty
from .recovery import is_of_snapshot, made_again


@dataclass(frozen=True)
class RolledBack:
    """What `rollback` did, or would do: ids of videos that it took out, stored as they were, or gave their earlier
    columns. `snapshot` is the current one, `to` the earlier one."""

    dropped: tuple[str, ...]
    restored: tuple[str, ...]
    relabelled: tuple[str, ...]
    snapshot: str
    to: str = ""


def rollback(dataset: Storage, to: str | int, *, dry_run: bool = False) -> RolledBack:
    """Give a dataset the videos and columns that it had in an earlier snapshot: that of this name, or so many before
    the current one. There is one new snapshot if that changes anything.

    Videos that came since are dropped, as `drop` does. A current snapshot that is lost or damaged is made again first,
    as `recover` does: it says what came since. UsageError for a snapshot that the dataset does not have,
    MissingDataError if shards of it are gone, NotADatasetError if there is no dataset, DatasetBusyError if a job writes
    to it.
    """
    read_root(dataset)
    if dry_run:
        root, manifest = open_current(dataset, copies=copies_in(None))
        name, earlier = _earlier(dataset, to, root.snapshot or "")
        return replace(_plan(manifest, earlier, root.snapshot or "").done, to=name)
    with changing(dataset):
        root, manifest = _published(dataset)
        snapshot, earlier = _earlier(dataset, to, root.snapshot or "")
        plan = _plan(manifest, earlier, root.snapshot or "")
        done = plan.done
        if done.dropped or done.restored or done.relabelled:
            pts = timeline_of(dataset, snapshot, earlier, plan.restored)
            part = replace(plan.part, timeline=Timeline(pts=pts))
            if not has_its_shards(dataset, part):
                raise MissingDataError(
                    f"shards of snapshot {snapshot} of {dataset} are gone, so its videos cannot come back; prepare "
                    "their sources again",
                    file=dataset.url,
                )
            unit = unit_of_content((snapshot, root.snapshot, done.dropped, done.restored, done.relabelled))
            write_part(dataset, unit, part, root.profile)
            publish(dataset)
        return replace(done, snapshot=read_root(dataset).snapshot or "", to=snapshot)


def _published(dataset: Storage) -> tuple[Root, Manifest]:
    """The current snapshot, with all parts. It is made again if it is lost or damaged."""
    try:
        publish(dataset)
        return open_current(dataset, copies=copies_in(None))
    except (MissingDataError, CorruptDataError) as error:
        # It can also be an error of a part that is to be published.
        if not is_of_snapshot(dataset, error.file):
            raise
    listed_before = snapshots(dataset)
    made_again(dataset, catch_up(dataset, listed_before), listed_before)
    return open_current(dataset, copies=copies_in(None))


def _earlier(dataset: Storage, to: str | int, current: str) -> tuple[str, Manifest]:
    """The snapshot that is meant: its name and its tables. Of those before the current one, the damaged ones do not
    count: it may have been made again in the place of one of them."""
    there = list(snapshots(dataset))
    if isinstance(to, str):
        if to not in there:
            raise UsageError(f"{dataset} has no snapshot {to!r}; it has {', '.join(reversed(there))}", file=dataset.url)
        return to, open_once(dataset, to)
    count = 0
    for name in (name for name in there if int(name) < int(current)):
        with contextlib.suppress(MissingDataError, CorruptDataError):
            found = open_once(dataset, name)
            count += 1
            if count == to:
                return name, found
    if not count:
        raise UsageError(
            f"{dataset} has no snapshot before the current one, {current}; `shortgop gc` removes earlier ones, "
            "and jobs do after a day, unless --keep-snapshots keeps them longer",
            file=dataset.url,
        )
    raise UsageError(
        f"{dataset} has {counted(count, 'snapshot')} before the current one, {current}, and {to} back is none of them; "
        "`shortgop snapshots` shows all",
        file=dataset.url,
    )


@dataclass(frozen=True, eq=False)
class _Plan:
    """What to do, the part that does it, without a timeline, and the rows of the earlier snapshot that it stores."""

    done: RolledBack
    part: Manifest
    restored: Array


def _plan(now: Manifest, earlier: Manifest, snapshot: str) -> _Plan:
    number = last_number(now) + 1
    gone = drops_of(now.drops)
    stays = np.zeros(len(now.videos), dtype=bool)
    # Rows to store again, and the greatest revision that each one's id has now.
    restored, revisions = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    edits: list[Edit] = []
    for block, matches in matching_rows(earlier.videos.id, now.videos.id):
        is_there = matches >= 0
        here = np.flatnonzero(is_there)
        rows, rows_now = block[here], matches[here]
        stays[rows_now] = True
        # The same source and the same bytes, wherever these lie.
        is_same = (now.videos.identity[rows_now] == earlier.videos.identity[rows]) & equal_gops(
            now, rows_now, earlier, rows
        )
        differs = is_same & ~equal_lists(now.videos.attributes, rows_now, earlier.videos.attributes, rows)
        for row, row_now in zip(rows[differs].tolist(), rows_now[differs].tolist(), strict=True):
            have = json.loads(now.videos.attributes.text(row_now) or "{}")
            wanted = json.loads(earlier.videos.attributes.text(row) or "{}")
            to_set, to_remove = changes_between(have, wanted)
            if to_set or to_remove:
                edits.append(Edit(earlier.videos.id.text(row), number, to_set, to_remove))
        again = ~is_there
        again[here[~is_same]] = True
        restored.append(block[again])
        revisions.append(np.where(is_there, now.videos.revision[matches] if len(now.videos) else 0, 0)[again])
    restored_rows = np.concatenate(restored)
    dropped = _drops(now, np.flatnonzero(~stays), number)
    rows_again = _stored_again(earlier, restored_rows, np.concatenate(revisions), gone, number)
    part = replace(
        rows_again, failures=empty().failures, edits=edits_table(edits), drops=drops_table(dropped), timeline=None
    )
    done = RolledBack(tuple(dropped), tuple(rows_again.ids), tuple(edit.id for edit in edits), snapshot)
    return _Plan(done, part, restored_rows)


def _drops(manifest: Manifest, rows: Array, number: int) -> dict[str, Drop]:
    """The drops that take these videos out."""
    ids = manifest.videos.id.take(rows).texts()
    revisions = manifest.videos.revision[rows].tolist()
    return {video_id: Drop(number, revision) for video_id, revision in zip(ids, revisions, strict=True)}


def _stored_again(earlier: Manifest, rows: Array, revisions: Array, gone: Mapping[str, Drop], number: int) -> Manifest:
    """These videos of the earlier snapshot, each with a revision above those in `revisions`, and above that of a drop
    of it."""
    again = with_videos(earlier, rows)
    last = np.maximum(again.videos.revision, revisions)
    if gone:
        of_drops = [gone[video_id].revision if video_id in gone else 0 for video_id in again.ids]
        last = np.maximum(last, np.array(of_drops, np.int64))
    videos = replace(
        again.videos,
        revision=(last + 1).astype("<i4"),
        after_edit=np.full(len(again.videos), number, dtype="<i8"),
    )
    return replace(again, videos=videos)
