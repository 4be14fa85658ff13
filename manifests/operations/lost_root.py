"""A lost or damaged zarr.json, made again of what the snapshots and the parts say of the dataset."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import CorruptDataError, MissingDataError, NotADatasetError
from ...storage.interface import Storage
from ..dataset_files.aside import copied_aside
from ..dataset_files.in_place import changing
from ..dataset_files.layout import ROOT_KEY, Root, read_root, root_document, snapshot_key, snapshots
from ..dataset_files.parts import finished_parts, open_part
from ..dataset_files.publish import next_snapshot
from ..dataset_files.snapshot_files import parts_in, snapshot_attributes
from ..dataset_files.snapshots import open_once
from ..tables import Manifest

# As many as jobs remember.
_MAX_ROOTS = 1000
# Videos whose texts are decoded at a time.
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class RestoredRoot:
    """What `restore_root` did: the snapshot that zarr.json names now, and `why` it was written.

    `id_roots` are the folders below which files get their ids, as far as the paths of videos tell. `kept` is where the
    damaged file lies now, None if there was none.
    """

    snapshot: str
    why: str
    id_roots: tuple[str, ...]
    kept: str | None = None


def restore_root(dataset: Storage) -> RestoredRoot | None:
    """Write zarr.json again if it is lost or damaged beside snapshots or parts. None if it is as it must be.

    It names the latest snapshot, which may be damaged as well, or the next one, which is lost: `repair_snapshot` comes
    next. The profile is what the latest snapshot says of it, an earlier one or a part. CorruptDataError if none of
    them can be read, DatasetBusyError if a job writes to the dataset.
    """
    if not _trouble(dataset):
        return None
    with changing(dataset):
        why = _trouble(dataset)
        if not why:
            return None
        stored = dataset.find(ROOT_KEY)
        kept = None if stored is None else copied_aside(dataset, ROOT_KEY)
        root = _root(dataset)
        if not dataset.replace(ROOT_KEY, root_document(root), None if stored is None else stored.version):
            # Somebody else has brought one meanwhile.
            read_root(dataset)
            return None
    return RestoredRoot(root.snapshot or "", why, root.id_roots, kept)


def _trouble(dataset: Storage) -> str:
    """What is wrong with zarr.json; "" if nothing is, or nothing that can be helped here: then what is asked next says
    it."""
    try:
        read_root(dataset)
    except CorruptDataError as error:
        return error.message.partition("; ")[0] if _can_be_made(dataset) else ""
    except NotADatasetError:
        # A document of another kind may be somebody's, and is not replaced.
        if dataset.find(ROOT_KEY) is None and _can_be_made(dataset):
            return f"{dataset.place(ROOT_KEY)} is missing"
    return ""


def _can_be_made(dataset: Storage) -> bool:
    return bool(_latest_first(dataset) or any(finished_parts(dataset)))


def _latest_first(dataset: Storage) -> list[str]:
    """The snapshots, but for those of version 1 of the format, which do not say their profile."""
    there = snapshots(dataset)
    return sorted(
        (name for name, files in there.items() if any(each.key == snapshot_key(name) for each in files)),
        key=int,
        reverse=True,
    )


def _root(dataset: Storage) -> Root:
    latest_first = _latest_first(dataset)
    id_roots: tuple[str, ...] = ()
    for snapshot in latest_first:
        with contextlib.suppress(MissingDataError, CorruptDataError):
            id_roots = _folders_of_ids(open_once(dataset, snapshot))
            break
    profile = _profile(dataset, latest_first)
    with contextlib.suppress(MissingDataError, CorruptDataError):
        named = parts_in(dataset, latest_first[0]) if latest_first else set()
        if set(finished_parts(dataset)) <= named:
            return Root(profile, latest_first[0], id_roots=id_roots, num_parts=len(named))
        # A later snapshot had the other parts and is lost, or they are to be in the next one.
        return Root(profile, next_snapshot(Root({}, None), snapshots(dataset)), id_roots=id_roots)
    return Root(profile, latest_first[0], id_roots=id_roots)


def _profile(dataset: Storage, latest_first: Sequence[str]) -> dict[str, Any]:
    for snapshot in latest_first:
        with contextlib.suppress(MissingDataError, CorruptDataError):
            if profile := snapshot_attributes(dataset, snapshot).get("profile"):
                return dict(profile)
    for part in sorted(finished_parts(dataset)):
        with contextlib.suppress(MissingDataError, CorruptDataError):
            if profile := open_part(dataset, part)[1].get("profile"):
                return dict(profile)
    raise CorruptDataError(
        f"{dataset.place(ROOT_KEY)} cannot be made again: no snapshot and no part of {dataset} that can be read says "
        "how its videos were encoded; copy the file to the dataset again",
        file=dataset.place(ROOT_KEY),
    )


def _folders_of_ids(manifest: Manifest) -> tuple[str, ...]:
    """The folders whose files have the paths below them as ids, those of most videos first."""
    found: Counter[str] = Counter()
    ids, paths = manifest.videos.id, manifest.videos.path
    for start in range(0, len(ids), _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, len(ids))
        for video_id, path in zip(ids.between(start, stop).texts(), paths.between(start, stop).texts(), strict=True):
            if path.endswith(f"/{video_id}"):
                found[path.removesuffix(f"/{video_id}")] += 1
    return tuple(folder for folder, _ in found.most_common(_MAX_ROOTS))
