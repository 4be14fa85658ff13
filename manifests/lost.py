"""Which videos of a dataset cannot be read any more, because their shards are missing or were cut."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from .dataset import shard_path
from .errors import DatasetError, VideoNotFoundError
from .tables import Manifest


def lost_shards(dataset: Path, manifest: Manifest) -> dict[str, str]:
    """Shards that are missing or have another length than the manifest says, each with what is wrong with it.

    Only file metadata is read. DatasetError when it cannot be: a disk that does not answer, or a lack of
    permission, is no reason to make anything again.
    """
    lost = {}
    for name, expected in zip(manifest.shards.name.texts(), manifest.shards.length.tolist(), strict=True):
        file = shard_path(dataset, name)
        try:
            actual = file.stat().st_size
        except FileNotFoundError:
            lost[name] = f"{file} is missing"
        except OSError as error:
            raise DatasetError(
                f"{file} cannot be read: {error.strerror}; mend that and run the same command again", file=str(file)
            ) from error
        else:
            if actual != expected:
                lost[name] = f"{file} has {actual} bytes instead of {expected}"
    return lost


def videos_of_shards(manifest: Manifest, names: Collection[str]) -> dict[str, str]:
    """The videos with a segment in one of these shards: its name by the video's id."""
    shards = manifest.shards.name.texts()
    wanted = np.array([name in names for name in shards], dtype=bool)
    owners = np.repeat(np.arange(len(manifest.videos)), manifest.segment_counts)
    found: dict[str, str] = {}
    for segment in np.flatnonzero(wanted[manifest.segments.shard]).tolist():
        found.setdefault(manifest.ids[owners[segment]], shards[manifest.segments.shard[segment]])
    return found


def where_it_is(manifest: Manifest, video_id: str) -> tuple[str, int] | None:
    """Shard and offset at which a video starts, or None where the manifest has none of that id."""
    try:
        segment = int(manifest.first_segments[manifest.row_of(video_id)])
    except VideoNotFoundError:
        return None
    shard = int(manifest.segments.shard[segment])
    return manifest.shards.name.text(shard), int(manifest.segments.offset[segment])
