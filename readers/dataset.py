"""A dataset that `shortgop.open` opened: its videos, by id or number, and what is known of them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from fractions import Fraction
from numbers import Integral
from reprlib import repr as shortened
from typing import Any, ClassVar, overload

import torch

from ..errors import WrongTypeError
from ..lazy import lazy
from ..manifests.dataset_files.root_file import FORMAT_VERSION
from ..manifests.dataset_files.video_columns import LabelColumns
from ..manifests.operations.lost import lost_videos
from ..manifests.operations.summary import FailureSummary, failure_summaries, size_of
from ..manifests.ragged import Array
from ..stays_as_made import StaysAsMade
from ..warned import warn
from .checked_ids import CheckedIds
from .chosen import ChosenRows
from .columns import Columns
from .conditions import Condition, chosen_videos, mask_of_slice, unknown_values
from .frame_format import FrameFormat
from .frames import ClipBatch
from .indices import Indices, resolved_requests
from .metadata import DatasetMetadata
from .reader import SnapshotReader
from .stats import Stats
from .table import arrow_table, pandas_table
from .times import seconds_of, seconds_tensor
from .video import Video

_OPTIONS = (
    *(field.name for field in fields(FrameFormat)),
    *("snapshot", "device", "fallback", "threads", "pool_bytes", "cache_dir", "cache_bytes"),
    *("max_gap_bytes", "hedge_after", "give_up_after", "strict"),
)


class Dataset(StaysAsMade):
    """The videos of one snapshot of a dataset, by id or by number; made by `shortgop.open`.

    `len` is the number of videos; iteration gives them in the order of their numbers. Any number of threads may use it,
    and so may forked processes. A pickled dataset is little more than its path; the copy opens the same snapshot.

    `columns` has what is known of all videos as numpy arrays, and `where` makes a dataset of those that are wanted.
    """

    _OPTIONS_ARE_PARAMETERS: ClassVar = False
    _REMEDIES: ClassVar = {name: f"open the dataset anew, with {name}=..." for name in _OPTIONS}

    def __init__(
        self,
        reader: SnapshotReader,
        profile: dict[str, Any],
        lost_shards: tuple[int, ...] = (),
        format_version: int = FORMAT_VERSION,
        chosen: ChosenRows | None = None,
    ) -> None:
        self._reader = reader
        self._chosen = ChosenRows(len(reader.manifest.videos)) if chosen is None else chosen
        self._profile = profile
        self._lost_shards = lost_shards
        self._format_version = format_version
        self._stays(Dataset)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self._reader, self._profile, self._lost_shards, self._format_version, self._chosen)

    @property
    def ids(self) -> Sequence[str]:
        """The id of every video, in the order of their numbers. To shuffle or sort them, take list(dataset.ids).

        UsageError here, from `columns`, and where videos are asked for by number, once the list was changed in place.
        """
        self._check_ids()
        return self._ids.given

    @lazy
    def _ids(self) -> CheckedIds:
        ids, rows = self._reader.manifest.ids, self._chosen.rows
        return CheckedIds(ids if rows is None else (ids[row] for row in rows.tolist()))

    def _check_ids(self) -> None:
        """UsageError where ids were given to somebody who changed them. Ids that nobody asked for are not made."""
        given: CheckedIds | None = vars(self).get("_ids")
        if given is not None:
            given.check()

    @property
    def columns(self) -> Columns:
        """What is known of every video, and what the source lists said of it, by the names of columns.

            dataset.columns["label"]  # int64, (videos,), in the order of the videos' numbers
            dataset.columns["num_frames"]  # also id, source, fps, duration_seconds, width, height, codec

        Each column is read when it is first asked for; opening a dataset reads none. A snapshot of an earlier version
        has no label columns: they are then made of each video's attributes, which takes seconds for a million videos.
        """
        self._check_ids()
        return self._columns

    @lazy
    def _columns(self) -> Columns:
        reader = self._reader
        labels = LabelColumns(reader.dataset, reader.snapshot, reader.manifest)
        return Columns(reader.manifest, labels, self._chosen.rows)

    def where(self, condition: Condition | None = None, /, **equals: Any) -> Dataset:
        """The dataset of those videos that meet a condition, and have these values in these columns.

            dataset.where(split="train", label=3)
            dataset.where(lambda columns: (columns["num_frames"] > 100) & (columns["label"] != 2))
            dataset.where(numpy.isin(dataset.columns["label"], [3, 5]))  # or dataset[mask]

        `condition` is a boolean for each video, or a function of `columns` that returns these. A value None stands for
        videos without one. The result reads, pickles and iterates as a dataset that has only these videos, in their
        order and with numbers from 0. It shares this one's tables, memory and counts, and nothing is copied. Its
        `failures` are those of the whole dataset. No videos at all are a dataset too; if a value is one that no video
        of the snapshot has in its column, such as a misspelt split, a DatasetWarning names some that there are.

        UsageError for a column that is not there, a value of a kind that the column does not have, or a condition of
        another length; WrongTypeError for a condition that is not boolean.
        """
        mask = chosen_videos(self.columns, len(self), condition, equals)
        for text in [] if mask.any() else unknown_values(self.columns, equals):
            warn(text)
        return Dataset(self._reader, self._profile, self._lost_shards, self._format_version, self._chosen.only(mask))

    def to_table(self) -> Any:
        """All `columns` as a pyarrow.Table. Missing values are null. A label of several types is JSON text.

        ToolError without pyarrow.
        """
        return arrow_table(self.columns)

    def to_pandas(self) -> Any:
        """All `columns` as a pandas.DataFrame. ToolError without pandas."""
        return pandas_table(self.columns)

    @property
    def device(self) -> torch.device:
        """Where frames come: the CPU, or the GPU that decodes them."""
        return self._reader.device

    @property
    def lost_ids(self) -> tuple[str, ...]:
        """The ids of videos whose shards were missing or of another length when the dataset was opened."""
        manifest = self._reader.manifest
        lost = lost_videos(manifest, self._lost_shards).tolist()
        return tuple(manifest.videos.id.text(row) for row in lost if row in self._chosen)

    @property
    def failures(self) -> tuple[FailureSummary, ...]:
        """The sources that are not in the dataset, each with its reason."""
        return failure_summaries(self._reader.manifest.failures)

    @property
    def metadata(self) -> DatasetMetadata:
        """What the dataset contains, in a few numbers."""
        size = size_of(self._reader.manifest, self._chosen.rows)
        return DatasetMetadata(
            format_version=self._format_version,
            snapshot=self._reader.snapshot,
            profile=self._profile,
            num_videos=len(self),
            num_frames=size.num_frames,
            num_gops=size.num_gops,
            num_bytes=size.num_bytes,
            duration_seconds=size.duration_seconds,
            failures=self.failures,
        )

    def __repr__(self) -> str:
        of = "" if self._chosen.rows is None else f" of {len(self._reader.manifest.videos)}"
        return (
            f"<Dataset {str(self._reader.dataset)!r}, snapshot {self._reader.snapshot}: "
            f"{len(self)}{of} {'video' if len(self) == 1 and not of else 'videos'}>"
        )

    def __len__(self) -> int:
        return self._chosen.count

    def __iter__(self) -> Iterator[Video]:
        self._check_ids()
        return (self._video(row) for row in self._chosen.all_rows().tolist())

    def __contains__(self, video_id: object) -> bool:
        if not isinstance(video_id, str):
            return False
        row = self._reader.manifest.row_of_id.get(video_id)
        return row is not None and row in self._chosen

    @overload
    def __getitem__(self, key: str | int) -> Video: ...
    @overload
    def __getitem__(self, key: slice | Array | Sequence[bool] | torch.Tensor) -> Dataset: ...
    def __getitem__(self, key: Any) -> Video | Dataset:
        """The video with this id or number; -1 is the last one. VideoNotFoundError, a KeyError, when there is none.

        With a boolean for each video, the dataset of those where it is True, as `where` makes it. With a slice, such as
        dataset[:100], the dataset of these; its step is positive.
        """
        if isinstance(key, slice):
            return self.where(mask_of_slice(key, len(self)))
        if _is_list_of_keys(key):
            raise WrongTypeError(
                f"{shortened(key)} is no video: a dataset takes one id or number, a slice, or a boolean for each "
                "video. For several videos write [dataset[key] for key in keys], choose them by columns with "
                "dataset.where(...), or give ClipDataset their ids or numbers as videos=..."
            )
        if _is_mask(key):
            return self.where(key)
        if not isinstance(key, str):
            self._check_ids()
        return self._video(self._row_of(key))

    def get_clips(self, requests: Sequence[tuple[str | int, Indices]], *, out: torch.Tensor | None = None) -> ClipBatch:
        """Read clips of any videos as one batch. A request is a video's id or number, and its frames in any order.

        Each GOP is read and decoded once, however many clips need frames of it. With `out`, a contiguous tensor such as
        an earlier batch's `data`, the frames are written there. UsageError when clips differ in the number of frames or
        in their size, when they cannot fit into memory, or when `out` has another shape, dtype or device. No requests
        give an empty batch; a side of its frames is 0 if it differs in the dataset and `open` was given no size.
        """
        rows, frames = resolved_requests(self._reader, self._row_of, requests, has_output=out is not None)
        data = self._reader.read(rows, frames, out)
        videos = self._reader.manifest.videos
        rates = [Fraction(int(videos.fps_num[row]), int(videos.fps_den[row])) for row in rows]
        times = [[seconds_of(frame, fps) for frame in clip] for fps, clip in zip(rates, frames, strict=True)]
        durations = [[seconds_of(1, fps)] * len(clip) for fps, clip in zip(rates, frames, strict=True)]
        return ClipBatch(
            data,
            pts_seconds=seconds_tensor(times).view(data.shape[:2]),
            duration_seconds=seconds_tensor(durations).view(data.shape[:2]),
        )

    def stats(self) -> Stats:
        """Counts and times of all reading, of its videos too, since this process opened the dataset or was forked.

        What `where` makes of a dataset counts together with it. The difference of two results covers the reading
        between them.
        """
        return self._reader.stats()

    def _row_of(self, key: str | int) -> int:
        return self._chosen.row_of(key, self._reader.manifest)

    def _video(self, row: int) -> Video:
        return Video(self._reader, row)


def _is_list_of_keys(key: Any) -> bool:
    """Whether a key is a list of ids or numbers, and not of booleans."""
    if not _is_mask(key):
        return False
    values = key.tolist() if hasattr(key, "tolist") else key
    return bool(values) and all(isinstance(each, (str, Integral)) and not isinstance(each, bool) for each in values)


def _is_mask(key: Any) -> bool:
    return isinstance(key, (list, tuple)) or getattr(key, "ndim", 0) > 0


def reader_of(dataset: Dataset) -> SnapshotReader:
    """The reader of a dataset, with its tables open: for other rooms of this package, and not a public name."""
    return dataset._reader  # noqa: SLF001  # in the module that the attribute belongs to


def chosen_of(dataset: Dataset) -> ChosenRows:
    """Which videos of its snapshot a dataset has: for other rooms of this package, and not a public name."""
    return dataset._chosen  # noqa: SLF001  # in the module that the attribute belongs to


def columns_of(dataset: Dataset) -> Columns:
    """The columns of a dataset, for use by rows, whatever became of its list of ids: for other rooms of this package,
    and not a public name."""
    return dataset._columns  # noqa: SLF001  # in the module that the attribute belongs to


def rows_of(dataset: Dataset, keys: Sequence[str | int]) -> list[int]:
    """The rows of videos by id or number; VideoNotFoundError when there is none. For other rooms of this package, and
    not a public name."""
    if not all(isinstance(key, str) for key in keys):
        dataset._check_ids()  # noqa: SLF001  # in the module that the method belongs to
    manifest, chosen = reader_of(dataset).manifest, chosen_of(dataset)
    return [chosen.row_of(key, manifest) for key in keys]
