"""A dataset on disk: which file is where, how one is committed, and how one is opened.

    zarr.json             the root; its attributes name the format version, the profile and the snapshot
    manifest/<snapshot>/  immutable tables of everything up to some moment
    parts/<part>.zip      the tables of one unit of work
    shards/<name>.shard   segments back to back
    .tmp/                 what is being written; never read, removed when a job ends or the next one starts

The one file that is ever replaced is zarr.json.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .commits import commit, commit_bytes, discarding, temporary_path, writing
from .errors import (
    CorruptDataError,
    DatasetBusyError,
    DatasetError,
    FormatVersionError,
    MissingDataError,
    NotADatasetError,
    OutputError,
    UnreadableDataError,
)
from .merge import merge_tables
from .parts import pack, unpack
from .ragged import Array
from .snapshots import READABLE_VERSIONS, read_attributes, read_failures, read_manifest, read_timeline
from .tables import TABLE_TYPES, Failures, Manifest, Table, Timeline, empty
from .timelines import ReadRows, timeline_blocks
from .unread import not_read

FORMAT_VERSION = 2
_ROOT_FILE = "zarr.json"


@dataclass(frozen=True)
class Root:
    """What zarr.json says. `snapshot` is None until the first results are in."""

    profile: dict[str, Any]
    snapshot: str | None


def shard_path(dataset: Path, name: str) -> Path:
    return dataset / "shards" / name


def part_path(dataset: Path, part: str) -> Path:
    return dataset / "parts" / f"{part}.zip"


def snapshot_path(dataset: Path, snapshot: str) -> Path:
    return dataset / "manifest" / snapshot


def create(dataset: Path, profile: dict[str, Any]) -> Root:
    """Make an empty dataset. The folder may exist if there is nothing in it."""
    with writing(dataset):
        if dataset.exists() and not dataset.is_dir():
            raise OutputError(f"{dataset} is a file; --out wants a folder", file=str(dataset))
        if dataset.is_dir() and any(entry.name != ".tmp" for entry in dataset.iterdir()):
            raise OutputError(
                f"{dataset} holds something else than a dataset; choose an empty or new folder",
                file=str(dataset),
            )
        dataset.mkdir(parents=True, exist_ok=True)
    root = Root(profile=profile, snapshot=None)
    _write_root(dataset, root)
    return root


def set_profile(dataset: Path, profile: dict[str, Any]) -> None:
    """Give another profile to a dataset that has no videos yet. The caller holds the writer lock."""
    root = read_root(dataset)
    if root.profile != profile:
        _write_root(dataset, Root(profile=profile, snapshot=root.snapshot))


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
    commit_bytes(dataset, dataset / _ROOT_FILE, f"{text}\n".encode())


def is_dataset(dataset: Path) -> bool:
    try:
        return (dataset / _ROOT_FILE).is_file()
    except OSError as error:
        raise not_read(str(dataset / _ROOT_FILE), error) from error


def read_root(dataset: Path) -> Root:
    """Read zarr.json; NotADatasetError, FormatVersionError or CorruptDataError when it is not as it should be."""
    file = dataset / _ROOT_FILE
    remedy = "give the folder that `shortgop prep --out` was given"
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        what = "does not exist" if not dataset.exists() else "is a file" if dataset.is_file() else "holds no dataset"
        raise NotADatasetError(f"{dataset} {what}; {remedy}", file=str(file)) from None
    except OSError as error:
        raise not_read(str(file), error) from error
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CorruptDataError(f"{file} is damaged ({error}); copy it to the dataset again", file=str(file)) from None
    try:
        attributes = document["attributes"]["shortgop"]
        version = attributes["format_version"]
    except (KeyError, TypeError):
        raise NotADatasetError(f"{file} is not the root of a shortgop dataset; {remedy}", file=str(file)) from None
    if version is True or version not in READABLE_VERSIONS:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        raise FormatVersionError(
            f"{dataset} has format version {version!r}, this shortgop reads versions "
            f"{' and '.join(map(str, READABLE_VERSIONS))}; "
            f"{'upgrade shortgop' if newer else 'prepare it again'}",
            file=str(file),
        )
    profile, snapshot = attributes.get("profile"), attributes.get("snapshot")
    named = snapshot is None or (isinstance(snapshot, str) and snapshot.isdecimal())
    if not isinstance(profile, dict) or not named:
        raise CorruptDataError(f"{file} is damaged; copy it to the dataset again", file=str(file))
    return Root(profile=profile, snapshot=snapshot)


def open_manifest(dataset: Path, snapshot: str, *, timeline: bool = False) -> Manifest:
    """The tables of one snapshot. MissingDataError or CorruptDataError names the file that is wrong."""
    with _naming(snapshot_path(dataset, snapshot)) as folder:
        return read_manifest(partial(_open, folder), timeline=timeline)


def open_current(dataset: Path) -> tuple[Root, Manifest]:
    """The root and the tables of the current snapshot, without the timeline; NotADatasetError before the first."""
    root = read_root(dataset)
    if root.snapshot is None:
        raise NotADatasetError(
            f"{dataset} has no snapshot yet: its job is running, or ended before its first results; "
            "run `shortgop prep` on it again",
            file=str(dataset),
        )
    return root, open_manifest(dataset, root.snapshot)


def current_manifest(dataset: Path) -> Manifest:
    """All tables of the current snapshot, timeline included; an empty manifest before the first one."""
    snapshot = read_root(dataset).snapshot
    return empty() if snapshot is None else open_manifest(dataset, snapshot, timeline=True)


def open_failures(dataset: Path, snapshot: str) -> Failures:
    """The table of failures of one snapshot, alone."""
    with _naming(snapshot_path(dataset, snapshot)) as folder:
        return read_failures(partial(_open, folder))


def open_timeline(dataset: Path, snapshot: str, start: int, stop: int) -> Array:
    """Rows [start, stop) of a snapshot's timeline."""
    with _naming(snapshot_path(dataset, snapshot)) as folder:
        return read_timeline(partial(_open, folder), start, stop)


