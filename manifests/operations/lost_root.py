"""A lost or damaged zarr.json, made again of what the snapshots and the parts say of the dataset."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ...errors import CorruptDataError, DatasetError, MissingDataError, NotADatasetError, UnreadableDataError
from ...storage.interface import Storage
from ..dataset_files.aside import copied_aside
from ..dataset_files.in_place import repairing
from ..dataset_files.layout import ROOT_KEY, file_at, snapshot_key, snapshots
from ..dataset_files.missing_root import tells_its_root
from ..dataset_files.parts import finished_parts, open_part
from ..dataset_files.publish import has_its_shards, next_snapshot, publish
from ..dataset_files.root_file import MAX_ID_ROOTS, Root, read_root, root_document
from ..dataset_files.snapshot_files import parts_in, snapshot_attributes
from ..dataset_files.snapshots import open_once
from ..tables import Manifest
from .recovery import is_of_snapshot


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

    It names the latest snapshot, on top of which parts that it lacks are published. It may also name a snapshot that is
    damaged or lost: the caller repairs that with `repair_snapshot`. The profile comes from the latest snapshot or part
    that can be read.

    CorruptDataError if none of them can be read, DatasetBusyError if a job writes to the dataset.
    """
    if not _trouble(dataset):
        return None
    with repairing(dataset):
        why = _trouble(dataset)
        if not why:
            return None
        stored = file_at(dataset, ROOT_KEY)
        kept = None if stored is None else copied_aside(dataset, ROOT_KEY)
        root = _root(dataset)
        if not dataset.replace(ROOT_KEY, root_document(root), None if stored is None else stored.version):
            # Somebody else has brought one meanwhile.
            read_root(dataset)
            return None
        if root.num_parts is not None:
            root = replace(root, snapshot=_published(dataset, root.snapshot))
    return RestoredRoot(root.snapshot or "", why, root.id_roots, kept)


def _trouble(dataset: Storage) -> str:
    """What is wrong with zarr.json; "" if nothing is. Also "" where it cannot be made again: whoever reads it next gets
    the error."""
    try:
        read_root(dataset)
    except CorruptDataError as error:
        return error.message.partition("; ")[0] if tells_its_root(dataset) else ""
    except NotADatasetError:
        # A document of another kind may be somebody's, and is not replaced.
        if file_at(dataset, ROOT_KEY) is None and tells_its_root(dataset):
            return f"{dataset.place(ROOT_KEY)} is missing"
    return ""


def _latest_first(dataset: Storage) -> list[str]:
    """The snapshots, but for those of version 1 of the format, which do not say their profile."""
    there = snapshots(dataset).items()
    return [name for name, files in there if any(each.key == snapshot_key(name) for each in files)]


def _root(dataset: Storage) -> Root:
    """The root that names the latest snapshot, with `num_parts` if that snapshot is whole and all other parts can be
    published on top of it. Where they cannot, a later snapshot had them and is lost, or has to be taken for lost: then
    the root names the number after the latest."""
    latest_first = _latest_first(dataset)
    readable = next(_readable(dataset, latest_first), None)
    id_roots = () if readable is None else _folders_of_ids(readable[1])
    root = Root(_profile(dataset, latest_first), next_snapshot(Root({}, None), latest_first), id_roots=id_roots)
    if not latest_first:
        return root
    if readable is None or readable[0] != latest_first[0]:
        return replace(root, snapshot=latest_first[0])
    named = parts_in(dataset, latest_first[0])
    if all(_can_be_published(dataset, part) for part in finished_parts(dataset) - named):
        return replace(root, snapshot=latest_first[0], num_parts=len(named))
    return root


def _readable(dataset: Storage, names: Sequence[str]) -> Iterator[tuple[str, Manifest]]:
    for snapshot in names:
        with contextlib.suppress(MissingDataError, CorruptDataError):
            yield snapshot, open_once(dataset, snapshot)


def _published(dataset: Storage, latest: str | None) -> str | None:
    try:
        return publish(dataset)
    except (MissingDataError, CorruptDataError) as error:
        # Of a snapshot that opens, more may be damaged.
        if not is_of_snapshot(dataset, error.file):
            raise
        return latest


def _can_be_published(dataset: Storage, part: str) -> bool:
    """Whether publishing the part on top of other snapshots gives all that is in it."""
    try:
        return has_its_shards(dataset, open_part(dataset, part)[0])
    except UnreadableDataError:
        raise
    except DatasetError:
        return False


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
    """The folders to which ids add up to paths. A folder comes before those that it lies in: videos whose ids are paths
    below it would have ids below those otherwise. It comes after them where more videos in it have such ids."""
    own: Counter[str] = Counter(folder for folder, _ in _named_by_paths(manifest))
    others: Counter[str] = Counter()
    for folder, video_id in _named_by_paths(manifest):
        inner = f"{folder}/{video_id}".rpartition("/")[0]
        while len(inner) > len(folder):
            if inner in own:
                others[inner] += 1
            inner = inner.rpartition("/")[0]
    in_order = sorted(own, key=lambda folder: (others[folder] > own[folder], -folder.count("/"), folder))
    return tuple(in_order[:MAX_ID_ROOTS])


def _named_by_paths(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Each id that is a path below a folder, behind that folder as datasets remember it: without links and `..`, or the
    URL of one in a store."""
    resolved = cache(lambda folder: folder if "://" in folder else os.path.realpath(folder))
    videos = manifest.videos
    for video_id, path in zip(videos.id.each_text(), videos.path.each_text(), strict=True):
        folder = path.removesuffix(f"/{video_id}")
        # A list of absolute paths gives these as ids.
        if folder not in ("", path):
            yield resolved(folder), video_id
