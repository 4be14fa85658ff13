"""Removal of old files: snapshots that are no longer current, and shards that nothing names.

The caller holds the writer lock. The removal is safe without it too, see docs/design/manifests.md.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache, partial

from ...errors import DatasetError, UnreadableDataError, UsageError
from ...storage.interface import Storage
from ..shared_memory.host_copies import copies_in
from .in_order import in_order
from .layout import file_at, is_shard, shard_key, shard_lengths, snapshot_key, snapshots, time_there, unit_of_shard
from .parts import finished_parts, had_videos, read_part
from .root_file import read_root
from .sections import remove_old_sections, shards_of_sections
from .snapshot_files import layers_below, parts_in
from .snapshots import open_manifest, open_once

KEEP_SECONDS = 24 * 3600.0
# An unfinished unit may still run on a host that the driver no longer reaches.
_ABANDONED_SECONDS = 24 * 3600.0
# Is told the name of a shard that stays because something cannot be read that may need it, and the error.
OnKept = Callable[[str, DatasetError], object]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_duration(text: str) -> float:
    """The number of seconds that a text such as 90s, 30m, 12h, 7d, 2w or 0 stands for. UsageError for other text: a
    number alone might be meant as a number of snapshots."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)\s*([a-z]?)", text.strip().lower())
    if match is not None and not match[2] and not Fraction(match[1]):
        return 0.0
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"--keep-snapshots is {text!r}; it takes a time with its unit, such as 30m, 12h or 7d, or 0")
    return float(Fraction(match[1]) * _UNITS[match[2]])


def tidy(dataset: Storage, keep_seconds: float = KEEP_SECONDS) -> None:
    """Remove old snapshots and sections, and then the shards that no snapshot, no part and no section names."""
    remove_old_snapshots(dataset, keep_seconds)
    remove_old_sections(dataset)
    remove_stray_shards(dataset)


def remove_old_snapshots(dataset: Storage, keep_seconds: float) -> list[str]:
    """Remove the snapshots that have not been current for `keep_seconds`. Returns their names.

    A reader that has opened one of them goes on with the tables in its memory.
    """
    removed = old_snapshots(dataset, keep_seconds)
    if removed:
        # By a clock of this machine that is ahead, readers would lose them at once.
        removed = old_snapshots(dataset, keep_seconds, now=min(time.time(), time_there(dataset)))
    for snapshot in removed:
        dataset.remove(snapshot_key(snapshot))
        # Version 1 wrote folders.
        dataset.remove(f"manifest/{snapshot}")
    return removed


def old_snapshots(dataset: Storage, keep_seconds: float, now: float | None = None) -> list[str]:
    """The snapshots that have not been current for `keep_seconds`, and are no layers of others; latest first. `now` is
    in seconds since 1970, by default by the clock of this machine."""
    now = time.time() if now is None else now
    current = int(read_root(dataset).snapshot or 0)
    old: list[str] = []
    # A snapshot stops being current when the next one is written. Its own time says nothing: it may have been current
    # for years.
    replaced_at = now
    there = snapshots(dataset)
    for snapshot, files in there.items():
        changed = max(stored.modified_ns for stored in files) / 1e9
        is_later = int(snapshot) > current
        # A snapshot later than the current one is left over, or about to become current.
        since, keep = (changed, max(keep_seconds, _ABANDONED_SECONDS)) if is_later else (replaced_at, keep_seconds)
        # Without a time to keep them, clocks do not matter: that of the files may be ahead of this one.
        if int(snapshot) != current and (keep <= 0 or now - since >= keep):
            old.append(snapshot)
        elif not is_later:
            replaced_at = changed
    needed: set[str] = set()
    for snapshot, files in there.items() if old else ():
        if snapshot not in old:
            try:
                needed.update(_layers_below(dataset, snapshot, files[0].version))
            except DatasetError as error:
                # A damaged snapshot may need any earlier one, and may be repaired by copying it again; so all earlier
                # ones stay. A snapshot that never became current is of no use.
                if int(snapshot) <= current or isinstance(error, UnreadableDataError):
                    needed.update(other for other in old if int(other) < int(snapshot))
    return [snapshot for snapshot in old if snapshot not in needed]


