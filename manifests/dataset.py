"""A dataset on disk: which file is where, how one is committed, and how one is opened.

    zarr.json             the root; its attributes name the format version, the profile and the current snapshot
    manifest/<snapshot>/  immutable tables of everything up to some moment
    parts/<unit>.zip      the tables of one unit of work
    shards/<unit>-<n>.shard
    .tmp/                 what is being written; never read, removed when a job ends or the next one starts

Whatever a reader can see was written under .tmp, flushed and renamed. The one file that is ever replaced is
zarr.json, in one rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zarr.storage import LocalStore, ZipStore

from .errors import (
    CorruptDataError,
    DatasetBusyError,
    FormatVersionError,
    MissingDataError,
    NotADatasetError,
    OutputError,
    ShortGopError,
)
from .merge import merge
from .ragged import Array
from .snapshots import read_attributes, read_manifest, read_timeline, write_manifest
from .tables import Manifest, empty

FORMAT_VERSION = 1
_ROOT_FILE = "zarr.json"


@dataclass(frozen=True)
class Root:
    """What zarr.json says. `snapshot` is None until the first results are in."""

    profile: dict[str, Any]
    snapshot: str | None


def shard_path(dataset: Path, name: str) -> Path:
    return dataset / "shards" / name


def part_path(dataset: Path, unit: str) -> Path:
    return dataset / "parts" / f"{unit}.zip"


def snapshot_path(dataset: Path, snapshot: str) -> Path:
    return dataset / "manifest" / snapshot


def temporary_path(dataset: Path, name: str) -> Path:
    """A new path below .tmp, on the same file system as where it will be renamed to."""
    folder = dataset / ".tmp"
    with writing(folder):
        folder.mkdir(exist_ok=True)
    return folder / f"{name}.{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals into an OutputError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space and run the same command again: what is finished is kept",
            errno.EDQUOT: "raise the quota and run the same command again: what is finished is kept",
            errno.EACCES: "give yourself permission to write there, or choose another --out",
            errno.EROFS: "the file system is read-only; choose another --out",
            errno.ENOTDIR: "a part of that path is a file; choose another --out",
            errno.EEXIST: "there is a file where a folder is needed; choose another --out",
        }
        remedy = remedies.get(error.errno or 0, "run the same command again once that is mended")
        raise OutputError(f"cannot write {path}: {error.strerror or error}; {remedy}", file=str(path)) from error


def commit(temporary: Path, final: Path) -> None:
    """Make a finished file visible: flush it, rename it into place, flush the folder."""
    with writing(final):
        _flush(temporary)
        final.parent.mkdir(exist_ok=True)
        os.replace(temporary, final)
        _flush(final.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(dataset: Path, profile: dict[str, Any]) -> Root:
    """Make an empty dataset. The folder may exist if there is nothing in it."""
    with writing(dataset):
        if dataset.exists() and not dataset.is_dir():
            raise OutputError(f"{dataset} is a file; --out wants a folder", file=str(dataset))
        if dataset.is_dir() and any(entry.name != ".tmp" for entry in dataset.iterdir()):
            raise OutputError(
                f"{dataset} holds something else than a dataset; choose an empty or new folder", file=str(dataset)
            )
        dataset.mkdir(parents=True, exist_ok=True)
    root = Root(profile=profile, snapshot=None)
    _write_root(dataset, root)
    return root


def _write_root(dataset: Path, root: Root) -> None:
    text = json.dumps(
        {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {
                "shortgop": {
                    "format_version": FORMAT_VERSION,
                    "profile": root.profile,
                    "snapshot": root.snapshot,
                }
            },
        },
        indent=2,
    )
    temporary = temporary_path(dataset, _ROOT_FILE)
    with writing(dataset / _ROOT_FILE):
        temporary.write_text(text + "\n")
    commit(temporary, dataset / _ROOT_FILE)


def is_dataset(dataset: Path) -> bool:
    return (dataset / _ROOT_FILE).is_file()


def read_root(dataset: Path) -> Root:
    """Read zarr.json; NotADatasetError, FormatVersionError or CorruptDataError when it is not what it should be."""
    file = dataset / _ROOT_FILE
    try:
        text = file.read_text()
    except FileNotFoundError:
        what = "holds no dataset" if dataset.is_dir() else "does not exist" if not dataset.exists() else "is a file"
        raise NotADatasetError(
            f"{dataset} {what}; give the folder that `shortgop prep --out` was given", file=str(file)
        ) from None
    except OSError as error:
        raise NotADatasetError(f"cannot read {file}: {error.strerror or error}", file=str(file)) from error
    try:
        attributes = json.loads(text)["attributes"]["shortgop"]
        version, profile, snapshot = attributes["format_version"], attributes["profile"], attributes["snapshot"]
    except (ValueError, KeyError, TypeError):
        raise NotADatasetError(
            f"{file} is not the root of a shortgop dataset; give the folder that `shortgop prep --out` was given",
            file=str(file),
        ) from None
    if version != FORMAT_VERSION:
        raise FormatVersionError(
            f"{dataset} has format version {version!r}, this shortgop reads version {FORMAT_VERSION}; "
            f"{'upgrade shortgop' if isinstance(version, int) and version > FORMAT_VERSION else 'prepare it again'}",
            file=str(file),
        )
    return Root(profile=profile, snapshot=snapshot)


def open_manifest(dataset: Path, snapshot: str, *, timeline: bool = False) -> Manifest:
    """The tables of one snapshot. MissingDataError or CorruptDataError names the file that is wrong."""
    folder = snapshot_path(dataset, snapshot)
    remedy = "restore it from a copy, or run `shortgop prep` on the same sources and a new --out"
    if not folder.is_dir():
        raise MissingDataError(f"the manifest {folder} is missing; {remedy}", file=str(folder))
    try:
        return read_manifest(LocalStore(folder, read_only=True), timeline=timeline)
    except CorruptDataError as error:
        raise CorruptDataError(f"{folder}: {error.message}; {remedy}", file=str(folder)) from error


def open_current(dataset: Path) -> tuple[Root, Manifest]:
    """The root and the tables of the current snapshot, without the timeline; NotADatasetError before the first."""
    root = read_root(dataset)
    if root.snapshot is None:
        raise NotADatasetError(
            f"{dataset} has no snapshot yet: its job is running, or ended before its first results; run `shortgop prep` "
            "on it again",
            file=str(dataset),
        )
    return root, open_manifest(dataset, root.snapshot)


def open_timeline(dataset: Path, snapshot: str, start: int, stop: int) -> Array:
    """Rows [start, stop) of a snapshot's timeline."""
    folder = snapshot_path(dataset, snapshot)
    try:
        return read_timeline(LocalStore(folder, read_only=True), start, stop)
    except CorruptDataError as error:
        raise CorruptDataError(f"{folder}: {error.message}", file=str(folder)) from error


