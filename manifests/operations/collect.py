"""Removal of all that a dataset no longer needs: old snapshots, and the bytes and rows of videos that are not in it.

`tidy` removes whole files whenever a job runs. This also writes shards again of which only a part is needed, and takes
what was dropped out of the parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...errors import CorruptDataError, DatasetError, MissingDataError, ShortGopError
from ...storage.interface import Storage
from ...wording import counted
from ..dataset_files.in_order import in_order
from ..dataset_files.in_place import changing
from ..dataset_files.layout import shard_key, shard_lengths, snapshots
from ..dataset_files.parts import clean_part, finished_parts, open_part
from ..dataset_files.publish import publish
from ..dataset_files.root_file import read_root
from ..dataset_files.snapshot_files import layers_below
from ..dataset_files.snapshots import open_current, open_once
from ..dataset_files.tidy import (
    OnKept,
    ignore_kept,
    old_snapshots,
    remove_old_snapshots,
    remove_stray_shards,
    stray_shards,
)
from ..merging.edits import Drop, dropped, drops_of, merged_edits
from ..shared_memory.host_copies import copies_in
from ..stacking import take, with_videos
from ..tables import Manifest
from .lost import lost_shards
from .rewrite import plan_rewrites, rewrite
from .stored_bytes import live_bytes

# Is told the names of sources that were dropped, and takes them out of what it keeps; ShortGopError if it cannot.
Forget = Callable[[Collection[str]], object]


def forget_nothing(_names: Collection[str]) -> None:
    """A Forget that does nothing."""


@dataclass(frozen=True)
class Collected:
    """What `collect` did, or would do.

    `snapshots` and `shards` are the names of those that were removed, `rewritten` those of shards that were written
    again without what is not needed, and `parts` those from which dropped rows were taken. `bytes_freed` is by how much
    the shards became smaller together; it is negative if shards were written again that earlier snapshots still need.
    `snapshot_bytes_freed` are those of the snapshots that were removed, and `bytes_kept` those of shards that only
    earlier snapshots need. `skipped` says of each shard that was left as it is, and of each part that may hold dropped
    rows, why it cannot be read, of shards that may not be needed, what cannot be read that may need them, and why what
    was dropped could not be forgotten.
    """

    snapshots: tuple[str, ...]
    shards: tuple[str, ...]
    rewritten: tuple[str, ...]
    parts: tuple[str, ...]
    bytes_freed: int
    snapshot_bytes_freed: int
    bytes_kept: int
    skipped: tuple[str, ...]
    snapshot: str


def collect(
    dataset: Storage,
    *,
    keep_snapshots_seconds: float = 0.0,
    dry_run: bool = False,
    on_shard: Callable[[], object] = lambda: None,
    forget: Forget = forget_nothing,
) -> Collected:
    """Remove the snapshots that have not been current for `keep_snapshots_seconds`, and the shards, parts of shards and
    rows of parts that then nothing needs. What stays keeps its bytes, if not always its file.

    A reader of a snapshot that is removed keeps its tables, but cannot read shards that are removed with it. With
    `dry_run` nothing is changed, and the result is what would be. `on_shard` is called after each shard that is written
    again. `forget` is called with the ids and the paths of what was dropped, if anything was, before the parts lose
    them. NotADatasetError if there is no dataset, DatasetBusyError if a job writes to it.
    """
    read_root(dataset)
    if dry_run:
        return _foreseen(dataset, keep_snapshots_seconds)
    with changing(dataset):
        publish(dataset)
        before, lengths = shard_lengths(dataset), _snapshot_lengths(dataset)
        # A disk that is full has room for what is written again once whole files are gone.
        removed, shards = _removed(dataset, keep_snapshots_seconds)
        root, manifest = open_current(dataset, copies=copies_in(None))
        rewritten: list[str] = []
        lost = lost_shards(dataset, manifest)
        skipped = _unreadable(manifest, lost)
        for plan in plan_rewrites(manifest, lost=lost):
            names = [manifest.shards.name.text(shard) for shard in plan.shards]
            try:
                rewrite(dataset, root.snapshot or "", manifest, plan, root.profile)
                rewritten += names
            except DatasetError as error:
                skipped |= dict.fromkeys(names, str(error))
            on_shard()
        # Rows that are hidden in a layer go with it.
        publish(dataset, whole=True)
        # A new snapshot may have the number of one that was left over and is removed already.
        lengths = _snapshot_lengths(dataset) | lengths
        uncertain: dict[str, DatasetError] = {}
        more = _removed(dataset, keep_snapshots_seconds, uncertain.__setitem__)
        removed, shards = removed + more[0], shards + more[1]
        # Last: the parts tell whether a shard that nothing names can still be wanted by a worker.
        parts, unread = _cleaned(dataset, manifest, skipped, forget)
        root, manifest = open_current(dataset, copies=copies_in(None))
        after = shard_lengths(dataset)
        kept = _named(dataset, snapshots(dataset)) - set(manifest.shards.name.texts())
    return Collected(
        snapshots=tuple(sorted(set(removed) - {root.snapshot}, key=int)),
        shards=tuple(sorted(shards)),
        rewritten=tuple(rewritten),
        parts=tuple(parts),
        bytes_freed=sum(before.values()) - sum(after.values()),
        snapshot_bytes_freed=sum(lengths.get(name, 0) for name in set(removed)),
        bytes_kept=sum(after.get(name, 0) for name in kept),
        skipped=(*dict.fromkeys(skipped.values()), *_told(dataset, uncertain), *unread),
        snapshot=root.snapshot or "",
    )


def _removed(dataset: Storage, keep_seconds: float, on_kept: OnKept = ignore_kept) -> tuple[list[str], list[str]]:
    """Remove whole files that nothing needs. Returns the names of the snapshots and of the shards."""
    return remove_old_snapshots(dataset, keep_seconds), remove_stray_shards(dataset, on_kept)


def _foreseen(dataset: Storage, keep_seconds: float) -> Collected:
    root, manifest = open_current(dataset, copies=copies_in(None))
    lost, there = lost_shards(dataset, manifest), _snapshot_lengths(dataset)
    plans = plan_rewrites(manifest, lost=lost)
    skipped = _unreadable(manifest, lost)
    rewritten = {manifest.shards.name.text(shard) for plan in plans for shard in plan.shards}
    old = set(old_snapshots(dataset, keep_seconds))
    # If shards are written again, or layers merged, another snapshot takes the place of the current one.
    changes = bool(plans or layers_below(dataset, root.snapshot or ""))
    replaced = set(there) if changes and keep_seconds <= 0 else set()
    gone = rewritten - _named(dataset, there.keys() - old - replaced) if replaced else set()
    uncertain: dict[str, DatasetError] = {}
    passed_over = (old | replaced) - {root.snapshot or ""}
    shards = stray_shards(dataset, gone_snapshots=passed_over, gone=gone, on_kept=uncertain.__setitem__)
    lengths, live = shard_lengths(dataset), live_bytes(manifest)
    kept = (_named(dataset, there) - set(manifest.shards.name.texts()) | rewritten) - set(shards)
    parts, unread = _cleaned(dataset, manifest, skipped, None)
    return Collected(
        snapshots=tuple(sorted(old | replaced, key=int)),
        shards=tuple(shards),
        rewritten=tuple(sorted(rewritten)),
        parts=tuple(parts),
        bytes_freed=sum(lengths.get(name, 0) for name in shards)
        - sum(int(live[list(plan.shards)].sum()) for plan in plans),
        snapshot_bytes_freed=sum(there.get(name, 0) for name in old | replaced),
        bytes_kept=sum(lengths.get(name, 0) for name in kept),
        skipped=(*dict.fromkeys(skipped.values()), *_told(dataset, uncertain), *unread),
        snapshot=root.snapshot or "",
    )


def _unreadable(manifest: Manifest, lost: Mapping[int, DatasetError]) -> dict[str, str]:
    """The shards that hold something that is not needed and cannot be read: name -> why."""
    unneeded = set(np.flatnonzero(live_bytes(manifest) < manifest.shards.length).tolist())
    return {manifest.shards.name.text(row): str(lost[row]) for row in lost.keys() & unneeded}


def _told(dataset: Storage, uncertain: Mapping[str, DatasetError]) -> list[str]:
    """Why shards stay that nothing is known to need: once for all that stay for the same reason."""
    places: dict[str, list[str]] = {}
    for name, error in uncertain.items():
        places.setdefault(str(error), []).append(dataset.place(shard_key(name)))
    more = {why: f" and {counted(len(those) - 1, 'other')}" if len(those) > 1 else "" for why, those in places.items()}
    return [f"{those[0]}{more[why]}: what may need it cannot be read: {why}" for why, those in places.items()]


def _cleaned(
    dataset: Storage, manifest: Manifest, skipped: Collection[str], forget: Forget | None
) -> tuple[list[str], list[str]]:
    """Take rows of what was dropped out of all parts, after `forget`; with None, nothing is changed. Returns the names
    of the parts that had any, and why others cannot be read, or could not be changed.

    Parts of shards that were skipped stay, because they say what the bytes in these shards are.
    """
    drops, out = drops_of(manifest.drops), dropped(manifest)
    if not drops:
        return [], []
    names = set(out)

    def look(part: str) -> bool | str:
        try:
            rows, _ = open_part(dataset, part)
        except DatasetError as error:
            return str(error)
        if without_dropped(rows, drops) is None:
            return False
        names.update(_names_of(rows, out))
        return set(rows.shards.name.texts()).isdisjoint(skipped)

    def clean(part: str) -> bool | str:
        try:
            rows, attributes = open_part(dataset, part)
            kept = without_dropped(rows, drops)
            if kept is not None:
                clean_part(dataset, part, kept, attributes)
        except DatasetError as error:
            return str(error)
        return True

    parts = sorted(finished_parts(dataset))
    found = list(in_order(dataset, look, parts))
    unread = [why for why in found if isinstance(why, str)]
    parts = [part for part, has_any in zip(parts, found, strict=True) if has_any is True]
    if forget is None:
        return parts, unread
    try:
        forget(names)
    except ShortGopError as error:
        # Without the parts, the same command would no longer know all names.
        return [], [*unread, f"{error}; until then parts keep the rows of what was dropped"]
    found = list(in_order(dataset, clean, parts))
    unread += [why for why in found if isinstance(why, str)]
    return [part for part, done in zip(parts, found, strict=True) if done is True], unread


def _names_of(rows: Manifest, ids: Collection[str]) -> Iterator[str]:
    """The names of the sources of those rows of a part that have these ids."""
    for table in (rows.videos, rows.failures):
        hit = np.array([row for row, each in enumerate(table.id.texts()) if each in ids], dtype=np.int64)
        for column in (table.source, table.path):
            # A source in a store has no path.
            yield from filter(None, column.take(hit).texts())


def without_dropped(rows: Manifest, drops: Mapping[str, Drop]) -> Manifest | None:
    """A part without the rows that these drops ended: what the next merge would leave out. None if it has none."""
    after_edit = rows.videos.after_edit.tolist()
    videos = [
        row
        for row, video_id in enumerate(rows.ids)
        if video_id not in drops or after_edit[row] >= drops[video_id].number
    ]
    failures = [row for row, source_id in enumerate(rows.failures.id.texts()) if source_id not in drops]
    edits, _ = merged_edits(rows.edits, [0] * len(rows.edits), drops)
    if (len(videos), len(failures), len(edits)) == (len(rows.videos), len(rows.failures), len(rows.edits)):
        return None
    return replace(
        with_videos(rows, np.array(videos, dtype=np.int64)),
        failures=take(rows.failures, np.array(failures, dtype=np.int64)),
        edits=edits,
    )


def _named(dataset: Storage, names: Iterable[str]) -> set[str]:
    """The shards that any of these snapshots names, as far as they can be read: a damaged one may have been made
    again."""
    named: set[str] = set()
    for snapshot in names:
        with contextlib.suppress(MissingDataError, CorruptDataError):
            named.update(open_once(dataset, snapshot).shards.name.texts())
    return named


def _snapshot_lengths(dataset: Storage) -> dict[str, int]:
    """The bytes of each snapshot, which version 1 wrote as a folder of files."""
    return {name: sum(stored.num_bytes for stored in files) for name, files in snapshots(dataset).items()}