@lru_cache(maxsize=4096)
def _layers_below(dataset: Storage, snapshot: str, _version: str) -> tuple[str, ...]:
    # A job asks after each publication for all snapshots of a day, and these never change.
    return layers_below(dataset, snapshot)


def ignore_kept(_name: str, _error: DatasetError) -> None:
    """An OnKept that does nothing."""


def remove_stray_shards(dataset: Storage, on_kept: OnKept = ignore_kept) -> list[str]:
    """Remove shards that no snapshot and no unpublished part names, and that no worker can commit any more. Returns
    their names."""
    return [name for name in stray_shards(dataset, on_kept=on_kept) if _removed(dataset, name, on_kept)]


def stray_shards(
    dataset: Storage,
    *,
    gone_snapshots: Collection[str] = (),
    gone: Collection[str] = (),
    on_kept: OnKept = ignore_kept,
) -> list[str]:
    """The shards that no snapshot and no unpublished part names, and that no worker can commit any more.

    No worker can commit a shard any more if its unit has a part with videos, because another attempt was faster or the
    videos were made again, or if the shard is a day old. `gone_snapshots` are passed over, as if they were removed
    already, and snapshots do not count as naming the shards `gone`.
    """
    # Listed before the snapshots and parts are read: a shard that comes later is never removed.
    # Other files in the folder are left alone.
    strays = {name for name in shard_lengths(dataset) if is_shard(name)}
    try:
        for named in _names(dataset, gone_snapshots):
            strays -= named - set(gone)
            if not strays:
                return []
    except DatasetError as error:
        # What cannot be read may name any of them.
        for name in sorted(strays):
            on_kept(name, error)
        return []
    return [name for name in sorted(strays) if _is_given_up(dataset, name, on_kept)]


def _names(dataset: Storage, gone_snapshots: Collection[str] = ()) -> Iterator[set[str]]:
    """Sets of the shards that each snapshot names, then of those that unpublished parts and sections name."""
    current = read_root(dataset).snapshot
    # The current snapshot comes first: as a rule it names all shards, and the others need not be read.
    for snapshot in sorted(snapshots(dataset).keys() - set(gone_snapshots), key=lambda name: (name != current, name)):
        # The next readers of this host open the current one as well.
        manifest = (
            open_manifest(dataset, snapshot, copies=copies_in(None))
            if snapshot == current
            else open_once(dataset, snapshot)
        )
        yield set(manifest.shards.name.texts())
    known = parts_in(dataset, current)
    yield _named_by(dataset, finished_parts(dataset) - known)
    yield shards_of_sections(dataset)


def _named_by(dataset: Storage, parts: Iterable[str]) -> set[str]:
    read = in_order(dataset, partial(read_part, dataset), sorted(parts))
    return {name for rows in read for name in rows.shards.name.texts()}


def _is_given_up(dataset: Storage, name: str, on_kept: OnKept) -> bool:
    try:
        stored = file_at(dataset, shard_key(name))
        if stored is not None and time.time() - stored.modified_ns / 1e9 >= _ABANDONED_SECONDS:
            return True
        return had_videos(dataset, unit_of_shard(name))
    except DatasetError as error:
        on_kept(name, error)
        return False


def _removed(dataset: Storage, name: str, on_kept: OnKept) -> bool:
    """Remove a shard, unless a part that names it has come from a worker that was thought dead. Returns whether it was
    removed.

    The shard is first taken aside, where that is possible, then the parts are read again. A part that came before is
    seen now, and the shard goes back. A part that comes later is not published, because its shard does not exist.
    """
    taken = dataset.take(shard_key(name))
    if taken is None:
        return False
    try:
        is_named = any(name in named for named in _names(dataset))
    except DatasetError as error:
        on_kept(name, error)
        is_named = True
    if is_named:
        taken.put_back()
    else:
        taken.remove()
    return not is_named
