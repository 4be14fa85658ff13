"""A dataset on disk: which file is where, how one is committed, and how one is opened.

    zarr.json                the root; its attributes name the format version, the profile and the snapshot
    manifest/<snapshot>.zip  immutable tables; a folder if version 1 of the format wrote it
    parts/<part>.zip         the tables of one unit of work
    shards/<name>.shard      segments back to back
    .tmp/                    files being written; never read, removed when a job ends or the next one starts
    .lock                    which process holds the writer lock

Only zarr.json, and parts from which dropped rows are taken, are ever replaced. .lock is overwritten in place; no file
of the dataset depends on its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import (
    CorruptDataError,
    DatasetError,
    FormatVersionError,
    MissingDataError,
    NotADatasetError,
    OutputError,
    UnreadableDataError,
    not_read,
)
from ..whole_files import commit_bytes, replace_bytes, writing
from . import zarr_zip as zips
from .host_copies import HostCopies
from .label_columns import Kind, LabelColumn
from .ragged import Array
from .tables import Failures, Manifest
from .zarr_columns import read_column, read_column_kinds
from .zarr_read import (
    READABLE_VERSIONS,
    NewArray,
    OpenFile,
    read_attributes,
    read_failures,
    read_manifest,
    read_timeline,
)

FORMAT_VERSION = 3
LOCK_FILE = ".lock"
_ROOT_FILE = "zarr.json"
# Differs from that of earlier versions whose copies had other arrays.
_COPY_LAYOUT = 1
_COPY_AGAIN = "copy it to the dataset again, or run `shortgop prep` on the same sources and a new --out"


@dataclass(frozen=True)
class Root:
    """The content of zarr.json. `snapshot` is None until the first snapshot is published. `id_roots` are the folders
    below which sources get their ids; there are none before the first job, and in datasets of earlier versions."""

    profile: dict[str, Any]
    snapshot: str | None
    format_version: int = FORMAT_VERSION
    id_roots: tuple[str, ...] = ()


def shard_path(dataset: Path, name: str) -> Path:
    return dataset / "shards" / name


def part_path(dataset: Path, part: str) -> Path:
    return dataset / "parts" / f"{part}.zip"


def snapshot_path(dataset: Path, snapshot: str) -> Path:
    """A zip file, or the folder that version 1 of the format wrote."""
    file, folder = (dataset / "manifest" / name for name in (f"{snapshot}.zip", snapshot))
    return folder if folder.is_dir() and not file.exists() else file


def make_folder(dataset: Path) -> None:
    """Make the folder of a dataset. It may exist if it is empty or holds a dataset."""
    with writing(dataset):
        if dataset.exists() and not dataset.is_dir():
            raise OutputError(f"{dataset} is a file; --out needs a folder", file=str(dataset))
        dataset.mkdir(parents=True, exist_ok=True)
        # A job that is about to create a dataset here has already made these.
        ours = {".tmp", LOCK_FILE}
        if any(entry.name not in ours for entry in dataset.iterdir()) and not is_dataset(dataset):
            raise OutputError(
                f"{dataset} holds files but no dataset; choose an empty or new folder",
                file=str(dataset),
            )


def create(dataset: Path, profile: dict[str, Any]) -> Root:
    """Make an empty dataset. The folder may exist if it is empty.

    Returns the root on disk. If another process creates the dataset at the same moment, that is its root.
    """
    make_folder(dataset)
    if is_dataset(dataset):
        raise OutputError(f"{dataset} already holds a dataset; choose an empty or new folder", file=str(dataset))
    commit_bytes(dataset, dataset / _ROOT_FILE, _root_document(Root(profile, snapshot=None)))
    return read_root(dataset)


def set_profile(dataset: Path, profile: dict[str, Any]) -> None:
    """Give another profile to a dataset that has no videos yet. The caller holds the writer lock."""
    root = read_root(dataset)
    if root.profile != profile:
        write_root(dataset, replace(root, profile=profile))


def set_id_roots(dataset: Path, id_roots: tuple[str, ...]) -> None:
    """Let a dataset remember these id roots. The caller holds the writer lock."""
    root = read_root(dataset)
    if root.id_roots != id_roots:
        write_root(dataset, replace(root, id_roots=id_roots))


def write_root(dataset: Path, root: Root) -> None:
    """Replace zarr.json."""
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
                    **({"id_roots": root.id_roots} if root.id_roots else {}),
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
    """Read zarr.json. NotADatasetError, FormatVersionError or CorruptDataError if it cannot be used."""
    file = dataset / _ROOT_FILE
    remedy = "give the folder that `shortgop prep --out` wrote"
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
        *others, last = READABLE_VERSIONS
        raise FormatVersionError(
            f"{dataset} has format version {version!r}, and this shortgop reads versions "
            f"{', '.join(map(str, others))} and {last}; "
            f"{'upgrade shortgop' if newer else 'prepare it again'}",
            file=str(file),
        )
    profile, snapshot = attributes.get("profile"), attributes.get("snapshot")
    named = snapshot is None or (isinstance(snapshot, str) and snapshot.isdecimal())
    id_roots = attributes.get("id_roots", [])
    folders = isinstance(id_roots, list) and all(isinstance(folder, str) for folder in id_roots)
    if not isinstance(profile, dict) or not named or not folders:
        raise CorruptDataError(f"{file} is damaged; copy it to the dataset again", file=str(file))
    return Root(profile=profile, snapshot=snapshot, format_version=version, id_roots=tuple(id_roots))


def open_manifest(
    dataset: Path, snapshot: str, *, timeline: bool = False, copies: HostCopies | None = None
) -> Manifest:
    """The tables of one snapshot. MissingDataError or CorruptDataError names the file that is wrong.

    With `copies` the tables of a large snapshot, but for the timeline, come from the copy that processes of the host
    share.
    """
    with _reading(dataset, snapshot) as open_file:
        if copies is not None and not timeline:
            key = _copy_key(snapshot_path(dataset, snapshot), copies.min_bytes)
            shared = None if key is None else copies.tables(key, partial(_read_into, open_file))
            if shared is not None:
                return shared
        return read_manifest(open_file, timeline=timeline)


def _read_into(open_file: OpenFile, new_array: NewArray) -> Manifest:
    return read_manifest(open_file, timeline=False, new_array=new_array)


def _copy_key(path: Path, min_bytes: int) -> str | None:
    """What a copy of a snapshot's tables is named after: a hash of all that is in them. None for shorter ones, and for
    a folder, as version 1 wrote it."""
    if path.is_dir():
        return None
    members = {
        name: content for name, content in zips.contents(path).items() if not name.startswith(("timeline/", "columns/"))
    }
    if sum(num_bytes for num_bytes, _ in members.values()) < min_bytes:
        return None
    return hashlib.sha256(json.dumps([_COPY_LAYOUT, sorted(members.items())]).encode()).hexdigest()[:32]


def open_current(dataset: Path, *, copies: HostCopies | None = None) -> tuple[Root, Manifest]:
    """The root, and the tables of its snapshot without the timeline; `copies` as in `open_manifest`. NotADatasetError
    if there is no snapshot yet."""
    root = read_root(dataset)
    while True:
        if root.snapshot is None:
            raise NotADatasetError(
                f"{dataset} has no snapshot yet: its job is still running, or ended before its first results; "
                "wait for it, or run `shortgop prep` on it again",
                file=str(dataset),
            )
        try:
            return root, open_manifest(dataset, root.snapshot, copies=copies)
        except MissingDataError:
            # A job may have just published a newer snapshot and removed this one.
            before, root = root, read_root(dataset)
            if root.snapshot == before.snapshot:
                raise


def open_failures(dataset: Path, snapshot: str) -> Failures:
    """The failures table of one snapshot, without the others."""
    with _reading(dataset, snapshot) as open_file:
        return read_failures(open_file)


def open_timeline(dataset: Path, snapshot: str, start: int, stop: int) -> Array:
    """Rows [start, stop) of a snapshot's timeline."""
    with _reading(dataset, snapshot) as open_file:
        return read_timeline(open_file, start, stop)


