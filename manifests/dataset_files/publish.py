"""Publishing: snapshots that are made of parts, and the switch of zarr.json to a new snapshot.

A snapshot's file name claims its number. The file is put only if absent and never replaced, so two writers cannot
both make snapshot N + 1, even if their locks fail. zarr.json is always written after the snapshot that it names. If a
writer dies between the two, the next one makes the switch. docs/design/manifests.md says why this is safe.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import DatasetBusyError, DatasetError, UnreadableDataError, UsageError
from ...storage.disk_lock import this_holder
from ...storage.interface import Storage, Stored
from ...whole_files import discard, discarding, writing
from ..layering.growth import grown
from ..merging.folding import Folding
from ..parsed_columns import derived_columns
from ..ragged import Array
from ..shared_memory.host_copies import copies_in
from ..shared_memory.scratch_arrays import ScratchArrays
from ..tables import Manifest
from ..zarr_files.zarr_small import is_small
from ..zarr_files.zarr_zip import pack_folder
from .in_order import in_order
from .layout import file_at, listed, shard_key, snapshot_key, snapshots
from .parts import finished_parts, open_part, pack
from .root_file import Root, change_root, read_root, version_to_state
from .snapshot_files import parts_in, parts_of_layers, snapshot_attributes
from .snapshots import open_layer, open_manifest, open_timelines

# Merging takes some 250 bytes for each new row of videos and GOPs.
_MOST_ROWS = 4_000_000


def publish(dataset: Storage, profile: Mapping[str, Any] | None = None, *, whole: bool = False) -> str | None:
    """Make a snapshot of all finished parts and point zarr.json to it. Returns the name of the current snapshot.

    In a large dataset the snapshot has the new rows alone, and the current one as a layer below it; with `whole` it has
    all rows. Nothing is written if the current snapshot has all parts already, and with `whole` has no layers. Of very
    many parts, such as a job leaves that could not publish, several snapshots are made, one after the other, so that
    memory is bounded.

    `profile` is that of the calling job. DatasetBusyError if another job published at the same time, UsageError
    if one gave the dataset another profile; this job's results stay in its parts.
    """
    snapshot, is_all = _publish_some(dataset, profile, whole=whole)
    while not is_all:
        snapshot, is_all = _publish_some(dataset, profile, whole=whole)
    return snapshot


def _publish_some(dataset: Storage, profile: Mapping[str, Any] | None, *, whole: bool) -> tuple[str | None, bool]:
    """Like `publish`, for as many parts as are merged at once. Returns the snapshot, and whether it has all parts."""
    # Listed before the root is read: a snapshot that comes later takes the number that this one is about to claim.
    listed_before = snapshots(dataset)
    root = catch_up(dataset, listed_before)
    if profile is not None and differing(root.profile, profile):
        raise UsageError(
            f"another job has given {dataset} other options meanwhile, so the videos of this one are left out; choose "
            "another --out",
            file=dataset.url,
        )
    parts_of = {} if root.snapshot is None else parts_of_layers(dataset, root.snapshot)
    with (
        contextlib.closing(Folding(lambda: dataset.scratch("timelines"))) as folding,
        contextlib.closing(ScratchArrays(lambda: dataset.scratch("tables"))) as scratch,
        open_timelines(dataset) as timeline_of,
    ):
        new, is_all = _taken_in(unpublished(dataset, root, set().union(*parts_of.values())), folding)
        names = tuple(parts_of)
        if not new and not (whole and len(names) > 1):
            return root.snapshot, True
        # The copies of large layers on this host are mapped, and those that stay are only searched.
        there = [open_layer(dataset, name, copies=copies_in(None), new_array=scratch.new) for name in names]
        made = grown(
            list(zip(names, there, strict=True)),
            *folding.result(),
            whole=whole,
            timeline_of=timeline_of,
            new_array=scratch.new,
        )
        stay = made.layers_that_stay
        merged_again = [part for name in names[stay:] for part in parts_of[name]]
        attributes = attributes_of_snapshot({*new, *merged_again}, root.profile)
        snapshot = next_snapshot(root, listed_before)
        write_snapshot(dataset, snapshot, made.tables, attributes, made.timeline, below=names[:stay])
    switch_to(dataset, snapshot, root.profile, len(set(new).union(*parts_of.values())))
    return snapshot, is_all


def _taken_in(parts: Iterator[tuple[str, Manifest]], folding: Folding) -> tuple[list[str], bool]:
    """Add the rows of as many parts as are merged at once. Returns the names of these, and whether they are all."""
    names, num_rows = [], 0
    for part, rows in parts:
        names.append(part)
        folding.add(rows)
        num_rows += len(rows.videos) + len(rows.gops)
        if num_rows >= _MOST_ROWS:
            return names, False
    return names, True


def unpublished(
    dataset: Storage, root: Root, published: Collection[str] | None = None
) -> Iterator[tuple[str, Manifest]]:
    """Parts that are in no snapshot yet and can be published: each one's name, and its tables with the timeline.

    A part with another profile is left out: its worker outlived the job. A part without its shards is left out: they
    were removed as stray shards before a delayed worker wrote the part. If the shards come back, so does the part.
    `published` are the parts of the root's snapshot, if they have been read.
    """
    known = parts_in(dataset, root.snapshot) if published is None else published
    parts = sorted(finished_parts(dataset).difference(known))

    def publishable(part: str) -> Manifest | None:
        found, attributes = open_part(dataset, part, in_snapshot=False)
        foreign = len(found.videos) and differing(attributes.get("profile", {}), root.profile)
        return None if foreign or not has_its_shards(dataset, found) else found

    for part, found in zip(parts, in_order(dataset, publishable, parts), strict=True):
        if found is not None:
            yield part, found


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings in which two profiles differ, of those that both have. Profiles of earlier versions have fewer."""
    return sorted(name for name in one.keys() & other.keys() if one[name] != other[name])


