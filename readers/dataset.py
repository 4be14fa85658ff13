"""A dataset opened for reading: `shortgop.open`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from numbers import Integral
from reprlib import repr as shortened
from typing import Any, overload

import numpy as np
import torch

from ..errors import UsageError, WrongTypeError
from ..manifests.dataset_files.layout import has_snapshot
from ..manifests.dataset_files.root_file import FORMAT_VERSION, read_root
from ..manifests.dataset_files.snapshots import open_current, open_manifest
from ..manifests.dataset_files.video_columns import LabelColumns
from ..manifests.operations.lost import lost_shards, lost_text, lost_videos
from ..manifests.operations.summary import FailureSummary, failure_summaries, size_of
from ..manifests.ragged import Array, lazy
from ..manifests.tables import Manifest
from ..storage.interface import Storage
from ..storage.locate import storage_at
from ..storage.network import NetworkOptions
from ..warned import warn
from ..wording import counted
from .chosen import ChosenRows
from .columns import Columns
from .conditions import Condition, chosen_videos, mask_of_slice, unknown_values
from .decoders.choose import DeviceChoice, caps_of, chosen, device_of
from .frame_format import Color, Crop, DimensionOrder, FrameFormat, Normalize, Size
from .frames import ClipBatch
from .indices import Indices, resolved_requests
from .metadata import DatasetMetadata
from .reader import ReadOptions, SnapshotReader
from .stats import Stats
from .store_options import cache_at, copies_of, limits_of, network_of
from .table import arrow_table, pandas_table
from .times import seconds_of, seconds_tensor
from .video import Video

# Ten requests' worth. In a store with more shards, a lost one is noticed when it is read.
_MAX_LISTED_SHARDS = 10_000


def open(  # noqa: A001
    path: str | os.PathLike[str],
    *,
    snapshot: str | None = None,
    dimension_order: DimensionOrder = "NCHW",
    size: Size | None = None,
    crop: Crop | None = None,
    dtype: torch.dtype = torch.uint8,
    normalize: Normalize | None = None,
    color: Color = "rgb",
    device: torch.device | str | None = None,
    fallback: bool = False,
    threads: int | None = None,
    pool_bytes: int = 1 << 30,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int = 1 << 35,
    max_gap_bytes: int | None = None,
    hedge_after: float | None = None,
    strict: bool = False,
) -> Dataset:
    """Open the dataset that `shortgop prep` made at `path`: its current or an earlier `snapshot`.

    The opened dataset does not change when jobs add videos. With `device="cuda"` (or "cuda:1") NVDEC decodes, and
    frames come as tensors on that GPU; docs/gpu.md says what that needs. Videos that NVDEC cannot take are an error
    here; with `fallback` they are decoded on the CPU and converted on the GPU. `threads` is the number of threads that
    decode the parts of a request, by default 1, and on a GPU 2 for each NVDEC engine. Memory of batches is used again
    once no tensor and no array shares it; all such memory, in use or not, is at most `pool_bytes`, and 0 turns this
    off. The tables of a large dataset are decoded once for all processes of the host, into a file below `cache_dir`, by
    default $XDG_CACHE_HOME/shortgop.

    Where `path` is the URL of a store, the ranges of a request are fetched several at once. With `cache_dir`, a folder
    on a local disk, GOPs that were fetched are kept there for all processes of the host: `cache_bytes` at most, those
    that were not used for longest go first. Ranges that are at most `max_gap_bytes` apart are fetched together, by
    default as many as a connection carries in the time that a request of `open` took. With `hedge_after`, a read that
    takes more seconds than this is requested again, and the first answer counts. The other options say what each frame
    is converted to:

    - `crop`: the part of each frame to take, (top, left, height, width) in pixels, with even top and left; or "center",
      the largest part in the middle with the aspect ratio of `size`.
    - `size`: resize to (height, width), or to a short side of this length, by antialiased bilinear interpolation.
    - `dtype`: torch.uint8, or torch.float32, torch.float16 or torch.bfloat16 with values from 0 to 1.
    - `normalize`: (mean, std), a number for each channel: values from 0 to 1, less mean, divided by std.
    - `color`: "rgb"; "ycbcr", planes Y, Cb and Cr of full size, from 0 to 255 as in JPEG, by the video's own matrix;
      "grey", the Y of these; or "yuv420" for the decoded planes Y, U and V as they are, (1, 3 * height / 2, width).
    - `dimension_order`: "NCHW" or "NHWC"; "yuv420" has but one.

    NotADatasetError when there is no dataset at `path`, or none that has results yet; FormatVersionError for a dataset
    of another version; MissingDataError, CorruptDataError or UnreadableDataError when its tables cannot be read.
    Opening compares the length of each shard with the manifest, in a store only of up to 10,000 shards. Missing shards
    and shards of another length cause a DatasetWarning with the number of videos in them (`Dataset.lost_ids`), and an
    error when such a video is read; with `strict` they cause the error at once.
    """
    frame_format = FrameFormat(size, crop, dtype, normalize, color, dimension_order)
    chosen_device = device_of(device)
    options = ReadOptions(frame_format, 1 if threads is None else threads, pool_bytes)
    options = replace(options, cache=cache_at(cache_dir, cache_bytes))
    place = _place(path, network_of(hedge_after))
    copies = copies_of(options.cache)
    if snapshot is None:
        root, manifest = open_current(place, copies=copies)
        snapshot = str(root.snapshot)
    else:
        root = read_root(place)
        if not isinstance(snapshot, str):
            raise WrongTypeError(
                f"snapshot is {snapshot!r}; it has to be a string such as {root.snapshot!r}", file=str(place)
            )
        # A snapshot is a number: "../other" would lead out of the dataset.
        if not snapshot.isdecimal() or not has_snapshot(place, snapshot):
            raise UsageError(
                f"{place} has no snapshot {snapshot!r}; its current one is {root.snapshot!r}, and jobs remove earlier "
                "ones after some time (prep --keep-snapshots says how long they stay)",
                file=str(place),
            )
        manifest = open_manifest(place, snapshot, copies=copies)
    options = replace(options, limits=limits_of(place, max_gap_bytes))
    if chosen_device.type != "cpu":
        choice = _choice(place, manifest, chosen_device, fallback=fallback)
        options = replace(options, threads=choice.threads(threads), device=choice)
    lost = lost_shards(place, manifest, max_listed=_MAX_LISTED_SHARDS)
    if lost and strict:
        raise next(iter(lost.values()))
    if lost:
        warn(lost_text(place, manifest, lost))
    _notice_swapped_sides(options.format, manifest)
    return Dataset(SnapshotReader(place, snapshot, options, manifest), root.profile, tuple(lost), root.format_version)


def _choice(place: Storage, manifest: Manifest, device: torch.device, *, fallback: bool) -> DeviceChoice:
    """Where the videos of a dataset are decoded. UsageError names those that the device cannot decode."""
    configs = [manifest.config(number) for number in range(len(manifest.configs))]
    choice, reasons = chosen(device, caps_of(device), configs, fallback=fallback)
    used = manifest.videos.config
    first_rows = {number: np.flatnonzero(used == number) for number in reasons}
    refused = {number: rows for number, rows in first_rows.items() if len(rows)}
    if refused and not fallback:
        count = sum(len(rows) for rows in refused.values())
        number, rows = next(iter(refused.items()))
        video = manifest.videos.id.text(int(rows[0]))
        raise UsageError(
            f"{device} cannot decode {count} of {counted(len(used), 'video')} of {place}, such as {video!r}: "
            f"{reasons[number]}. Open it with fallback=True to decode these on the CPU, or without device",
            video=video,
            file=str(place),
        )
    return choice


def _notice_swapped_sides(frame_format: FrameFormat, manifest: Manifest) -> None:
    """DatasetWarning where `size` is just the (width, height) of all videos: `prep --size` and shortgop.prepare name
    the width first, and frames would be stretched without a word. A crop by numbers may have any shape."""
    size = frame_format.size
    if not isinstance(size, tuple) or size[0] == size[1] or isinstance(frame_format.crop, tuple):
        return
    width, height = size
    configs = manifest.configs
    if len(configs) and (configs.width == width).all() and (configs.height == height).all():
        warn(
            f"size={size} is (height, width), and all videos have height {height} and width {width}: with "
            f"size={(height, width)} frames keep their shape"
        )


def _place(path: Any, network: NetworkOptions) -> Storage:
    try:
        return storage_at(path, network=network)
    except TypeError:
        raise WrongTypeError(f"path is {path!r}; it has to be the folder that `shortgop prep` wrote") from None


class Dataset:
    """The videos of one snapshot of a dataset, by id or by number; made by `shortgop.open`.

    `len` is the number of videos; iteration gives them in the order of their numbers. Any number of threads may use it,
    and so may forked processes. A pickled dataset is little more than its path; the copy opens the same snapshot.

    `columns` has what is known of all videos as numpy arrays, and `where` makes a dataset of those that are wanted.
    """

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

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self._reader, self._profile, self._lost_shards, self._format_version, self._chosen)

    @property
    def ids(self) -> Sequence[str]:
        """The id of every video, in the order of their numbers."""
        return self._ids

    @lazy
    def _ids(self) -> list[str]:
        ids, rows = self._reader.manifest.ids, self._chosen.rows
        return ids if rows is None else [ids[row] for row in rows.tolist()]

    @property
    def columns(self) -> Columns:
        """What is known of every video, and what the source lists said of it, by the names of columns.

            dataset.columns["label"]  # int64, (videos,), in the order of the videos' numbers
            dataset.columns["num_frames"]  # also id, source, fps, duration_seconds, width, height, codec

        Each column is read when it is first asked for; opening a dataset reads none. A snapshot of an earlier version
        has no label columns: they are then made of each video's attributes, which takes seconds for a million videos.
        """
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
        return self.where(key) if _is_mask(key) else self._video(self._row_of(key))

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
