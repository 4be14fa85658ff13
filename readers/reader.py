"""Reads frames into tensors. The heart is `SnapshotReader._fill`: it plans what to decode, fetches the bytes of the
GOPs, and decodes them into their places."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..arguments import integer
from ..errors import CorruptDataError, DecodeError, UsageError
from ..manifests.dataset_files.snapshots import open_manifest, open_timeline
from ..manifests.ragged import Array
from ..manifests.records import VideoRow
from ..manifests.shared_memory.shared_tables import TablesToShare
from ..manifests.tables import Manifest
from ..storage.interface import Storage
from ..storage.range_cache import RangeCache
from .clip_output import ClipOutput, check_outputs, geometry_numbers, target_of
from .convert.copies import copy_frame
from .decoders.base import Buffer, Decoder, GopRequest, Target
from .decoders.choose import ON_CPU, DeviceChoice, decoder_for
from .frame_format import FrameFormat, Geometry
from .frame_shapes import FrameShapes
from .gops import GopStore, longest_first
from .memory_limit import fits, too_many
from .memory_pool import MemoryPool
from .metadata import VideoMetadata, video_metadata
from .output_tensors import check_out, empty_on, wrong_rows
from .plan import GopPlan, VideoGops, needed_samples, plan_frames
from .read_limits import ON_DISK, ReadLimits
from .stats import Stats
from .store_options import copies_of
from .workers import Workers

# Parts of a request for each thread: enough that no thread waits long for the last ones to finish.
_PARTS_PER_THREAD = 3


@dataclass(frozen=True)
class ReadOptions:
    """The options that a dataset was opened with."""

    format: FrameFormat
    threads: int
    pool_bytes: int
    device: DeviceChoice = ON_CPU
    limits: ReadLimits = ON_DISK
    cache: RangeCache | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "threads", integer(self.threads, "threads"))
        if self.threads < 1:
            raise UsageError(f"threads is {self.threads!r}; it is how many threads decode, 1 or more")


class SnapshotReader:
    """Reads one snapshot of a dataset: its tables, its files and a decoder.

    Any number of threads may use it, and so may a forked process. It can be pickled: the copy opens the same snapshot
    again; in a process that is started by "spawn" or "forkserver" it shares this one's tables.
    """

    def __init__(
        self, dataset: Storage, snapshot: str, options: ReadOptions, manifest: Manifest, decoder: Decoder | None = None
    ) -> None:
        """`decoder` is another one than `options` call for. A pickled copy does not have it."""
        self.dataset = dataset
        self.snapshot = snapshot
        self.manifest = manifest
        self.options = options
        self._pixels, self._layout = options.format.pixels, options.format.layout
        self._store = GopStore(dataset, manifest, options.limits, options.cache)
        self._tables_to_share = TablesToShare(manifest)
        self._workers_by_threads: dict[int, Workers] = {}
        self._take_workers(options.threads)
        self._pool = MemoryPool(options.pool_bytes)
        self._gops = VideoGops.of(manifest)
        # A dataset has only a few of each.
        self._configs = [manifest.config(index) for index in range(len(manifest.configs))]
        self._decoder = decoder_for(options.device, self._configs) if decoder is None else decoder
        self.shapes = FrameShapes(manifest, self._configs, options.format)
        self._patterns = [manifest.pattern(index) for index in range(len(manifest.patterns))]

    def __reduce__(self) -> tuple[Any, ...]:
        # Any other copy may be unpickled at any time and place.
        tables = (self._tables_to_share,) if self._tables_to_share.are_wanted else ()
        return _reopen, (self.dataset, self.snapshot, self.options, *tables)

    @property
    def device(self) -> torch.device:
        """Where frames come."""
        return self._decoder.device

    def read(self, videos: list[int], frames: list[list[int]], out: torch.Tensor | None = None) -> torch.Tensor:
        """Frame `frames[i][j]` of the video in row `videos[i]`: (clips, frames, ...), on the decoder's device.

        The frames have to exist. With `out`, they are written there. Besides the output, each thread has at most one
        read of a few MB in memory, and what the decoder holds of one GOP.
        """
        shape = (len(frames), len(frames[0]) if frames else 0, *self.shapes.shared_shape(videos))
        if out is None:
            if frames:
                self.check_fits(videos[0], shape[0] * shape[1])
            out = self._new_output(shape, self.options.format.dtype)
        else:
            check_out(out, shape, self.options.format.dtype, self._decoder.device)
        if 0 not in shape:
            self._fill(videos, frames, [self.own_output(videos)], [out])
        return out

    def own_output(self, videos: list[int]) -> ClipOutput:
        """What clips of these videos become with the options that the dataset was opened with. UsageError when frames
        of these videos differ in size."""
        geometries = [self.shapes.geometry(video) for video in videos]
        if any(each.size != geometries[0].size for each in geometries):
            # The error names two videos whose frames differ.
            self.shapes.shared_shape(videos)
        return ClipOutput(self._pixels, geometries, layout=self._layout)

    def read_outputs(
        self, videos: list[int], frames: list[list[int]], outputs: Sequence[ClipOutput]
    ) -> list[torch.Tensor]:
        """The same clips in several ways, of one decode: each output is (clips, ...), in the order of its layout.

        The frames have to exist, and each output has a geometry for each clip. UsageError when a geometry does not lie
        within its frames, when those of an output make frames of different sizes, or when all of them cannot fit into
        memory. A frame that no output has is not decoded.
        """
        count = len(frames[0]) if frames else 0
        sizes = [self.shapes.frame_size(video) for video in videos]
        shapes = [check_outputs(output, sizes, count) for output in outputs]
        clip_bytes = sum(
            math.prod(shape[1:]) * output.pixels.dtype.itemsize for shape, output in zip(shapes, outputs, strict=True)
        )
        # A device's memory is asked for when it is taken.
        if count and self._decoder.device.type == "cpu" and not fits(len(frames) * count, -(-clip_bytes // count)):
            raise too_many(len(frames) * count, -(-clip_bytes // count), video=self._id(videos[0]))
        tensors = [self._new_output(shape, each.pixels.dtype) for shape, each in zip(shapes, outputs, strict=True)]
        self._fill(videos, frames, outputs, tensors)
        return tensors

    def read_into(
        self,
        videos: list[int],
        frames: list[list[int]],
        outputs: Sequence[ClipOutput],
        tensors: Sequence[torch.Tensor],
        rows: Sequence[int],
    ) -> None:
        """Like `read`, into existing tensors, (rows, ...), one for each output: clip i goes to row `rows[i]` of each.

        No row is named twice. UsageError also when a tensor does not have the shape and dtype of its output.
        """
        sizes = [self.shapes.frame_size(video) for video in videos]
        for output, tensor in zip(outputs, tensors, strict=True):
            shape = check_outputs(output, sizes, len(frames[0]) if frames else 0)[1:]
            if frames and (tuple(tensor.shape[1:]), tensor.dtype) != (shape, output.pixels.dtype):
                raise wrong_rows(output, shape, tensor, video=self._id(videos[0]))
        self._fill(videos, frames, outputs, tensors, rows)

    def will_need(self, videos: list[int], frames: list[list[int]]) -> None:
        """Ask the system to have the bytes of these frames in memory soon. It does not wait, and nothing fails."""
        plan = plan_frames(self._gops, zip(videos, frames, strict=True))
        self._store.will_need(self._store.reads(plan.gops, max_parts=len(plan.gops)))

    def fill_cache(self, videos: Sequence[int]) -> Iterator[int]:
        """Fetch the GOPs of videos that the cache does not have: yields, for each video that is done, how many bytes
        came from the store meanwhile."""
        before = self.stats().bytes_read
        for _ in self._store.fill_cache([self.manifest.video(video) for video in videos]):
            fetched = self.stats().bytes_read
            yield fetched - before
            before = fetched

    def use_threads(self, threads: int) -> None:
        """Decode on this many threads from now on. UsageError for less than 1."""
        self.options = replace(self.options, threads=threads)
        self._take_workers(threads)

    @contextlib.contextmanager
    def on_threads(self, threads: int) -> Iterator[None]:
        """Decode on this many threads meanwhile, and then on those of the options again."""
        self._take_workers(threads)
        try:
            yield
        finally:
            self._take_workers(self.options.threads)

    def _take_workers(self, threads: int) -> None:
        # Those of other numbers stay: a loader changes them for each of its units.
        self._workers = self._workers_by_threads.setdefault(threads, Workers(threads))

    def check_fits(self, video: int, count: int, *, before: int = 0, has_output: bool = False) -> None:
        """UsageError when `count` frames of a video, and `before` other frames of that size, cannot fit into memory.

        With `has_output` the memory for the pixels exists already. Callers may build nothing that grows with `count`
        before they call this.
        """
        has_memory = has_output or self._decoder.device.type != "cpu"
        frame_bytes = 0 if has_memory else math.prod(self.shapes.shape(video)) * self.options.format.dtype.itemsize
        if not fits(before + count, frame_bytes):
            raise too_many(before + count, frame_bytes, video=self._id(video))

    def stats(self) -> Stats:
        """Counts and times of reading in this process."""
        return self._store.tally.stats()

    def timeline(self, video: VideoRow) -> Array:
        """The pts of the source frame that each frame of a video shows: int64, (num_frames,)."""
        with open_timeline(self.dataset, self.snapshot, self.manifest) as read:
            return read(video.first_frame, video.first_frame + video.num_frames)

    def metadata(self, video: VideoRow) -> VideoMetadata:
        """The metadata of a video."""
        lengths = self.manifest.gops.length[video.first_gop : video.first_gop + video.num_gops]
        return video_metadata(video, self._configs[video.config], int(lengths.sum()))

    def _fill(
        self,
        videos: list[int],
        frames: list[list[int]],
        outputs: Sequence[ClipOutput],
        tensors: Sequence[torch.Tensor],
        rows: Sequence[int] | None = None,
    ) -> None:
        """Decode into these tensors, one for each output, and into these rows of them, or all."""
        targets = [target_of(output, tensor) for output, tensor in zip(outputs, tensors, strict=True)]
        geometries, wanted = geometry_numbers(outputs, rows)
        plan = plan_frames(self._gops, zip(videos, frames, strict=True), wanted)
        share = len(plan.gops)
        workers = self._workers
        if workers.threads > 1:
            share = -(-share // (workers.threads * _PARTS_PER_THREAD))
        reads = self._store.reads(plan.gops, max_parts=share)
        if self._decoder.device.type != "cpu":
            reads = longest_first(reads, self._decode_cost)
        started = time.perf_counter()
        with self._decoder.request(), self._store.fetching(reads) as fetch:
            workers.each(lambda read: self._decode(fetch(read), targets, geometries), reads)
        seconds = time.perf_counter() - started
        for output, slot, original in plan.repeats:
            copy_frame(targets[output].slot(original), targets[output].slot(slot))
        self._store.tally.add(
            frames_delivered=len(frames) * sum(target.slots.shape[1] for target in targets),
            engine_seconds=seconds * self.options.device.engines,
        )

    def _decode(
        self, gops: Iterable[tuple[GopPlan, Buffer]], targets: Sequence[Target], geometries: Sequence[Geometry]
    ) -> None:
        """Decode the requested frames of some GOPs into their places. Each comes with its bytes."""
        for gop, data in gops:
            config = self._configs[self.manifest.videos.config[gop.video]]
            pattern = self._patterns[self.manifest.gops.pattern[gop.gop]]
            started = time.perf_counter()
            try:
                request = GopRequest(config, pattern, data, gop.frames, gop.places, geometries, gop=gop.gop)
                cost = self._decoder.decode(request, targets)
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

    def _new_output(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self._decoder.device.type != "cpu":
            self._decoder.check_process()
            return empty_on(self._decoder.device, shape, dtype)
        out, reused = self._pool.empty(shape, dtype)
        if reused is not None:
            self._store.tally.add(pool_hits=int(reused), pool_misses=int(not reused))
        return out

    def _decode_cost(self, gop: GopPlan) -> int:
        """Pixels that are decoded for the wanted frames of a GOP."""
        height, width = self.shapes.frame_size(gop.video)
        return height * width * len(needed_samples(self._patterns[self.manifest.gops.pattern[gop.gop]], gop.frames))

    def _id(self, video: int) -> str:
        return self.manifest.videos.id.text(video)


def _reopen(dataset: Storage, snapshot: str, options: ReadOptions, manifest: Manifest | None = None) -> SnapshotReader:
    if manifest is None:
        manifest = open_manifest(dataset, snapshot, copies=copies_of(options.cache))
    return SnapshotReader(dataset, snapshot, options, manifest)
