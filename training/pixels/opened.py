"""What clips need of an opened dataset beyond its public face: its tables, and what frames are turned into.

The one module of this room that uses the reader of a `shortgop.Dataset`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from ...arguments import fits_int64, is_boolean
from ...errors import UsageError, VideoNotFoundError, WrongTypeError
from ...lazy import lazy
from ...manifests.dataset_files.video_columns import BUILT_IN
from ...manifests.ragged import Array
from ...manifests.tables import Manifest
from ...readers.clip_output import ClipOutput
from ...readers.dataset import Dataset, chosen_of, columns_of, reader_of, rows_of
from ...readers.frame_format import FrameFormat
from ...readers.reader import SnapshotReader
from ...readers.times import seconds_of, seconds_tensor
from ...readers.video import Video
from ...warned import warn
from ...wording import and_others, counted
from ..which_clips.offsets import listed
from ..which_clips.references import ReferencedFrames
from ..which_clips.video_table import VideoTable
from .rows import Rows

# Rows whose ids are hashed at a time: few enough for memory.
_HASHED_AT_ONCE = 1 << 18
# Videos that a warning names.
_NAMED = 5


class OpenedDataset:
    """A dataset and its tables. Pickles as the dataset does: as little more than its path."""

    def __init__(self, dataset: Dataset, float_columns: frozenset[str] = frozenset()) -> None:
        self.dataset = dataset
        # Those of the checked columns in which some numbers are no integers.
        self._float_columns = float_columns

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenedDataset, (self.dataset, self._float_columns)

    @property
    def manifest(self) -> Manifest:
        return self._reader.manifest

    @property
    def _reader(self) -> SnapshotReader:
        return reader_of(self.dataset)

    @lazy
    def references(self) -> ReferencedFrames:
        return ReferencedFrames.of(self.manifest)

    @property
    def path(self) -> str:
        """Where the dataset lies."""
        return str(self._reader.dataset)

    @property
    def snapshot(self) -> str:
        """The name of the snapshot."""
        return self._reader.snapshot

    def fingerprint(self, rows: Array | None) -> str:
        """Differs where the videos in these rows, or all, are others, or were made from other sources. Snapshots and
        copies of the same videos have the same one, and so have videos that were stored or encoded again."""
        videos = self.manifest.videos
        count = len(videos) if rows is None else len(rows)
        digest = hashlib.blake2b(digest_size=8)
        for start in range(0, count, _HASHED_AT_ONCE):
            stop = min(start + _HASHED_AT_ONCE, count)
            chosen: Any = slice(start, stop) if rows is None else rows[start:stop]
            ids = videos.id.between(start, stop) if rows is None else videos.id.take(rows[start:stop])
            for column in (ids.offsets, videos.identity[chosen]):
                digest.update(np.ascontiguousarray(column).astype("<u8").data)
            digest.update(np.ascontiguousarray(ids.values).data)
        return digest.hexdigest()

    @property
    def chosen_rows(self) -> Array | None:
        """The rows of the dataset's videos where Dataset.where chose some; None for all."""
        return chosen_of(self.dataset).rows

    def rows(self, videos: Iterable[str | int]) -> Array:
        """The rows of videos by id or number, those of a set in the order of the dataset: a set has another one in each
        process, and ranks would read other clips than their share. VideoNotFoundError when there is none of that
        name."""
        if isinstance(videos, (set, frozenset)):
            return np.sort(self.rows(list(videos)))
        keys = listed(videos, "videos")
        if keys and all(map(is_boolean, keys)):
            raise WrongTypeError(
                "videos has booleans; it takes ids or numbers. For a boolean for each video give dataset[mask] of an "
                "open dataset in place of the dataset"
            )
        if any(isinstance(key, Video) for key in keys):
            raise WrongTypeError(
                "videos has objects of Video; it takes ids or numbers, such as video.id of each. A Dataset that has "
                "these videos alone is given in place of the dataset"
            )
        try:
            return np.array(rows_of(self.dataset, keys), dtype=np.int64)
        except VideoNotFoundError as error:
            missing = [key for key in keys if isinstance(key, str) and key not in self.dataset]
            # It may also be about a number among them.
            if len(missing) < 2 or error.video != missing[0]:
                raise
            raise VideoNotFoundError(
                f"{error}{and_others(missing, len(keys), 'videos')}; to leave these out, take "
                "[name for name in names if name in dataset], where dataset is the one that you gave, opened by "
                "shortgop.open if it was a path; leave out their intervals and labels, too",
                video=missing[0],
            ) from None

    def rows_at(self, numbers: Array) -> Array:
        """The rows of videos by their numbers, which exist."""
        return chosen_of(self.dataset).rows_at(numbers)

    def numbers_of(self, rows: Sequence[int] | Array) -> Array:
        """The numbers in the dataset of videos by their rows."""
        return chosen_of(self.dataset).numbers_of(rows)

    def table(self, rows: Array | None) -> VideoTable:
        """The videos in these rows, or all of the snapshot."""
        videos = self.manifest.videos
        chosen: Any = slice(None) if rows is None else rows
        return VideoTable(
            chosen=rows,
            num_frames=videos.num_frames[chosen],
            fps_num=videos.fps_num[chosen],
            fps_den=videos.fps_den[chosen],
            name=lambda place: videos.id.text(place if rows is None else int(rows[place])),
            references=lambda: self.references,
        )

    def check_columns(self, names: Sequence[str], rows: Array | None) -> None:
        """UsageError for a name that no column has. DatasetWarning where a column of the source lists has no value for
        some of the videos in these rows, or of all videos: it would come in the middle of an epoch."""
        columns = columns_of(self.dataset).of_all_videos
        for name in names:
            if name not in columns:
                raise UsageError(f"the dataset has no column {name!r}; it has {', '.join(columns)}")
            if columns.kind(name) == "float":
                self._float_columns |= {name}
            present = columns.present(name) if rows is None else columns.present(name)[rows]
            if present.all():
                continue
            lacking = np.flatnonzero(~present) if rows is None else rows[~present]
            ids = [repr(self.manifest.videos.id.text(row)) for row in lacking[:_NAMED].tolist()]
            warn(
                f"{len(lacking)} of {counted(len(present), 'video')} have no {name!r}: {', '.join(ids)}"
                f"{', ...' if len(lacking) > _NAMED else ''}; items of theirs have None there, of which no batch is "
                f"made. For those that have one, open the dataset and choose dataset.where(lambda columns: "
                f"columns.present({name!r}))"
            )

    @lazy
    def _own_columns(self) -> frozenset[str]:
        """The dataset's own columns in whose place no list has one."""
        return frozenset(BUILT_IN) - frozenset(columns_of(self.dataset).labels)

    def values(self, row: int, names: Sequence[str]) -> dict[str, Any]:
        """A video's values in columns, as in `Dataset.columns`: what the source list said, None where it said nothing,
        and what the dataset says itself of a name that no list has."""
        if not names:
            return {}
        attributes = json.loads(self.manifest.videos.attributes.text(row) or "{}")
        # Which columns the lists have is read only where it matters.
        return {
            name: BUILT_IN[name](self.manifest, np.array([row])).tolist()[0]
            if name not in attributes and name in BUILT_IN and name in self._own_columns
            else attributes.get(name)
            for name in names
        }

    def columns(self, row: int, names: Sequence[str]) -> dict[str, Any]:
        """The same with tensors for numbers: int64, float64 or bool. Integers of a column that `check_columns` found to
        have other numbers too are float64, so that those of a batch are of one type. Integers beyond 64 bits stay."""
        return {
            name: _tensor_of(float(value) if name in self._float_columns and type(value) is int else value)
            for name, value in self.values(row, names).items()
        }

    def check_plain(self) -> None:
        """UsageError when the dataset was opened with options that its outputs would not follow."""
        if self._reader.options.format != FrameFormat():
            raise UsageError(
                "outputs say what frames become: leave size, crop, dtype, normalize, color, interpolation and "
                "dimension_order of the dataset out, and give them to each shortgop.Output"
            )

    def shards(self, rows: Array) -> Array:
        """The numbers of the shards that hold the first segments of videos."""
        manifest = self.manifest
        return np.asarray(manifest.segments.shard[manifest.first_segments[rows]])

    def codec_configs(self, rows: Array) -> Array:
        """The numbers of the codec configurations of videos: those of one have frames of one size."""
        return np.asarray(self.manifest.videos.config[rows])

    def sizes_and_ids(self, rows: Sequence[int]) -> tuple[list[tuple[int, int]], list[str]]:
        """The (height, width) of the frames of videos, and their ids."""
        shapes, ids = self._reader.shapes, self.manifest.videos.id
        return [shapes.frame_size(row) for row in rows], [ids.text(row) for row in rows]

    def read(
        self, rows: list[int], frames: list[list[int]], outputs: Sequence[ClipOutput]
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Clips of videos in several ways, and when each frame is shown: seconds, float64, (clips, frames)."""
        return self._reader.read_outputs(rows, frames, outputs), self._pts_seconds(rows, frames)

    def read_into(
        self, videos: list[int], frames: list[list[int]], outputs: Mapping[str, ClipOutput] | None, rows: Rows
    ) -> torch.Tensor:
        """The same into these rows; returns when each frame is shown. Without outputs, "frames" are as the dataset was
        opened."""
        if videos:
            wanted = {"frames": self._reader.own_output(videos)} if outputs is None else outputs
            tensors = [rows.tensors[name] for name in wanted]
            self._reader.read_into(videos, frames, list(wanted.values()), tensors, rows.numbers)
        return self._pts_seconds(videos, frames)

    def will_need(self, videos: list[int], frames: list[list[int]]) -> None:
        """Ask the system to have the bytes of these frames in memory soon."""
        self._reader.will_need(videos, frames)

    def use_threads(self, threads: int) -> None:
        """Decode on this many threads from now on."""
        self._reader.use_threads(threads)

    @property
    def threads(self) -> int:
        """How many threads decode."""
        return self._reader.options.threads

    def on_threads(self, threads: int) -> AbstractContextManager[None]:
        """Decode on this many threads meanwhile."""
        return self._reader.on_threads(threads)

    def _pts_seconds(self, rows: list[int], frames: list[list[int]]) -> torch.Tensor:
        videos = self.manifest.videos
        times = []
        for row, clip in zip(rows, frames, strict=True):
            fps = Fraction(int(videos.fps_num[row]), int(videos.fps_den[row]))
            times.append([seconds_of(frame, fps) for frame in clip])
        return seconds_tensor(times)

    def format_of(self, rows: Sequence[int]) -> tuple[FrameFormat, list[bool]]:
        """What frames of the dataset are converted to, and whether those of these videos are of full range."""
        manifest = self.manifest
        full_range = manifest.configs.full_range[manifest.videos.config[np.asarray(rows, dtype=np.int64)]]
        return self._reader.options.format, full_range.astype(bool).tolist()


def _tensor_of(value: Any) -> Any:
    """A number as a tensor, on the CPU whatever torch's default device is; anything else as it is."""
    if isinstance(value, bool):
        return torch.tensor(value, device="cpu")
    if isinstance(value, int) and fits_int64(value):
        return torch.tensor(value, dtype=torch.int64, device="cpu")
    return torch.tensor(value, dtype=torch.float64, device="cpu") if isinstance(value, float) else value
