"""The same requests as tasks of shortgop and of its peers, for `timing.alternate`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..manifests.ragged import Array
from ..readers.dataset import Dataset
from ..readers.video import Video
from .accesses import Clip, Request
from .files import VideoFile, scan
from .peers import Read
from .timing import Task


@dataclass(frozen=True, eq=False)
class FileSet:
    """What peers read: a file for each video, and which of its frames each frame of the video shows."""

    name: str
    files: Sequence[VideoFile]
    frames: Sequence[Array]

    @classmethod
    def of_exported(cls, name: str, paths: Sequence[str | Path]) -> Self:
        """Files with the videos' own frames, one for one."""
        files = [scan(path) for path in paths]
        return cls(name, files, [np.arange(len(file)) for file in files])

    @classmethod
    def of_sources(cls, name: str, videos: Sequence[Video], paths: Sequence[str | Path] | None = None) -> Self:
        """The videos' sources, or files at `paths` with all of the sources' frames."""
        sources = [scan(source_of(video)) for video in videos]
        frames = [shown(video, file) for video, file in zip(videos, sources, strict=True)]
        return cls(name, sources if paths is None else [scan(path) for path in paths], frames)


def source_of(video: Video) -> str:
    """The path of a video's source. A dataset from before paths were kept has only what was given."""
    return video.source_path or video.source


def shown(video: Video, source: VideoFile) -> Array:
    """For each frame of a video the number of the source's frame that it shows."""
    return source.frames_with(video.source_pts(range(len(video))).numpy())


def our_task(dataset: Dataset, numbers: Sequence[int], requests: Sequence[Request]) -> Task:
    """Requests name videos by their place in `numbers`. Clips of a batch are read together where their frames have the
    same size."""
    sizes = [(video.metadata.width, video.metadata.height) for video in (dataset[number] for number in numbers)]

    def task(number: int) -> Any:
        by_size: dict[tuple[int, int], list[Clip]] = {}
        for video, frames in requests[number]:
            by_size.setdefault(sizes[video], []).append((numbers[video], frames))
        return [dataset.get_clips(clips) for clips in by_size.values()]

    return task


def peer_task(read: Read, files: FileSet, requests: Sequence[Request], pool: Executor | None = None) -> Task:
    """One clip after the other, or as many at a time as the pool has threads."""

    def read_clip(clip: Clip) -> Any:
        video, frames = clip
        return read(files.files[video], files.frames[video][list(frames)].tolist())

    if pool is None:
        return lambda number: [read_clip(clip) for clip in requests[number]]
    return lambda number: list(pool.map(read_clip, requests[number]))
