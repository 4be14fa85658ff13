"""What is in a dataset, in a few numbers and a row per video: `shortgop info`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .dataset import FORMAT_VERSION, check_shard_lengths, open_current


@dataclass(frozen=True)
class VideoSummary:
    """One video; `fps` is an exact fraction in text, `path` the source's absolute path. `given_up`, `dropped`,
    `repeated` and `salvaged` (frames that stand in for lost ones) say what differs from the source."""

    id: str
    source: str
    path: str
    num_frames: int
    fps: str
    duration_seconds: float
    width: int
    height: int
    codec: str
    attributes: dict[str, Any]
    given_up: tuple[str, ...]
    dropped: int | None
    repeated: int | None
    salvaged: int


@dataclass(frozen=True)
class FailureSummary:
    """A source that is not in the dataset; `path` is its absolute path."""

    id: str
    source: str
    reason: str
    path: str


@dataclass(frozen=True)
class Summary:
    """A dataset; `num_bytes` are those of its shards."""

    format_version: int
    snapshot: str
    profile: dict[str, Any]
    num_videos: int
    num_frames: int
    num_gops: int
    num_shards: int
    num_bytes: int
    duration_seconds: float
    videos: list[VideoSummary]
    failures: list[FailureSummary]


def summarize(dataset: Path) -> Summary:
    """Read the tables of the current snapshot and check that the shards are there in full length."""
    root, manifest = open_current(dataset)
    check_shard_lengths(dataset, manifest)
    videos = []
    for row in range(len(manifest.videos)):
        video = manifest.video(row)
        config, changes = manifest.config(video.config), manifest.changes(row)
        videos.append(
            VideoSummary(
                id=video.id,
                source=video.source,
                path=video.path,
                num_frames=video.num_frames,
                fps=str(video.fps),
                duration_seconds=float(video.duration),
                width=config.width,
                height=config.height,
                codec=config.codec,
                attributes=video.attributes,
                given_up=changes.given_up,
                dropped=changes.dropped,
                repeated=changes.repeated,
                salvaged=changes.num_salvaged,
            )
        )
    failures = manifest.failures
    texts = (failures.id.texts(), failures.source.texts(), failures.reason.texts(), failures.path.texts())
    return Summary(
        format_version=FORMAT_VERSION,
        snapshot=root.snapshot or "",
        profile=root.profile,
        num_videos=len(videos),
        num_frames=int(manifest.first_frames[-1]),
        num_gops=len(manifest.gops),
        num_shards=len(manifest.shards),
        num_bytes=int(manifest.shards.length.sum()),
        duration_seconds=sum(video.duration_seconds for video in videos),
        videos=videos,
        failures=[FailureSummary(*row) for row in zip(*texts, strict=True)],
    )
