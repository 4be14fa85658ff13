"""The root of a dataset, zarr.json: what it says, how it is read, made and changed.

It alone says which snapshot is the current one, so replacing it is what publishes.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Mapping
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
from ...storage.interface import Storage
from ...whole_files import writing
from ..zarr_files.zarr_read import READABLE_VERSIONS
from .layout import ROOT_KEY, file_at
from .missing_root import DATASET_REMEDY, is_without_root, lacks_root_text, no_dataset, or_repair

FORMAT_VERSION = 5
# All that came with version 5 is AV1.
_VERSION_WITHOUT_AV1 = 4
MAX_ID_ROOTS = 1000
"""An id root lengthens zarr.json, which every reader reads. Folders beyond this number are not remembered."""
# Each time another writer changed the root meanwhile.
_MAX_CHANGES = 100
_MAX_LOOKS = 40
_SECONDS_TO_LOOK_AGAIN = 0.025


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


# Whether it is there


def is_dataset(dataset: Storage) -> bool:
    for _ in range(_MAX_LOOKS):
        if file_at(dataset, ROOT_KEY) is not None:
            return True
        # As `_root_text` says, it may be missing for a moment.
        if not is_without_root(dataset):
            break
        time.sleep(_SECONDS_TO_LOOK_AGAIN)
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


# Making and changing it


def make_place(dataset: Storage, *, dry_run: bool = False) -> None:
    """Make the place of a dataset. It may exist if it is empty or holds a dataset. A `dry_run` only looks whether that
    can be done."""
    dataset.make(dry_run=dry_run)
    with writing(dataset.url):
        found = next(dataset.files(""), None)
        if found is not None and not is_dataset(dataset):
            raise OutputError(
                lacks_root_text(dataset)
                or f"{dataset} holds files but no dataset, {found.key!r} for one; choose an empty or new folder",
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


# Reading it


def read_root(dataset: Storage) -> Root:
    """Read zarr.json. NotADatasetError, FormatVersionError or CorruptDataError if it cannot be used."""
    return _read_root(dataset)[0]


def _read_root(dataset: Storage) -> tuple[Root, str]:
    """The root, and the version of its file."""
    file = dataset.place(ROOT_KEY)
    try:
        text, version = _root_text(dataset)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise no_dataset(dataset, error) from None
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
            is_absent = isinstance(error, FileNotFoundError) and is_without_root(dataset)
            if not left or not (is_absent or error.errno == errno.ESTALE):
                raise
        time.sleep(_SECONDS_TO_LOOK_AGAIN)
    raise AssertionError


def _parsed(dataset: Storage, text: bytes) -> Root:
    file = dataset.place(ROOT_KEY)
    try:
        document = json.loads(text)
    except ValueError as error:
        raise _damaged(dataset, f" ({error})") from None
    try:
        attributes = document["attributes"]["shortgop"]
        version = attributes["format_version"]
    except (KeyError, TypeError):
        raise NotADatasetError(f"{file} is not the root of a shortgop dataset; {DATASET_REMEDY}", file=file) from None
    _check_version(dataset, version)
    profile, snapshot = attributes.get("profile"), attributes.get("snapshot")
    id_roots, num_parts = attributes.get("id_roots", []), attributes.get("num_parts")
    if not (
        isinstance(profile, dict)
        and (snapshot is None or (isinstance(snapshot, str) and snapshot.isdecimal()))
        and isinstance(id_roots, list)
        and all(isinstance(folder, str) for folder in id_roots)
        and (num_parts is None or (isinstance(num_parts, int) and not isinstance(num_parts, bool)))
    ):
        raise _damaged(dataset)
    return Root(profile, snapshot, version, tuple(id_roots), num_parts)


def _check_version(dataset: Storage, version: Any) -> None:
    """FormatVersionError for a version that this code does not read."""
    # JSON's true equals 1.
    if version is not True and version in READABLE_VERSIONS:
        return
    newer = isinstance(version, int) and version > FORMAT_VERSION
    *others, last = READABLE_VERSIONS
    raise FormatVersionError(
        f"{dataset} has format version {version!r}, and this shortgop reads versions "
        f"{', '.join(map(str, others))} and {last}; {'upgrade shortgop' if newer else 'prepare it again'}",
        file=dataset.place(ROOT_KEY),
    )


def _damaged(dataset: Storage, why: str = "") -> CorruptDataError:
    file = dataset.place(ROOT_KEY)
    return CorruptDataError(f"{file} is damaged{why}; copy it to the dataset again{or_repair(dataset)}", file=file)
