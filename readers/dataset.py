"""A dataset opened for reading: `shortgop.open`."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from ..manifests.dataset import (
    FORMAT_VERSION,
    check_shard_lengths,
    open_current,
    open_manifest,
    read_root,
    snapshot_path,
)
from ..manifests.errors import UsageError, VideoNotFoundError
from ..manifests.summary import FailureSummary
from .metadata import DatasetMetadata
from .reader import SnapshotReader
from .video import DimensionOrder, Video


def open(  # noqa: A001
    path: str | os.PathLike[str],
    *,
    snapshot: str | None = None,
    decoder: str = "auto",
    dimension_order: DimensionOrder = "NCHW",
) -> Dataset:
    """Open the dataset that `shortgop prep` made at `path`, as it is now or as it was at an earlier `snapshot`.

    What other jobs add later is not seen. `decoder` is "auto", "pyav" or "torchcodec"; `dimension_order` is that of all
    frames. NotADatasetError when there is none, or none with results yet; FormatVersionError for another version;
    MissingDataError or CorruptDataError when files are missing, cut or damaged, as far as can be seen without reading
    them all.
    """
    if dimension_order not in get_args(DimensionOrder):
        raise UsageError(f'dimension_order is {dimension_order!r}; it can be "NCHW" or "NHWC"')
    # A copy may be opened in a process with another current folder.
    folder = Path(path).absolute()
    if snapshot is None:
        root, manifest = open_current(folder)
        snapshot = str(root.snapshot)
    else:
        root = read_root(folder)
        if not snapshot_path(folder, snapshot).is_dir():
            raise UsageError(
                f"{folder} has no snapshot {snapshot!r}; its current one is {root.snapshot!r}", file=str(folder)
            )
        manifest = open_manifest(folder, snapshot)
    check_shard_lengths(folder, manifest)
    return Dataset(SnapshotReader(folder, snapshot, decoder, manifest), root.profile, dimension_order)


class Dataset:
    """The videos of one snapshot of a dataset, by id or by number; made by `shortgop.open`.

    `len` is the number of videos, iteration gives them in the order of their numbers. May be used by any number of
    threads, goes on working in forked processes, and can be pickled, which takes little more than its path: the copy
    opens the same snapshot.
    """

    def __init__(self, reader: SnapshotReader, profile: dict[str, Any], dimension_order: DimensionOrder) -> None:
        self._reader = reader
        self._profile = profile
        self._dimension_order: DimensionOrder = dimension_order

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self._reader, self._profile, self._dimension_order)

    @property
    def ids(self) -> Sequence[str]:
        """Every video's id, in the order of their numbers."""
        return self._reader.manifest.ids

    @property
    def failures(self) -> tuple[FailureSummary, ...]:
        """The sources that are not in the dataset, each with its reason."""
        table = self._reader.manifest.failures
        columns = (table.id.texts(), table.source.texts(), table.reason.texts())
        return tuple(FailureSummary(*row) for row in zip(*columns, strict=True))

    @property
    def metadata(self) -> DatasetMetadata:
        """What is in it, in a few numbers."""
        manifest = self._reader.manifest
        videos = manifest.videos
        return DatasetMetadata(
            format_version=FORMAT_VERSION,
            snapshot=self._reader.snapshot,
            profile=self._profile,
            num_videos=len(videos),
            num_frames=int(manifest.first_frames[-1]),
            num_gops=len(manifest.gops),
            num_bytes=int(manifest.shards.length.sum()),
            duration_seconds=float((videos.num_frames * videos.fps_den / videos.fps_num).sum()),
            failures=self.failures,
        )

    def __repr__(self) -> str:
        return f"<Dataset {str(self._reader.dataset)!r}, snapshot {self._reader.snapshot}: {len(self)} videos>"

    def __len__(self) -> int:
        return len(self._reader.manifest.videos)

    def __iter__(self) -> Iterator[Video]:
        return (self._video(row) for row in range(len(self)))

    def __contains__(self, video_id: object) -> bool:
        if not isinstance(video_id, str):
            return False
        try:
            self._reader.manifest.row_of(video_id)
        except VideoNotFoundError:
            return False
        return True

    def __getitem__(self, key: str | int) -> Video:
        """The video with this id or number, -1 being the last. VideoNotFoundError, a KeyError, when there is none."""
        if isinstance(key, str):
            return self._video(self._reader.manifest.row_of(key))
        number = operator.index(key)
        row = number + len(self) if number < 0 else number
        if not 0 <= row < len(self):
            raise VideoNotFoundError(f"the dataset has no video number {number}: it has {len(self)} videos")
        return self._video(row)

    def _video(self, row: int) -> Video:
        return Video(self._reader, self._reader.manifest.video(row), self._dimension_order)
