"""A dataset on disk: which file is where, how one is committed, and how one is opened.

    zarr.json                the root; its attributes name the format version, the profile and the snapshot
    manifest/<snapshot>.zip  immutable tables of everything up to some moment; a folder where version 1 wrote it
    parts/<part>.zip         the tables of one unit of work
    shards/<name>.shard      segments back to back
    .tmp/                    what is being written; never read, removed when a job ends or the next one starts
    .lock                    whom the lock of writers belongs to

The one file that is ever replaced is zarr.json; .lock is written over in place, and nothing depends on what it says.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import (
    CorruptDataError,
    DatasetError,
    FormatVersionError,
    MissingDataError,
    NotADatasetError,
    OutputError,
    UnreadableDataError,
)
from ..whole_files import commit_bytes, replace_bytes, writing
from . import zips
from .arrays import OpenFile
from .locks import LOCK_FILE
from .parts import pack, unpack
from .ragged import Array
from .snapshots import READABLE_VERSIONS, read_attributes, read_failures, read_manifest, read_timeline
from .tables import TABLE_TYPES, Failures, Manifest, Table, empty
from .unread import not_read

FORMAT_VERSION = 2
_ROOT_FILE = "zarr.json"
_COPY_AGAIN = "copy it to the dataset again, or run `shortgop prep` on the same sources and a new --out"


@dataclass(frozen=True)
class Root:
    """What zarr.json says. `snapshot` is None until the first results are in."""

    profile: dict[str, Any]
    snapshot: str | None
    format_version: int = FORMAT_VERSION


def shard_path(dataset: Path, name: str) -> Path:
    return dataset / "shards" / name


def part_path(dataset: Path, part: str) -> Path:
    return dataset / "parts" / f"{part}.zip"


def snapshot_path(dataset: Path, snapshot: str) -> Path:
    """A zip file, or the folder that version 1 of the format wrote."""
    file, folder = (dataset / "manifest" / name for name in (f"{snapshot}.zip", snapshot))
    return folder if folder.is_dir() and not file.exists() else file


def make_folder(dataset: Path) -> None:
    """Make the folder of a dataset. It may be there already, with a dataset in it or with nothing."""
    with writing(dataset):
        if dataset.exists() and not dataset.is_dir():
            raise OutputError(f"{dataset} is a file; --out wants a folder", file=str(dataset))
        dataset.mkdir(parents=True, exist_ok=True)
        # What a job that is about to make a dataset here has put there already.
        ours = {".tmp", LOCK_FILE}
        if any(entry.name not in ours for entry in dataset.iterdir()) and not is_dataset(dataset):
            raise OutputError(
                f"{dataset} holds something else than a dataset; choose an empty or new folder",
                file=str(dataset),
            )


def create(dataset: Path, profile: dict[str, Any]) -> Root:
    """Make an empty dataset. The folder may exist if there is nothing in it.

    Returns the root that is there, which is another's where somebody else made one at the same moment.
    """
    make_folder(dataset)
    if is_dataset(dataset):
        raise OutputError(f"{dataset} holds a dataset already; choose an empty or new folder", file=str(dataset))
    commit_bytes(dataset, dataset / _ROOT_FILE, _root_document(Root(profile, snapshot=None)))
    return read_root(dataset)


def set_profile(dataset: Path, profile: dict[str, Any]) -> None:
    """Give another profile to a dataset that has no videos yet. The caller holds the writer lock."""
    root = read_root(dataset)
    if root.profile != profile:
        write_root(dataset, replace(root, profile=profile))


def write_root(dataset: Path, root: Root) -> None:
    """Replace the root: the one file to which that happens."""
    replace_bytes(dataset, dataset / _ROOT_FILE, _root_document(root))


def _root_document(root: Root) -> bytes:
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
    return f"{text}\n".encode()


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
    return Root(profile=profile, snapshot=snapshot, format_version=version)


def open_manifest(dataset: Path, snapshot: str, *, timeline: bool = False) -> Manifest:
    """The tables of one snapshot. MissingDataError or CorruptDataError names the file that is wrong."""
    with _reading(dataset, snapshot) as open_file:
        return read_manifest(open_file, timeline=timeline)


def open_current(dataset: Path) -> tuple[Root, Manifest]:
    """The root and the tables of the current snapshot, without the timeline; NotADatasetError before the first."""
    root = read_root(dataset)
    while True:
        if root.snapshot is None:
            raise NotADatasetError(
                f"{dataset} has no snapshot yet: its job is running, or ended before its first results; "
                "run `shortgop prep` on it again",
                file=str(dataset),
            )
        try:
            return root, open_manifest(dataset, root.snapshot)
        except MissingDataError:
            # A job may have published another one and removed this one just now.
            before, root = root, read_root(dataset)
            if root.snapshot == before.snapshot:
                raise


def current_manifest(dataset: Path) -> Manifest:
    """All tables of the current snapshot, timeline included; an empty manifest before the first one."""
    snapshot = read_root(dataset).snapshot
    return empty() if snapshot is None else open_manifest(dataset, snapshot, timeline=True)


def open_failures(dataset: Path, snapshot: str) -> Failures:
    """The table of failures of one snapshot, alone."""
    with _reading(dataset, snapshot) as open_file:
        return read_failures(open_file)


def open_timeline(dataset: Path, snapshot: str, start: int, stop: int) -> Array:
    """Rows [start, stop) of a snapshot's timeline."""
    with _reading(dataset, snapshot) as open_file:
        return read_timeline(open_file, start, stop)


