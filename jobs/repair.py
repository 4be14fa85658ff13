"""Videos whose frames in the dataset are lost: which they are, and what reports say of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..manifests.tables import Manifest
from .units import Item
from .work import Failure


@dataclass(frozen=True)
class LostVideo:
    """A video of the dataset that cannot be read as it was written. `revision` is the number that its next attempt
    gets."""

    identity: int
    revision: int
    why: str


def lost_videos(manifest: Manifest, why: Mapping[str, str]) -> dict[str, LostVideo]:
    """The videos that `why` names, by id."""
    videos = manifest.videos
    rows = {video_id: manifest.row_of(video_id) for video_id in why}
    return {
        video_id: LostVideo(int(videos.identity[row]), int(videos.revision[row]) + 1, why[video_id])
        for video_id, row in rows.items()
    }


def changed_failure(item: Item, lost: Mapping[str, LostVideo]) -> Failure:
    """The failure of a source whose file is not the one that was prepared."""
    given = item.source.given
    if item.source.id in lost:
        reason = (
            f"{given} has changed since it was prepared, so its lost frames in the dataset "
            f"({lost[item.source.id].why}) cannot be made again; bring back the old file, or copy the shard to the "
            "dataset again"
        )
    else:
        reason = (
            f"{given} has changed since it was prepared, and the dataset has the frames of the old file; "
            "prepare it into a new dataset, or under another id in a list"
        )
    return Failure(item.source.id, given, reason, item.source.path)


def with_loss(failure: Failure, lost: Mapping[str, LostVideo]) -> Failure:
    """The failure. If the source's frames in the dataset are lost, its reason also says so."""
    if failure.id not in lost:
        return failure
    return replace(failure, reason=f"{failure.reason}; its frames in the dataset are lost: {lost[failure.id].why}")
