"""Lost shards of a dataset: which they are, which videos lie in them, and what to do. Also where a video lies."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from ..errors import CorruptDataError, DatasetError, MissingDataError, UnreadableDataError, VideoNotFoundError, not_read
from ..wording import counted
from .layout import open_current, shard_path
from .ragged import Array
from .tables import Manifest


def lost_shards(dataset: Path, manifest: Manifest) -> dict[int, DatasetError]:
    """The error of each shard that is missing, has another length or cannot be read, by row. Only file metadata is
    read."""
    lost = {}
    folder = str(shard_path(dataset, ""))
    lengths = manifest.shards.length.tolist()
    for row, (name, expected) in enumerate(zip(manifest.shards.name.texts(), lengths, strict=True)):
        file = f"{folder}/{name}"
        try:
            actual = os.stat(file).st_size  # noqa: PTH116  # making a Path takes longer than this call
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
    """What to do about a shard that has the right length but other bytes than were written."""
    return f"run `shortgop verify {dataset} --repair SOURCES`, or copy the shard to the dataset again"


def lost_videos(manifest: Manifest, shards: Collection[int]) -> Array:
    """The rows of the videos that lie in any of `shards` (rows of the shards table): int64, ascending."""
    if not shards:
        return np.zeros(0, dtype=np.int64)
    hit = np.isin(manifest.segments.shard, list(shards))
    video_of_segment = np.repeat(np.arange(len(manifest.videos)), manifest.segment_counts)
    return np.unique(video_of_segment[hit])


def was_removed(dataset: Path, shard: str) -> bool:
    """Whether the current snapshot has no shard of this name: it was removed with earlier snapshots."""
    try:
        return shard not in open_current(dataset)[1].shards.name.texts()
    except DatasetError:
        return False


def lost_text(dataset: Path, manifest: Manifest, lost: Mapping[int, DatasetError]) -> str:
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


def why_lost(dataset: Path, manifest: Manifest, lost: Mapping[int, DatasetError]) -> dict[str, str]:
    """What is wrong with each video that lies in one of these shards, by id.

    Raises the first UnreadableDataError. A disk that does not answer, or a missing permission, is no reason to make
    videos again.
    """
    for error in lost.values():
        if isinstance(error, UnreadableDataError):
            raise error
    return {
        manifest.ids[video]: _without_remedy(dataset, lost[shard])
        for shard in lost
        for video in lost_videos(manifest, {shard}).tolist()
    }


def _without_remedy(dataset: Path, error: DatasetError) -> str:
    return error.message.removesuffix(f"; {lost_remedy(dataset)}")


def where_it_is(manifest: Manifest, video_id: str) -> tuple[str, int] | None:
    """The shard and the offset at which a video starts. None if the manifest has no video with this id."""
    try:
        segment = int(manifest.first_segments[manifest.row_of(video_id)])
    except VideoNotFoundError:
        return None
    shard = int(manifest.segments.shard[segment])
    return manifest.shards.name.text(shard), int(manifest.segments.offset[segment])