def snapshot_attributes(dataset: Path, snapshot: str) -> dict[str, Any]:
    """What a snapshot says of itself: `format_version`, `parts`, and since version 2 `profile` and `written_by`."""
    with _reading(dataset, snapshot) as open_file:
        return read_attributes(open_file)


@contextlib.contextmanager
def _reading(dataset: Path, snapshot: str) -> Iterator[OpenFile]:
    """How to open the files of a snapshot. Errors get the path of the file, and what to do."""
    path = snapshot_path(dataset, snapshot)
    try:
        if path.is_dir():
            # As in version 1.
            yield partial(_open, path)
        else:
            with zips.reading(path) as open_member:
                yield open_member
    except FileNotFoundError:
        raise _gone(dataset, snapshot, path) from None
    except OSError as error:
        raise not_read(str(path), error) from error
    except UnreadableDataError as error:
        file = path / error.file if error.file and path.is_dir() else path
        raise UnreadableDataError(f"{path}: {error.message}", file=str(file)) from error
    except DatasetError as error:
        file = path / error.file if error.file and path.is_dir() else path
        if not path.exists():
            raise _gone(dataset, snapshot, path) from error
        raise type(error)(f"{path}: {error.message}; {_COPY_AGAIN}", file=str(file)) from error


def _open(folder: Path, key: str) -> BinaryIO:
    return (folder / key).open("rb")


def _gone(dataset: Path, snapshot: str, path: Path) -> MissingDataError:
    with contextlib.suppress(DatasetError):
        current = read_root(dataset).snapshot
        if current not in (None, snapshot):
            return MissingDataError(
                f"snapshot {snapshot} of {dataset} is gone, {path} is not there: jobs remove snapshots some time after "
                f"a later one took their place (see `shortgop prep --keep-snapshots`); open the dataset again, which "
                f"gives the current one, {current}",
                file=str(path),
            )
    return MissingDataError(f"the manifest {path} is missing; {_COPY_AGAIN}", file=str(path))


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


def damage_remedy(dataset: Path) -> str:
    """What to do about a shard of the right length whose bytes are others than were written."""
    return f"run `shortgop verify {dataset} --repair SOURCES`, or copy the shard to the dataset again"


def write_part(
    dataset: Path,
    unit: str,
    manifest: Manifest,
    profile: Mapping[str, Any] | None = None,
    *,
    again: bool = False,
) -> None:
    """Commit what a unit found; from here on the unit is done. Its shards must be in place.

    `profile` is the one that its videos were encoded with: no snapshot takes them in beside videos of another.

    A unit may be done again: one of which every source failed is tried anew by each job, and a worker that is thought
    dead may end after its successor. The earlier parts stay as they are, and nothing is written when there is nothing
    new to say, unless it is to be said `again`.
    """
    attempts = _attempts(dataset, unit)
    for part in attempts if len(manifest.videos) else attempts[-1:]:
        if not again and _same_outcome(read_part(dataset, part), manifest):
            return
    attributes: dict[str, Any] = {"format_version": FORMAT_VERSION, "unit": unit}
    packed = pack(manifest, attributes if profile is None else {**attributes, "profile": dict(profile)})
    number = len(attempts)
    # Another attempt at the same unit may take the name first, also one that was not listed yet.
    while not commit_bytes(dataset, part_path(dataset, f"{unit}.{number}" if number else unit), packed):
        number += 1


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
    return open_part(dataset, part)[0]


def open_part(dataset: Path, part: str) -> tuple[Manifest, dict[str, Any]]:
    """The same with the part's attributes: `format_version`, `unit`, and `profile` where it has videos."""
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


def parts_of_unit(dataset: Path, unit: str) -> list[Manifest]:
    """What each attempt at a unit found, the first one first."""
    return [read_part(dataset, part) for part in _attempts(dataset, unit)]
