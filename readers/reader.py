"""Reads frames into a tensor: plans what to decode, fetches the bytes, decodes them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..arguments import integer
from ..errors import CorruptDataError, DecodeError, UsageError, VideoNotFoundError, WrongTypeError
from ..manifests.layout import open_manifest, open_timeline
from ..manifests.ragged import Array
from ..manifests.records import VideoRow
from ..manifests.tables import Manifest
from ..wording import counted
from .convert.copies import copy_frame
from .decoders.base import Decoder, GopRequest
from .decoders.pyav import PyavDecoder
from .gops import GopRead, GopStore
from .memory_limit import fits, too_many
from .memory_pool import MemoryPool
from .metadata import VideoMetadata, video_metadata
from .output import Output
from .plan import VideoGops, plan_frames
from .stats import Stats
from .workers import Workers

# Parts of a request for each thread: enough that no thread waits long for the last ones to finish.
_PARTS_PER_THREAD = 3


@dataclass(frozen=True)
class ReadOptions:
    """The options that a dataset was opened with."""

    output: Output
    threads: int
    pool_bytes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "threads", integer(self.threads, "threads"))
        if self.threads < 1:
            raise UsageError(f"threads is {self.threads!r}; it is how many threads decode, 1 or more")


class SnapshotReader:
    """Reads one snapshot of a dataset: its tables, its files and a decoder.

    Any number of threads may use it, and so may a forked process. It can be pickled: the copy opens the same snapshot
    again.
    """

    def __init__(self, dataset: Path, snapshot: str, options: ReadOptions, manifest: Manifest) -> None:
        self.dataset = dataset
        self.snapshot = snapshot
        self.manifest = manifest
        self.options = options
        self._decoder: Decoder = PyavDecoder(options.output)
        self._store = GopStore(dataset, manifest)
        self._workers = Workers(options.threads)
        self._pool = MemoryPool(options.pool_bytes)
        self._gops = VideoGops.of(manifest)
        # A dataset has only a few of each.
        self._configs = [manifest.config(index) for index in range(len(manifest.configs))]
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._patterns = [manifest.pattern(index) for index in range(len(manifest.patterns))]

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.dataset, self.snapshot, self.options)

    def read(self, videos: list[int], frames: list[list[int]], out: torch.Tensor | None = None) -> torch.Tensor:
        """Frame `frames[i][j]` of the video in row `videos[i]`: (clips, frames, ...), on the decoder's device.

        The frames have to exist. With `out`, they are written there. Besides the output, each thread has at most one
        read of a few MB in memory, and what the decoder holds of one GOP.
        """
        shape = (len(frames), len(frames[0]) if frames else 0, *self._frame_shape(videos))
        if out is None:
            if frames:
                self.check_fits(videos[0], shape[0] * shape[1])
            out = self._new_output(shape)
        else:
            _check_out(out, shape, self.options.output.dtype, self._decoder.device)
        if 0 in shape:
            return out
        slots = out.view(-1, *shape[2:])
        plan = plan_frames(self._gops, zip(videos, frames, strict=True))
        share = len(plan.gops)
        if self.options.threads > 1:
            share = -(-share // (self.options.threads * _PARTS_PER_THREAD))
        reads = self._store.reads(plan.gops, max_parts=share)
        self._workers.each(lambda read: self._decode(read, slots), reads)
        for slot, original in plan.repeats:
            copy_frame(slots[original], slots[slot])
        self._store.tally.add(frames_delivered=len(slots))
        return out

    def _new_output(self, shape: tuple[int, ...]) -> torch.Tensor:
        out, reused = self._pool.empty(shape, self.options.output.dtype)
        if reused is not None:
            self._store.tally.add(pool_hits=int(reused), pool_misses=int(not reused))
        return out

    def row_of(self, key: str | int) -> int:
        """The row of the video with this id or number; -1 is the last. VideoNotFoundError when there is none."""
        if isinstance(key, str):
            return self.manifest.row_of(key)
        try:
            number = integer(key, "a video's number")
        except WrongTypeError as error:
            raise WrongTypeError(f"{error.message}, or its id as a string") from None
        count = len(self.manifest.videos)
        row = number + count if number < 0 else number
        if not 0 <= row < count:
            raise VideoNotFoundError(f"the dataset has no video number {number}: it has {counted(count, 'video')}")
        return row

    def check_fits(self, video: int, count: int, *, before: int = 0, has_output: bool = False) -> None:
        """UsageError when `count` frames of a video, and `before` other frames of that size, cannot fit into memory.

        With `has_output` the memory for the pixels exists already. Callers may build nothing that grows with `count`
        before they call this.
        """
        frame_bytes = 0 if has_output else math.prod(self._shape(video)) * self.options.output.dtype.itemsize
        if not fits(before + count, frame_bytes):
            raise too_many(before + count, frame_bytes, video=self._id(video))

    def stats(self) -> Stats:
        """Counts and times of reading in this process."""
        return self._store.tally.stats()

    def _shape(self, video: int) -> tuple[int, ...]:
        """The shape of a video's frames; UsageError when the crop does not fit."""
        config = int(self.manifest.videos.config[video])
        if config not in self._shapes:
            size = self._configs[config]
            try:
                self._shapes[config] = self.options.output.frame_shape(size.height, size.width)
            except UsageError as error:
                name = self._id(video)
                raise UsageError(f"video {name!r}: {error.message}", video=name) from None
        return self._shapes[config]

    def _frame_shape(self, videos: list[int]) -> tuple[int, ...]:
        """The shape of the frames of these videos; UsageError when it differs, or the crop does not fit."""
        if not videos:
            return self._shape_of_no_video()
        first = self._shape(videos[0])
        for video in videos:
            if self._shape(video) != first:
                one, other = self._id(videos[0]), self._id(video)
                raise UsageError(
                    f"frames of video {other!r} have shape {self._shape(video)}, those of video {one!r} "
                    f"{first}: open the dataset with size=(height, width) to read both in one batch",
                    video=other,
                )
        return first

    def _shape_of_no_video(self) -> tuple[int, ...]:
        """The shape of all frames of the dataset if it is the same; otherwise sides that differ are 0."""
        output = self.options.output
        try:
            shapes = {output.frame_shape(config.height, config.width) for config in self._configs}
        except UsageError:
            shapes = set()
        return shapes.pop() if len(shapes) == 1 else output.shape_of_no_frame()

    def _id(self, video: int) -> str:
        return self.manifest.videos.id.text(video)

    def _decode(self, read: GopRead, slots: torch.Tensor) -> None:
        """Read some GOPs, and decode the requested frames into their slots."""
        for gop, data in self._store.fetch(read):
            config = self._configs[self.manifest.videos.config[gop.video]]
            pattern = self._patterns[self.manifest.gops.pattern[gop.gop]]
            started = time.perf_counter()
            try:
                cost = self._decoder.decode(GopRequest(config, pattern, data, gop.frames, gop.slots), slots)
            except (CorruptDataError, DecodeError) as error:
                raise self._store.located(error, gop) from error
            self._store.tally.add(
                gops_decoded=1,
                packets_read=len(pattern),
                packets_decoded=cost.packets,
                decode_seconds=time.perf_counter() - started - cost.conversion_seconds,
                conversion_seconds=cost.conversion_seconds,
                decoder_hits=int(cost.warm),
                decoder_misses=int(not cost.warm),
            )

    def timeline(self, video: VideoRow) -> Array:
        """The pts of the source frame that each frame of a video shows: int64, (num_frames,)."""
        return open_timeline(self.dataset, self.snapshot, video.first_frame, video.first_frame + video.num_frames)

    def metadata(self, video: VideoRow) -> VideoMetadata:
        """The metadata of a video."""
        lengths = self.manifest.gops.length[video.first_gop : video.first_gop + video.num_gops]
        return video_metadata(video, self._configs[video.config], int(lengths.sum()))


def _check_out(out: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    if not isinstance(out, torch.Tensor):
        raise WrongTypeError(f"out is a {type(out).__name__}; it has to be a tensor")
    if out.requires_grad or out.layout != torch.strided:
        raise UsageError("out requires a gradient or is sparse; it has to be an ordinary tensor")
    if tuple(out.shape) != shape or out.dtype != dtype or out.device != device or not out.is_contiguous():
        contiguous = "" if out.is_contiguous() else ", not contiguous"
        raise UsageError(
            f"out is {out.dtype} {tuple(out.shape)} on {out.device}{contiguous}; the frames take {dtype} {shape} on "
            f"{device}, contiguous"
        )


def _reopen(dataset: Path, snapshot: str, options: ReadOptions) -> SnapshotReader:
    return SnapshotReader(dataset, snapshot, options, open_manifest(dataset, snapshot))