def _open(folder: Path, key: str) -> BinaryIO:
    return (folder / key).open("rb")


@contextlib.contextmanager
def _naming(folder: Path) -> Iterator[Path]:
    """Completes errors about a snapshot: the path of the file, and what to do."""
    remedy = "copy it to the dataset again, or run `shortgop prep` on the same sources and a new --out"
    try:
        there = folder.is_dir()
    except OSError as error:
        raise not_read(str(folder), error) from error
    if not there:
        raise MissingDataError(f"the manifest {folder} is missing; {remedy}", file=str(folder))
    try:
        yield folder
    except UnreadableDataError as error:
        file = folder / error.file if error.file else folder
        raise UnreadableDataError(f"{folder}: {error.message}", file=str(file)) from error
    except DatasetError as error:
        file = folder / error.file if error.file else folder
        raise type(error)(f"{folder}: {error.message}; {remedy}", file=str(file)) from error


def check_shard_lengths(dataset: Path, manifest: Manifest) -> None:
    """Every shard must be there and as long as its row says; only file metadata is read."""
    for error in lost_shards(dataset, manifest).values():
        raise error


def lost_shards(dataset: Path, manifest: Manifest) -> dict[int, DatasetError]:
    """What is wrong with shards, by their rows, as far as file metadata tells."""
    lost = {}
    folder = str(shard_path(dataset, ""))
    lengths = manifest.shards.length.tolist()
    for row, (name, expected) in enumerate(zip(manifest.shards.name.texts(), lengths, strict=True)):
        file = f"{folder}/{name}"
        try:
            actual = os.stat(file).st_size  # noqa: PTH116  # a Path takes longer to make than this takes
        except OSError as error:
            lost[row] = not_read(file, error, remedy=lost_remedy(dataset))
            continue
        if actual != expected:
            lost[row] = (MissingDataError if actual < expected else CorruptDataError)(
                f"{file} has {actual} bytes, the manifest says {expected}; it was changed after it was written; "
                f"{lost_remedy(dataset)}",
                file=file,
            )
    return lost


def lost_remedy(dataset: Path) -> str:
    """What to do about a shard that is gone or damaged."""
    return (
        f"run `shortgop prep` on the same sources again, or `shortgop verify {dataset} --repair SOURCES`, or copy the "
        "shard to the dataset again"
    )


def write_part(dataset: Path, unit: str, manifest: Manifest, *, again: bool = False) -> None:
    """Commit what a unit found; from here on the unit is done. Its shards must be in place.

    A unit may be done again: one of which every source failed is tried anew by each job. The earlier part stays as
    it is, and nothing is written when there is nothing new to say, unless it is to be said `again`.
    """
    attempts = _attempts(dataset, unit)
    if attempts and not again and _same_outcome(read_part(dataset, attempts[-1]), manifest):
        return
    part = f"{unit}.{len(attempts)}" if attempts else unit
    packed = pack(manifest, {"format_version": FORMAT_VERSION, "unit": unit})
    commit_bytes(dataset, part_path(dataset, part), packed)


def _attempts(dataset: Path, unit: str) -> list[str]:
    """The parts of a unit, the first one first."""
    parts = {part for part in finished_parts(dataset) if _unit_of(part) == unit}
    return sorted(parts, key=lambda part: int(part.partition(".")[2] or 0))


