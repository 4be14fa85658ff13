"""Lost shards of a dataset: which they are, which videos lie in them, and what to do. Also where a video lies."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from shlex import quote

import numpy as np

from ...errors import (
    CorruptDataError,
    DatasetError,
    MissingDataError,
    UnreadableDataError,
    VideoNotFoundError,
    not_read,
)
from ...storage.interface import Storage
from ...wording import counted
from ..dataset_files.layout import shard_key
from ..dataset_files.snapshots import open_current
from ..ragged import Array
from ..tables import Manifest

# Where files cannot be listed, each takes a request of its own.
_MAX_ASKED = 16


def lost_shards(dataset: Storage, manifest: Manifest, *, max_listed: int | None = None) -> dict[int, DatasetError]:
    """The error of each shard that is missing, has another length or cannot be read, by row. Only file metadata is
    read. In a store, one listing request covers a thousand shards; if there are more than `max_listed` shards, none is
    checked."""
    lost: dict[int, DatasetError] = {}
    if not len(manifest.shards) or (
        dataset.folder is None and max_listed is not None and len(manifest.shards) > max_listed
    ):
        return lost
    names, lengths = manifest.shards.name.texts(), manifest.shards.length.tolist()
    try:
        actual_lengths = _lengths(dataset, [shard_key(name) for name in names])
    except OSError as error:
        refused = not_read(dataset.place("shards"), error)
        return dict.fromkeys(range(len(names)), refused)
    for row, (name, expected, actual) in enumerate(zip(names, lengths, actual_lengths, strict=True)):
        file = dataset.place(shard_key(name))
        if isinstance(actual, OSError):
            lost[row] = not_read(file, actual, remedy=lost_remedy(dataset))
        elif actual is not None and actual != expected:
            lost[row] = (MissingDataError if actual < expected else CorruptDataError)(
                f"{file} has {actual} bytes, the manifest says {expected}; it was changed after it was written; "
                f"{lost_remedy(dataset)}",
                file=file,
            )
    return lost


def _lengths(dataset: Storage, keys: Sequence[str]) -> list[int | OSError | None]:
    """The length of each file, or why it is not known; None where that would take too many requests."""
    if dataset.folder is not None:
        return [_stat(dataset.place(key)) for key in keys]
    try:
        # One request tells of a thousand files.
        found = {stored.key: stored.num_bytes for stored in dataset.files("shards")}
    except OSError as error:
        # Web servers list nothing, and permission to read objects need not include permission to list them.
        if error.errno not in (errno.ENOTSUP, errno.EACCES, errno.EPERM):
            raise
        return [_asked(dataset, key) for key in keys] if len(keys) <= _MAX_ASKED else [None] * len(keys)
    return [found.get(key, _gone()) for key in keys]


def _stat(file: str) -> int | OSError:
    try:
        return os.stat(file).st_size  # noqa: PTH116  # making a Path takes longer than this call
    except OSError as error:
        return error


def _asked(dataset: Storage, key: str) -> int | OSError:
    try:
        stored = dataset.find(key)
    except OSError as error:
        return error
    return _gone() if stored is None else stored.num_bytes


def _gone() -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def lost_remedy(dataset: Storage) -> str:
    """What to do about a shard that is gone or damaged."""
    return (
        "run `shortgop prep` on the same sources again, or "
        f"`shortgop verify {quote(str(dataset))} --repair SOURCES`, or copy the shard to the dataset again"
    )


def damage_remedy(dataset: Storage) -> str:
    """What to do about a shard that has the right length but other bytes than were written."""
    return f"run `shortgop verify {quote(str(dataset))} --repair SOURCES`, or copy the shard to the dataset again"


def lost_videos(manifest: Manifest, shards: Collection[int]) -> Array:
    """The rows of the videos that lie in any of `shards` (rows of the shards table): int64, ascending."""
    if not shards:
        return np.zeros(0, dtype=np.int64)
    hit = np.flatnonzero(np.isin(manifest.segments.shard, list(shards)))
    return np.unique(np.searchsorted(manifest.first_segments, hit, side="right") - 1)


def was_removed(dataset: Storage, shard: str) -> bool:
    """Whether the current snapshot has no shard of this name: it was removed with earlier snapshots."""
    try:
        return shard not in open_current(dataset)[1].shards.name.texts()
    except DatasetError:
        return False


def lost_text(dataset: Storage, manifest: Manifest, lost: Mapping[int, DatasetError]) -> str:
    """A message to the user about lost shards, in one or two sentences."""
    videos, shards = len(lost_videos(manifest, lost)), counted(len(manifest.shards), "shard")
    refused = [error for error in lost.values() if isinstance(error, UnreadableDataError)]
    if len(refused) == len(lost):
        return (
            f"{videos} of {counted(len(manifest.videos), 'video')} of {dataset} cannot be read now, or only in part: "
            f"the system refuses {len(lost)} of {shards}, the first: {refused[0].message}"
        )
    first = next(error for error in lost.values() if not isinstance(error, UnreadableDataError))
    return (
        f"{videos} of {counted(len(manifest.videos), 'video')} of {dataset} cannot be read, or only in part: "
        f"{len(lost)} of {shards} {'is' if len(lost) == 1 else 'are'} missing or damaged, the first: "
        f"{_without_remedy(dataset, first)}. To repair this, {lost_remedy(dataset)}"
    )


def why_lost(dataset: Storage, manifest: Manifest, lost: Mapping[int, DatasetError]) -> dict[str, str]:
    """What is wrong with each video that lies in one of these shards, by id.

    Raises the first UnreadableDataError. A disk that does not answer, or a missing permission, is no reason to make
    videos again.
    """
    for error in lost.values():
        if isinstance(error, UnreadableDataError):
            raise error
    return {
        manifest.videos.id.text(video): _without_remedy(dataset, lost[shard])
        for shard in lost
        for video in lost_videos(manifest, {shard}).tolist()
    }


def _without_remedy(dataset: Storage, error: DatasetError) -> str:
    return error.message.removesuffix(f"; {lost_remedy(dataset)}")


def where_it_is(manifest: Manifest, video_id: str) -> tuple[str, int] | None:
    """The shard and the offset at which a video starts. None if the manifest has no video with this id."""
    try:
        segment = int(manifest.first_segments[manifest.row_of(video_id)])
    except VideoNotFoundError:
        return None
    shard = int(manifest.segments.shard[segment])
    return manifest.shards.name.text(shard), int(manifest.segments.offset[segment])
