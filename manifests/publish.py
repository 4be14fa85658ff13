"""Publishing: the writer lock, snapshots that are made of parts, and the switch of zarr.json to a new snapshot.

A snapshot's file name claims its number. The file is linked and never replaced, so two writers cannot both make
snapshot N + 1, even if their locks fail. zarr.json is always written after the snapshot that it names. If a writer dies
between the two, the next one makes the switch. docs/design/manifests.md says why this is safe.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import DatasetBusyError, DatasetError
from ..whole_files import commit, commit_bytes, discard, discarding, temporary_path, writing
from . import zarr_sizes
from .label_columns import derived_columns
from .layout import (
    FORMAT_VERSION,
    LOCK_FILE,
    Root,
    open_manifest,
    open_timeline,
    read_root,
    shard_path,
    snapshot_attributes,
    snapshot_path,
    write_root,
)
from .merge import ReadRows, merge_tables, timeline_blocks
from .parts import finished_parts, open_part, pack
from .ragged import Array
from .tables import Manifest, Timeline
from .zarr_small import is_small
from .zarr_zip import pack_folder

# A younger file in .tmp may belong to a job on another host: where locks do not work, holding one proves nothing.
_STALE_SECONDS = 3600
# A process that a killed job was just starting has the job's lock until it runs its own program.
_SECONDS_TO_LET_GO = 5.0
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class Writer:
    """The process that writes to a dataset, for messages. Nothing is decided by `since`."""

    host: str
    pid: int
    since: str

    @property
    def has_ended(self) -> bool:
        """Whether it was a process of this host and is none any more."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def this_writer() -> Writer:
    """This process, now."""
    return Writer(socket.gethostname(), os.getpid(), dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))