def has_its_shards(dataset: Storage, manifest: Manifest) -> bool:
    """Whether every shard exists. Always true in a dataset without a shards folder, or on a store without any shard:
    manifests may be copied without shards."""
    keys = [shard_key(name) for name in manifest.shards.name.texts()]
    if all(in_order(dataset, partial(file_at, dataset), keys)):
        return True
    folder = dataset.folder
    return not (any(listed(dataset, "shards")) if folder is None else (folder / "shards").is_dir())


def next_snapshot(root: Root, listed_before: Collection[str]) -> str:
    """The name of the snapshot after all that there were before the root was read."""
    return f"{max(int(root.snapshot or 0), *map(int, listed_before), 0) + 1:06d}"


def attributes_of_snapshot(parts: Collection[str], profile: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a snapshot of these parts that this process is about to write."""
    return {
        "format_version": version_to_state(profile),
        "parts": sorted(parts),
        "profile": dict(profile),
        "written_by": asdict(this_holder()),
    }


def write_snapshot(
    dataset: Storage,
    snapshot: str,
    merged: Manifest,
    attributes: dict[str, Any],
    timeline: Iterator[Array],
    *,
    below: Sequence[str] = (),
) -> None:
    """Write a snapshot with these tables over the layers `below`. DatasetBusyError if its name is taken, which means
    that another job published."""
    columns = derived_columns(merged.videos.attributes)

    def write_files(folder: Path) -> None:
        from ..zarr_files.zarr_write import NewFolder, write_manifest

        write_manifest(NewFolder(folder), merged, attributes, timeline, columns, layers=below)

    if is_small(merged, columns):
        packed = pack(merged, attributes, timeline, columns, layers=below)
        committed = dataset.put_new(snapshot_key(snapshot), packed)
    else:
        committed = _write_by_folder(dataset, snapshot, write_files)
    if not committed:
        raise _published_by_other(dataset, snapshot)


def _write_by_folder(dataset: Storage, snapshot: str, write_files: Callable[[Path], None]) -> bool:
    """Write in bounded memory; False where the snapshot's name is taken."""
    folder, file = dataset.scratch(snapshot), dataset.scratch(f"{snapshot}.zip")
    with discarding(folder), discarding(file), writing(folder):
        write_files(folder)
        pack_folder(folder, file)
        committed = dataset.put_new_file(snapshot_key(snapshot), file)
    for temporary in (folder, file):
        discard(temporary)
    return committed


def _published_by_other(dataset: Storage, snapshot: str) -> DatasetBusyError:
    who = "another job"
    with contextlib.suppress(DatasetError):
        writer = snapshot_attributes(dataset, snapshot)["written_by"]
        who = f"process {writer['pid']} on {writer['host']}"
    return DatasetBusyError(
        f"{who} is writing to {dataset} as well: it published snapshot {snapshot} first. What this job finished is "
        "kept; wait until the other job has ended, and run the same command again",
        file=dataset.url,
    )


def switch_to(dataset: Storage, snapshot: str, profile: dict[str, Any], num_parts: int) -> None:
    """Point zarr.json to a snapshot of so many parts that was just written, unless it names a later one."""
    _point(dataset, Root(profile, snapshot, num_parts=num_parts))
    # Another writer may have made this switch itself and published a later snapshot.
    catch_up(dataset)


def _point(dataset: Storage, latest: Root) -> Root:
    """Point zarr.json to a snapshot, unless it names that or a later one. Returns the root that is there then."""

    def pointed(root: Root) -> Root:
        if int(root.snapshot or 0) >= int(latest.snapshot or 0):
            return root
        return replace(latest, format_version=version_to_state(latest.profile), id_roots=root.id_roots)

    return change_root(dataset, pointed)


def catch_up(dataset: Storage, there: Mapping[str, Sequence[Stored]] | None = None) -> Root:
    """Point zarr.json to the latest snapshot, if the writer of that snapshot did not do so. Returns the root.

    `there` are the snapshots as they were listed before, if that was just done.
    """
    root = read_root(dataset)
    latest = _latest(dataset, root, snapshots(dataset) if there is None else there)
    return root if latest == root else _point(dataset, latest)


def latest_root(dataset: Storage) -> Root:
    """The root with the latest whole snapshot, which zarr.json may not name yet.

    A later snapshot that is damaged, or whose shards do not exist, came with a copy of a dataset that was growing.
    It is left alone, and its number is not used again. UnreadableDataError if the system cannot tell.
    """
    return _latest(dataset, read_root(dataset), snapshots(dataset))


def _latest(dataset: Storage, root: Root, there: Mapping[str, Sequence[Stored]]) -> Root:
    for snapshot, files in there.items():
        if int(snapshot) <= int(root.snapshot or 0):
            break
        # Version 1 wrote folders, and never used those that a dead writer left behind.
        if not any(stored.key == snapshot_key(snapshot) for stored in files):
            continue
        try:
            profile = snapshot_attributes(dataset, snapshot).get("profile", root.profile)
            if has_its_shards(dataset, open_manifest(dataset, snapshot, copies=copies_in(None))):
                num_parts = len(parts_in(dataset, snapshot))
                version = version_to_state(profile)
                return replace(root, profile=profile, snapshot=snapshot, format_version=version, num_parts=num_parts)
        except UnreadableDataError:
            # It may be whole, and what is published without it would lack its videos where their parts are gone.
            raise
        except DatasetError:
            continue
    return root