def open_column_kinds(dataset: Path, snapshot: str) -> dict[str, Kind] | None:
    """The kinds of the label columns that a snapshot holds, by name; None if it holds none."""
    with _reading(dataset, snapshot) as open_file:
        return read_column_kinds(open_file)


def open_column(dataset: Path, snapshot: str, number: int, kind: Kind, num_videos: int) -> LabelColumn:
    """The label column of this number, for so many videos."""
    with _reading(dataset, snapshot) as open_file:
        return read_column(open_file, number, kind, num_videos)


def snapshot_attributes(dataset: Path, snapshot: str) -> dict[str, Any]:
    """The attributes of a snapshot: `format_version`, `parts`, and since version 2 `profile` and `written_by`."""
    with _reading(dataset, snapshot) as open_file:
        return read_attributes(open_file)


@contextlib.contextmanager
def _reading(dataset: Path, snapshot: str) -> Iterator[OpenFile]:
    """Yields the function that opens a file of a snapshot by its key. Errors get the file's path and the remedy."""
    path = snapshot_path(dataset, snapshot)
    try:
        if path.is_dir():
            # Version 1 wrote folders.
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
                f"snapshot {snapshot} of {dataset} is gone ({path} does not exist): jobs remove old snapshots "
                f"(see `shortgop prep --keep-snapshots`); open the dataset again to read the current snapshot, "
                f"{current}",
                file=str(path),
            )
    return MissingDataError(f"the manifest {path} is missing; {_COPY_AGAIN}", file=str(path))