def check_shard_lengths(dataset: Path, manifest: Manifest) -> None:
    """Every shard must be there and as long as its row says; only file metadata is read."""
    for row, name in enumerate(manifest.shards.name.texts()):
        expected = int(manifest.shards.length[row])
        file = shard_path(dataset, name)
        try:
            actual = file.stat().st_size
        except FileNotFoundError:
            raise MissingDataError(
                f"{file} is missing; copy it back to the dataset, or prepare its videos again in a new one",
                file=str(file),
            ) from None
        if actual != expected:
            raise MissingDataError(
                f"{file} has {actual} bytes, the manifest says {expected}; it was cut or changed after it was "
                "written: copy it to the dataset again",
                file=str(file),
            )


def write_part(dataset: Path, unit: str, manifest: Manifest) -> None:
    """Commit what a unit found; from here on the unit is done. Its shards must be in place."""
    temporary = temporary_path(dataset, f"{unit}.zip")
    with writing(part_path(dataset, unit)):
        store = ZipStore(temporary, mode="w")
        try:
            write_manifest(store, manifest, {"format_version": FORMAT_VERSION, "unit": unit})
        finally:
            store.close()
    commit(temporary, part_path(dataset, unit))


def read_part(dataset: Path, unit: str) -> Manifest:
    file = part_path(dataset, unit)
    remedy = "remove it and run the same `shortgop prep` again to redo that unit"
    try:
        store = ZipStore(file, mode="r")
        try:
            return read_manifest(store, timeline=True)
        finally:
            store.close()
    except (CorruptDataError, OSError, ValueError) as error:
        message = error.message if isinstance(error, ShortGopError) else str(error)
        raise CorruptDataError(f"{file}: {message}; {remedy}", file=str(file)) from error


