"""Making videos again whose frames in a dataset were lost: which those are, and what to say of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..manifests.tables import Manifest
from .units import Item
from .work import Failure


@dataclass(frozen=True)
class LostVideo:
    """A video of the dataset that cannot be read as it was written. `revision` is that of the next attempt at it."""

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
    """What to say of a source that is another file than the one that the dataset has."""
    given = item.source.given
    if item.source.id in lost:
        reason = (
            f"{given} has changed since it was prepared, so that its frames in the dataset, which are lost "
            f"({lost[item.source.id].why}), cannot be made again: bring back the old file, or copy the shard to the "
            "dataset again"
        )
    else:
        reason = (
            f"{given} has changed since it was prepared; its frames in the dataset are the old ones: "
            "prepare it into a new dataset, or under another id in a list"
        )
    return Failure(item.source.id, given, reason, item.source.path)


def with_loss(failure: Failure, lost: Mapping[str, LostVideo]) -> Failure:
    """A failure that also says that what the dataset had of the source is lost, where it is."""
    if failure.id not in lost:
        return failure
    return replace(failure, reason=f"{failure.reason}; its frames in the dataset are lost: {lost[failure.id].why}")
