"""The files of a dataset: which is where, and how the root is written.

    zarr.json                the root; its attributes name the format version, the profile and the snapshot
    manifest/<snapshot>.zip  immutable tables; a folder if version 1 of the format wrote it
    parts/<part>.zip         the tables of one unit of work
    sections/<section>.zip   the tables of one section of a long video that is not finished
    shards/<name>.shard      segments back to back
    .status.json             how far the last job is, for people

Only zarr.json, .status.json, and parts from which dropped rows are taken, are ever replaced.
"""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import (
    CorruptDataError,
    DatasetBusyError,
    DatasetError,
    FormatVersionError,
    MissingDataError,
    NotADatasetError,
    OutputError,
    UnreadableDataError,
    not_read,
)
from ...storage.interface import NO_BUCKET, Storage, Stored
from ...whole_files import writing
from ..zarr_files.zarr_read import READABLE_VERSIONS

FORMAT_VERSION = 5
# All that came with version 5 is AV1.
_VERSION_WITHOUT_AV1 = 4
ROOT_KEY = "zarr.json"
_SHARD = re.compile(r"\w+-\d+(-[0-9a-f]+(\.\d+)?)?\.shard")
MAX_ID_ROOTS = 1000
"""An id root lengthens zarr.json, which every reader reads. Folders beyond this number are not remembered."""
# Each time another writer changed the root meanwhile.
_MAX_CHANGES = 100
_MAX_LOOKS = 40
_SECONDS_TO_LOOK_AGAIN = 0.025
_DATASET_REMEDY = "give the folder that `shortgop prep --out` wrote"


@dataclass(frozen=True)
class Root:
    """The content of zarr.json. `snapshot` is None until the first snapshot is published. `id_roots` are the folders
    below which sources get their ids; there are none before the first job, and in datasets of earlier versions.
    `num_parts` is how many parts the snapshot was made of, so that a lost one can be made again of all of them; None
    where the writer did not say it."""

    profile: dict[str, Any]
    snapshot: str | None
    format_version: int = FORMAT_VERSION
    id_roots: tuple[str, ...] = ()
    num_parts: int | None = None


def version_to_state(profile: Mapping[str, Any] | None) -> int:
    """The version that files with videos of this profile state, None for those without videos: the earliest whose
    readers understand them, so that earlier readers are locked out of nothing that they read."""
    return FORMAT_VERSION if profile is not None and profile.get("codec") == "av1" else _VERSION_WITHOUT_AV1


def shard_key(name: str) -> str:
    return f"shards/{name}"


def is_shard(name: str) -> bool:
    """Whether a file of the shards folder has a name such as shards get."""
    return _SHARD.fullmatch(name) is not None


def unit_of_shard(name: str) -> str:
    """The unit that a shard belongs to."""
    # The shards of a section are named after its unit and its number in it.
    return name.partition("-")[0].partition("_")[0]


def shard_lengths(dataset: Storage) -> dict[str, int]:
    """The number of bytes of each file in the shards folder, by its name."""
    return {stored.key.removeprefix(shard_key("")): stored.num_bytes for stored in listed(dataset, "shards")}


def part_key(part: str) -> str:
    return f"parts/{part}.zip"


def snapshot_key(snapshot: str) -> str:
    """The key of a snapshot's file. Version 1 of the format wrote a folder, see `snapshot_folder`."""
    return f"manifest/{snapshot}.zip"


def snapshot_folder(dataset: Storage, snapshot: str) -> str | None:
    """The folder that version 1 of the format wrote as this snapshot; None if there is none."""
    folder = f"manifest/{snapshot}"
    return folder if any(listed(dataset, folder)) and not dataset.find(snapshot_key(snapshot)) else None


def make_place(dataset: Storage) -> None:
    """Make the place of a dataset. It may exist if it is empty or holds a dataset."""
    dataset.make()
    with writing(dataset.url):
        found = next(dataset.files(""), None)
        if found is not None and not is_dataset(dataset):
            if folder := _left_folder(dataset):
                raise OutputError(_without_root(dataset, folder), file=dataset.url)
            raise OutputError(
                f"{dataset} holds files but no dataset, {found.key!r} for one; choose an empty or new folder",
                file=dataset.url,
            )


