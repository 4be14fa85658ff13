"""The content of a dataset in a few numbers, with a summary of each video: `shortgop info`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...storage.interface import Storage
from ..dataset_files.snapshots import open_current
from ..ragged import Array
from ..shared_memory.host_copies import copies_in
from ..tables import Failures, Manifest
from .lost import lost_shards, lost_text, lost_videos


@dataclass(frozen=True)
class VideoSummary:
    """One video. `fps` is an exact fraction as text, `path` the source's absolute path. `given_up`, `dropped`,
    `repeated` and `salvaged` (frames that show an earlier one in place of a lost one) say what differs from the source.
    `pipeline`: what decoded, scaled and encoded it, and why. `lost` is true if a shard that holds some of
    the video is missing or damaged."""

    id: str
    source: str
    path: str
    num_frames: int
    fps: str
    duration_seconds: float
    width: int
    height: int
    codec: str
    pipeline: dict[str, str]
    attributes: dict[str, Any]
    given_up: tuple[str, ...]
    dropped: int | None
    repeated: int | None
    salvaged: int
    lost: bool


@dataclass(frozen=True)
class FailureSummary:
    """A source that is not in the dataset; `path` is its absolute path."""

    id: str
    source: str
    reason: str
    path: str


def failure_summaries(table: Failures) -> tuple[FailureSummary, ...]:
    """The sources that are not in the dataset. Withdrawn failures, whose sources no longer exist, are left out."""
    columns = (table.id.texts(), table.source.texts(), table.reason.texts(), table.path.texts())
    return tuple(failure for row in zip(*columns, strict=True) if (failure := FailureSummary(*row)).reason)


@dataclass(frozen=True)
class Size:
    """How much there is of some videos. `num_bytes` are those of their segments, or of all shards."""

    num_frames: int
    num_gops: int
    num_bytes: int
    duration_seconds: float


def size_of(manifest: Manifest, rows: Array | None = None) -> Size:
    """The size of all videos with their shards, or of the videos in these rows."""
    videos, gops, segments = manifest.videos, manifest.gops, manifest.segments
    seconds = videos.num_frames * videos.fps_den / videos.fps_num
    if rows is None:
        return Size(int(videos.num_frames.sum()), len(gops), int(manifest.shards.length.sum()), float(seconds.sum()))
    chosen = np.zeros(len(videos), dtype=bool)
    chosen[rows] = True
    in_gops, in_segments = (np.repeat(chosen, counts) for counts in (manifest.gop_counts, manifest.segment_counts))
    num_bytes = gops.length.sum(where=in_gops, dtype=np.int64) + segments.init_length.sum(where=in_segments)
    frames = videos.num_frames[rows]
    return Size(int(frames.sum()), int(in_gops.sum()), int(num_bytes), float(seconds[rows].sum()))


@dataclass(frozen=True)
class Summary:
    """A dataset. `num_bytes` is the size of its shards. `trouble` says what is wrong with the shards and what to do, or
    is None."""

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
    trouble: str | None


def summarize(dataset: Storage, *, max_videos: int | None = None) -> Summary:
    """Read the tables of the current snapshot, and check that the shards exist with their full lengths. `videos` has
    the first `max_videos`, by default all: an object for each."""
    root, manifest = open_current(dataset, copies=copies_in(None))
    lost = lost_shards(dataset, manifest)
    lost_rows = set(lost_videos(manifest, lost).tolist())
    videos = [_video_summary(manifest, row, lost=row in lost_rows) for row in range(len(manifest.videos))[:max_videos]]
    size = size_of(manifest)
    return Summary(
        format_version=root.format_version,
        snapshot=root.snapshot or "",
        profile=root.profile,
        num_videos=len(manifest.videos),
        num_frames=size.num_frames,
        num_gops=size.num_gops,
        num_shards=len(manifest.shards),
        num_bytes=size.num_bytes,
        duration_seconds=size.duration_seconds,
        videos=videos,
        failures=list(failure_summaries(manifest.failures)),
        trouble=lost_text(dataset, manifest, lost) if lost else None,
    )


def _video_summary(manifest: Manifest, row: int, *, lost: bool) -> VideoSummary:
    video = manifest.video(row)
    config, changes = manifest.config(video.config), manifest.changes(row)
    return VideoSummary(
        id=video.id,
        source=video.source,
        path=video.path,
        num_frames=video.num_frames,
        fps=str(video.fps),
        duration_seconds=float(video.duration),
        width=config.width,
        height=config.height,
        codec=config.codec,
        pipeline=manifest.pipeline(video.config),
        attributes=video.attributes,
        given_up=changes.given_up,
        dropped=changes.dropped,
        repeated=changes.repeated,
        salvaged=changes.num_salvaged,
        lost=lost,
    )