def finished_units(dataset: Path) -> set[str]:
    """Units whose part is in place."""
    folder = dataset / "parts"
    return {file.stem for file in folder.glob("*.zip")} if folder.is_dir() else set()


def snapshot_units(dataset: Path, snapshot: str | None) -> set[str]:
    """Units whose rows are in the snapshot."""
    if snapshot is None:
        return set()
    return set(read_attributes(LocalStore(snapshot_path(dataset, snapshot), read_only=True))["units"])


def current_manifest(dataset: Path) -> Manifest:
    """All tables of the current snapshot, timeline included; an empty manifest before the first one."""
    snapshot = read_root(dataset).snapshot
    return empty() if snapshot is None else open_manifest(dataset, snapshot, timeline=True)


def publish(dataset: Path, retried: set[str] = frozenset()) -> str | None:  # type: ignore[assignment]
    """Make a snapshot of all finished units and point zarr.json to it; returns the current snapshot.

    Nothing is written when it would say the same as the current one. `retried` are units whose part was written
    again: units of which every source failed are tried anew by each job.
    """
    root = read_root(dataset)
    known = snapshot_units(dataset, root.snapshot)
    finished = finished_units(dataset)
    new = sorted((finished - known) | (retried & finished))
    if not new:
        return root.snapshot
    before = current_manifest(dataset)
    # The part of a retried unit comes in beside its old rows; merging keeps the later attempt.
    after = merge([before, *(read_part(dataset, unit) for unit in new)])
    if not finished - known and _reasons(before) == _reasons(after):
        return root.snapshot
    snapshot = f"{int(root.snapshot or 0) + 1:06d}"
    temporary = temporary_path(dataset, snapshot)
    with writing(snapshot_path(dataset, snapshot)):
        write_manifest(
            LocalStore(temporary), after, {"format_version": FORMAT_VERSION, "units": sorted(known | finished)}
        )
        for file in temporary.rglob("*"):
            _flush(file)
        # Left by a job that died between the rename and the switch of zarr.json; nobody has ever read it.
        shutil.rmtree(snapshot_path(dataset, snapshot), ignore_errors=True)
    commit(temporary, snapshot_path(dataset, snapshot))
    _write_root(dataset, Root(profile=root.profile, snapshot=snapshot))
    return snapshot


def _reasons(manifest: Manifest) -> list[tuple[str, str]]:
    return list(zip(manifest.failures.id.texts(), manifest.failures.reason.texts(), strict=True))


@contextlib.contextmanager
def writer_lock(dataset: Path) -> Iterator[None]:
    """Held by the one job that writes to a dataset; DatasetBusyError when another holds it.

    The lock is on the folder itself and dies with the process, so nothing has to be cleaned up after a crash. What a
    dead job left in .tmp is removed on the way in, and the folder on the way out.
    """
    descriptor = os.open(dataset, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise DatasetBusyError(
                f"another job is writing to {dataset}; wait for it, or stop it and run this again", file=str(dataset)
            ) from None
        shutil.rmtree(dataset / ".tmp", ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(dataset / ".tmp", ignore_errors=True)
    finally:
        os.close(descriptor)