def create(dataset: Storage, profile: dict[str, Any], id_roots: tuple[str, ...] = ()) -> Root:
    """Make an empty dataset where there is none. The folder may exist if it is empty.

    Returns the root on disk. If another process has created the dataset meanwhile, that is its root.
    """
    make_place(dataset)
    dataset.put_new(ROOT_KEY, root_document(Root(profile, snapshot=None, id_roots=id_roots)))
    return read_root(dataset)


def set_profile(dataset: Storage, profile: dict[str, Any]) -> None:
    """Give another profile to a dataset that has no videos yet. The caller holds the writer lock."""
    change_root(dataset, lambda root: replace(root, profile=profile))


def set_id_roots(dataset: Storage, id_roots: tuple[str, ...]) -> None:
    """Let a dataset remember these id roots. The caller holds the writer lock."""
    change_root(dataset, lambda root: replace(root, id_roots=id_roots))


def change_root(dataset: Storage, change: Callable[[Root], Root]) -> Root:
    """Replace zarr.json by what `change` makes of it. Returns the root that is there then.

    If another writer replaces it meanwhile, `change` is asked again with the new root. DatasetBusyError if that does
    not end.
    """
    for _ in range(_MAX_CHANGES):
        root, version = _read_root(dataset)
        changed = change(root)
        if changed == root or dataset.replace(ROOT_KEY, root_document(changed), version):
            return changed
    raise DatasetBusyError(
        f"other jobs keep changing {dataset.place(ROOT_KEY)}; wait until they have ended, and run this again",
        file=dataset.place(ROOT_KEY),
    )


def root_document(root: Root) -> bytes:
    text = json.dumps(
        {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {
                "shortgop": {
                    "format_version": version_to_state(root.profile),
                    "profile": root.profile,
                    "snapshot": root.snapshot,
                    **({} if root.num_parts is None else {"num_parts": root.num_parts}),
                    **({"id_roots": root.id_roots} if root.id_roots else {}),
                }
            },
        },
        indent=2,
    )
    return f"{text}\n".encode()


def is_dataset(dataset: Storage) -> bool:
    try:
        for _ in range(_MAX_LOOKS):
            if dataset.find(ROOT_KEY) is not None:
                return True
            if not _is_without_root(dataset):
                break
            time.sleep(_SECONDS_TO_LOOK_AGAIN)
    except OSError as error:
        raise not_read(dataset.place(ROOT_KEY), error) from error
    return False


def is_gone(dataset: Storage) -> bool:
    """Whether a dataset that was there is not there any more: its folder was moved or removed, or its objects were.
    False if that cannot be found out."""
    try:
        return not is_dataset(dataset)
    except MissingDataError:
        return True
    except DatasetError:
        return False


def gone_text(dataset: Storage) -> str:
    """What to say of such a dataset."""
    return (
        f"{dataset} is no longer there, or no longer a dataset ({dataset.place(ROOT_KEY)} is missing): it was moved or "
        "removed since it was opened; open it where it is now, or make its disk available again"
    )


def read_root(dataset: Storage) -> Root:
    """Read zarr.json. NotADatasetError, FormatVersionError or CorruptDataError if it cannot be used."""
    return _read_root(dataset)[0]


def _read_root(dataset: Storage) -> tuple[Root, str]:
    """The root, and the version of its file."""
    file = dataset.place(ROOT_KEY)
    try:
        text, version = _root_text(dataset)
    except (FileNotFoundError, NotADirectoryError) as error:
        path = dataset.folder
        gone, is_file = path is not None and not path.exists(), path is not None and path.is_file()
        what = "does not exist" if gone else "is a file" if is_file else "holds no dataset"
        if error.strerror == NO_BUCKET:
            raise NotADatasetError(f"{dataset}: {NO_BUCKET}; check its name", file=file) from None
        if folder := _left_folder(dataset):
            raise NotADatasetError(_without_root(dataset, folder), file=file) from None
        raise NotADatasetError(f"{dataset} {what}; {_DATASET_REMEDY}", file=file) from None
    except EOFError as error:
        raise UnreadableDataError(f"{file} became shorter while it was read; try again", file=file) from error
    except OSError as error:
        raise not_read(file, error) from error
    return _parsed(dataset, text), version