def _unit_of(part: str) -> str:
    return part.partition(".")[0]


def _same_outcome(one: Manifest, other: Manifest) -> bool:
    """Whether both say the same, whenever it was that a source failed."""

    def tables(manifest: Manifest) -> Iterator[Table]:
        for name in TABLE_TYPES:
            table = getattr(manifest, name)
            yield replace(table, attempted_ns=np.zeros_like(table.attempted_ns)) if name == "failures" else table

    return all(a.same_rows(b) for a, b in zip(tables(one), tables(other), strict=True))


def read_part(dataset: Path, part: str) -> Manifest:
    """The tables of one part. MissingDataError or CorruptDataError names it and says what to do."""
    file = part_path(dataset, part)
    remedy = "remove it and run the same `shortgop prep` again to redo its unit"
    try:
        return unpack(file.read_bytes())
    except FileNotFoundError as error:
        raise MissingDataError(f"{file}: {error.strerror}; {remedy}", file=str(file)) from error
    except (OSError, MemoryError) as error:
        raise not_read(str(file), error) from error
    except UnreadableDataError as error:
        raise UnreadableDataError(f"{file}: {error.message}", file=str(file)) from error
    except DatasetError as error:
        raise CorruptDataError(f"{file}: {error.message}; {remedy}", file=str(file)) from error


def finished_parts(dataset: Path) -> set[str]:
    """Names of the parts that are in place: a unit's id, followed by `.1`, `.2` ... where it was done again."""
    folder = dataset / "parts"
    return {file.stem for file in folder.glob("*.zip")} if folder.is_dir() else set()


def finished_units(dataset: Path) -> set[str]:
    """Units that have a part in place."""
    return {_unit_of(part) for part in finished_parts(dataset)}


def _snapshot_parts(dataset: Path, snapshot: str | None) -> set[str]:
    if snapshot is None:
        return set()
    with _naming(snapshot_path(dataset, snapshot)) as folder:
        return set(read_attributes(partial(_open, folder))["parts"])


def publish(dataset: Path) -> str | None:
    """Make a snapshot of all finished parts and point zarr.json to it; returns the current snapshot.

    Nothing is written when all of them are in the current one. The caller holds the writer lock.
    """
    from zarr.storage import LocalStore

    from .writer import BLOCK_ROWS, write_manifest

    root = read_root(dataset)
    known = _snapshot_parts(dataset, root.snapshot)
    new = sorted(finished_parts(dataset) - known)
    if not new:
        return root.snapshot
    manifests = [read_part(dataset, part) for part in new]
    # Slicing arrays that are in memory anyway; the current snapshot's timeline is read as it is needed.
    timelines: list[ReadRows] = [
        partial(_rows, manifest.timeline) for manifest in manifests if manifest.timeline is not None
    ]
    if root.snapshot is not None:
        manifests.append(open_manifest(dataset, root.snapshot))
        timelines.append(partial(open_timeline, dataset, root.snapshot))
    merged, runs = merge_tables(manifests)
    snapshot = f"{int(root.snapshot or 0) + 1:06d}"
    final, temporary = snapshot_path(dataset, snapshot), temporary_path(dataset, snapshot)
    with discarding(temporary):
        with writing(final):
            write_manifest(
                LocalStore(temporary),
                merged,
                {"format_version": FORMAT_VERSION, "parts": sorted(known.union(new))},
                timeline=timeline_blocks(runs, timelines, block_rows=BLOCK_ROWS),
            )
            # Left by a job that died between the rename and the switch of zarr.json; nobody has ever read it.
            shutil.rmtree(final, ignore_errors=True)
        commit(temporary, final)
    _write_root(dataset, Root(profile=root.profile, snapshot=snapshot))
    return snapshot


def _rows(timeline: Timeline, start: int, stop: int) -> Array:
    return timeline.pts[start:stop]


@contextlib.contextmanager
def writer_lock(dataset: Path) -> Iterator[None]:
    """Held by the one job that writes to a dataset; DatasetBusyError when another holds it.

    The lock is on the folder itself and dies with the process, so nothing has to be cleaned up after a crash. What
    a dead job left in .tmp is removed on the way in, and the folder on the way out.
    """
    descriptor = _locked(dataset)
    try:
        shutil.rmtree(dataset / ".tmp", ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(dataset / ".tmp", ignore_errors=True)
    finally:
        os.close(descriptor)


def _locked(dataset: Path) -> int:
    with writing(dataset):
        descriptor = os.open(dataset, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DatasetBusyError(
                f"another job is writing to {dataset}; wait for it, or stop it and run this again",
                file=str(dataset),
            ) from None
        except OSError:
            os.close(descriptor)
            raise
    return descriptor