@contextlib.contextmanager
def writer_lock(dataset: Path) -> Iterator[None]:
    """The lock of the one job that writes to a dataset. DatasetBusyError if another job holds it.

    A crash needs no cleaning up: the lock ends with its process, and the next job removes what is left in .tmp. On exit
    the folder .tmp itself is removed.
    """
    with contextlib.ExitStack() as held:
        with writing(dataset):
            folder = os.open(dataset, os.O_RDONLY)
            held.callback(os.close, folder)
            _lock(folder, dataset)
            file = os.open(dataset / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
            held.callback(os.close, file)
            _lock(file, dataset)
            before, me = _holder(dataset), this_writer()
            os.ftruncate(file, 0)
            # This write may fail on a full disk. The job's own writes report that better.
            with contextlib.suppress(OSError):
                os.pwrite(file, json.dumps(asdict(me)).encode(), 0)
        _sweep(dataset, spare_recent=before is not None and before.host != me.host)
        try:
            yield
        finally:
            # Where locks do not work, another job may have started meanwhile.
            alone = _holder(dataset) in (me, None)
            _sweep(dataset, spare_recent=not alone)
            if alone:
                os.ftruncate(file, 0)


def _lock(descriptor: int, dataset: Path) -> None:
    deadline = time.monotonic() + _SECONDS_TO_LET_GO
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(dataset)
            if holder is not None and holder.has_ended and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            who = f" (it is {holder})" if holder else ""
            raise DatasetBusyError(
                f"another job is writing to {dataset}; wait for it, or stop it and run this again{who}",
                file=str(dataset),
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return


def _holder(dataset: Path) -> Writer | None:
    """The last writer that took the lock and has not released it."""
    try:
        return Writer(**json.loads((dataset / LOCK_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _sweep(dataset: Path, *, spare_recent: bool) -> None:
    """Remove the content of .tmp; with `spare_recent` only what has not changed for an hour."""
    folder = dataset / ".tmp"
    if not spare_recent:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            if time.time() - file.stat().st_mtime > _STALE_SECONDS:
                discard(file)
        folder.rmdir()


def publish(dataset: Path, profile: Mapping[str, Any] | None = None) -> str | None:
    """Make a snapshot of all finished parts and point zarr.json to it. Returns the name of the current snapshot.

    Nothing is written if the current snapshot has all parts already. `profile` is that of the calling job.
    DatasetBusyError if another job published at the same time, or gave the dataset another profile; this job's results
    stay in its parts.
    """
    # Listed before the root is read: a snapshot that comes later takes the number that this one is about to claim.
    there = snapshots(dataset)
    root = catch_up(dataset)
    if profile is not None and _differ(root.profile, profile):
        raise DatasetBusyError(
            f"another job has given {dataset} other options meanwhile, so the videos of this one are left out; choose "
            "another --out",
            file=str(dataset),
        )
    new = unpublished(dataset, root)
    if not new:
        return root.snapshot
    manifests = list(new.values())
    # The timelines of parts are in memory already; that of the current snapshot is read in blocks.
    timelines: list[ReadRows] = [
        partial(_rows, manifest.timeline) for manifest in manifests if manifest.timeline is not None
    ]
    if root.snapshot is not None:
        manifests.append(open_manifest(dataset, root.snapshot))
        timelines.append(partial(open_timeline, dataset, root.snapshot))
    merged, runs = merge_tables(manifests, timelines)
    blocks = timeline_blocks(runs, timelines, block_rows=zarr_sizes.BLOCK_ROWS)
    attributes: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "parts": sorted(_parts(dataset, root).union(new)),
        "profile": root.profile,
        "written_by": asdict(this_writer()),
    }
    snapshot = f"{max(int(root.snapshot or 0), *map(int, there), 0) + 1:06d}"
    _write(dataset, snapshot, merged, attributes, blocks)
    _switch(dataset, snapshot, root.profile)
    return snapshot


def _rows(timeline: Timeline, start: int, stop: int) -> Array:
    return timeline.pts[start:stop]


def unpublished(dataset: Path, root: Root) -> dict[str, Manifest]:
    """Parts that are in no snapshot yet and can be published.

    A part with another profile is left out: its worker outlived the job. A part without its shards is left out: they
    were removed as stray shards before a delayed worker wrote the part. If the shards come back, so does the part.
    """
    new = {}
    for part in sorted(finished_parts(dataset) - _parts(dataset, root)):
        found, attributes = open_part(dataset, part)
        foreign = len(found.videos) and _differ(attributes.get("profile", {}), root.profile)
        if not foreign and has_its_shards(dataset, found):
            new[part] = found
    return new


def _parts(dataset: Path, root: Root) -> set[str]:
    return set() if root.snapshot is None else set(snapshot_attributes(dataset, root.snapshot)["parts"])


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two profiles differ in a setting that both have. Profiles of earlier versions have fewer settings."""
    return any(one[name] != other[name] for name in one.keys() & other.keys())


def has_its_shards(dataset: Path, manifest: Manifest) -> bool:
    """Whether every shard exists. Always true in a dataset without a shards folder: manifests may be copied without
    shards."""
    there = shard_path(dataset, "").is_dir()
    return not there or all(shard_path(dataset, name).exists() for name in manifest.shards.name.texts())


def _write(
    dataset: Path, snapshot: str, merged: Manifest, attributes: dict[str, Any], timeline: Iterator[Array]
) -> None:
    columns = derived_columns(merged.videos.attributes)

    def write_files(folder: Path) -> None:
        from .zarr_write import NewFolder, write_manifest

        write_manifest(NewFolder(folder), merged, attributes, timeline, columns)

    if is_small(merged, columns):
        packed = pack(merged, attributes, timeline, columns)
        committed = commit_bytes(dataset, snapshot_path(dataset, snapshot), packed)
    else:
        committed = _write_by_folder(dataset, snapshot, write_files)
    if not committed:
        raise _published_by_other(dataset, snapshot)


def _write_by_folder(dataset: Path, snapshot: str, write_files: Callable[[Path], None]) -> bool:
    """Write in bounded memory; False where the snapshot's name is taken."""
    final = snapshot_path(dataset, snapshot)
    folder, file = temporary_path(dataset, snapshot), temporary_path(dataset, final.name)
    with discarding(folder), discarding(file), writing(final):
        write_files(folder)
        pack_folder(folder, file)
        committed = commit(file, final)
    for temporary in (folder, file):
        discard(temporary)
    return committed


def _published_by_other(dataset: Path, snapshot: str) -> DatasetBusyError:
    who = "another job"
    with contextlib.suppress(DatasetError):
        writer = snapshot_attributes(dataset, snapshot)["written_by"]
        who = f"process {writer['pid']} on {writer['host']}"
    return DatasetBusyError(
        f"{who} is writing to {dataset} as well: it published snapshot {snapshot} first. What this job finished is "
        "kept; wait until the other job has ended, and run the same command again",
        file=str(dataset),
    )


def _switch(dataset: Path, snapshot: str, profile: dict[str, Any]) -> None:
    root = read_root(dataset)
    if int(root.snapshot or 0) < int(snapshot):
        write_root(dataset, replace(root, profile=profile, snapshot=snapshot, format_version=FORMAT_VERSION))
    # Between the read and the write, another writer may have made this switch itself and published a later snapshot.
    catch_up(dataset)


def catch_up(dataset: Path) -> Root:
    """Point zarr.json to the latest snapshot, if the writer of that snapshot did not do so. Returns the root."""
    named, root = read_root(dataset), latest_root(dataset)
    if root.snapshot != named.snapshot:
        write_root(dataset, root)
    return root


def latest_root(dataset: Path) -> Root:
    """The root with the latest whole snapshot, which zarr.json may not name yet.

    A later snapshot that cannot be read, or whose shards do not exist, came with a copy of a dataset that was growing.
    It is left alone, and its number is not used again.
    """
    root = read_root(dataset)
    for snapshot in sorted(snapshots(dataset), key=int, reverse=True):
        if int(snapshot) <= int(root.snapshot or 0):
            break
        # Version 1 wrote folders, and never used those that a dead writer left behind.
        if snapshot_path(dataset, snapshot).is_dir():
            continue
        with contextlib.suppress(DatasetError):
            profile = snapshot_attributes(dataset, snapshot).get("profile", root.profile)
            if has_its_shards(dataset, open_manifest(dataset, snapshot)):
                return replace(root, profile=profile, snapshot=snapshot, format_version=FORMAT_VERSION)
    return root


def snapshots(dataset: Path) -> set[str]:
    """The names of all snapshots on disk, current or not: decimal digits."""
    folder = dataset / "manifest"
    names = {file.name.removesuffix(".zip") for file in folder.iterdir()} if folder.is_dir() else set()
    return {name for name in names if name.isdecimal()}