def _root_text(dataset: Storage) -> tuple[bytes, str]:
    """The content of zarr.json, and its version.

    On NFS a file that another host replaced can no longer be read (ESTALE). And a file that a process of the replacing
    host has open is renamed to .nfs... first: then there is none for a moment.
    """
    for left in reversed(range(_MAX_LOOKS)):
        try:
            with dataset.open(ROOT_KEY) as opened:
                return opened.read(0, opened.stored.num_bytes), opened.stored.version
        except OSError as error:
            is_absent = isinstance(error, FileNotFoundError) and _is_without_root(dataset)
            if not left or not (is_absent or error.errno == errno.ESTALE):
                raise
        time.sleep(_SECONDS_TO_LOOK_AGAIN)
    raise AssertionError


def _is_without_root(dataset: Storage) -> bool:
    """Whether there is a folder of snapshots beside which zarr.json is missing."""
    return dataset.folder is not None and (dataset.folder / "manifest").is_dir()


def _left_folder(dataset: Storage) -> str | None:
    """The folder that tells of a dataset where zarr.json is missing; None where a web server has no listings."""
    try:
        if any(listed(dataset, "manifest")):
            return "manifest"
    except UnreadableDataError:
        return None
    return "parts" if tells_its_root(dataset) else None


def tells_its_root(dataset: Storage) -> bool:
    """Whether there is a snapshot or a part, of which zarr.json can be made again. False where a web server has no
    listings. Version 1 of the format wrote snapshots that do not tell."""
    # Other folders may be called so.
    names = {"manifest": r"manifest/\d+\.zip", "parts": r"parts/[0-9a-f]{16}(\.\d+)?\.zip"}
    try:
        return any(re.fullmatch(name, file.key) for folder, name in names.items() for file in listed(dataset, folder))
    except UnreadableDataError:
        return False


def _or_repair(dataset: Storage) -> str:
    return f", or run `shortgop verify {dataset} --repair`, which makes it again" if tells_its_root(dataset) else ""


def _without_root(dataset: Storage, folder: str) -> str:
    return (
        f"{dataset} has a folder `{folder}` and no zarr.json: it is a dataset that lacks this file; copy it there, "
        f"too{_or_repair(dataset)}"
    )


def _parsed(dataset: Storage, text: bytes) -> Root:
    file = dataset.place(ROOT_KEY)
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CorruptDataError(
            f"{file} is damaged ({error}); copy it to the dataset again{_or_repair(dataset)}", file=file
        ) from None
    try:
        attributes = document["attributes"]["shortgop"]
        version = attributes["format_version"]
    except (KeyError, TypeError):
        raise NotADatasetError(f"{file} is not the root of a shortgop dataset; {_DATASET_REMEDY}", file=file) from None
    if version is True or version not in READABLE_VERSIONS:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        *others, last = READABLE_VERSIONS
        raise FormatVersionError(
            f"{dataset} has format version {version!r}, and this shortgop reads versions "
            f"{', '.join(map(str, others))} and {last}; "
            f"{'upgrade shortgop' if newer else 'prepare it again'}",
            file=file,
        )
    profile, snapshot = attributes.get("profile"), attributes.get("snapshot")
    named = snapshot is None or (isinstance(snapshot, str) and snapshot.isdecimal())
    id_roots = attributes.get("id_roots", [])
    folders = isinstance(id_roots, list) and all(isinstance(folder, str) for folder in id_roots)
    num_parts = attributes.get("num_parts")
    is_count = num_parts is None or (isinstance(num_parts, int) and not isinstance(num_parts, bool))
    if not isinstance(profile, dict) or not named or not folders or not is_count:
        raise CorruptDataError(f"{file} is damaged; copy it to the dataset again{_or_repair(dataset)}", file=file)
    return Root(profile, snapshot, version, tuple(id_roots), num_parts)


def listed(dataset: Storage, folder: str) -> Iterator[Stored]:
    """The files below a folder, in no order. UnreadableDataError if they cannot be listed."""
    try:
        yield from dataset.files(folder)
    except OSError as error:
        raise not_read(dataset.place(folder), error) from error


def has_snapshot(dataset: Storage, snapshot: str) -> bool:
    """Whether a snapshot is there. Nothing is listed, which not every store allows."""
    return dataset.find(snapshot_key(snapshot)) is not None or snapshot_folder(dataset, snapshot) is not None


def snapshots(dataset: Storage) -> dict[str, list[Stored]]:
    """The files of all snapshots that are there, current or not, by name: decimal digits."""
    found: dict[str, list[Stored]] = {}
    for stored in listed(dataset, "manifest"):
        found.setdefault(stored.key.split("/")[1].removesuffix(".zip"), []).append(stored)
    return {name: files for name, files in found.items() if name.isdecimal()}
