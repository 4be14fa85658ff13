"""Reads the bytes of GOPs from the shards, and checks them against the CRC-32 in the manifest."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from ..errors import DatasetError, DecodeError, MissingDataError
from ..manifests.dataset_files.layout import shard_key
from ..manifests.operations.lost import damage_remedy, lost_remedy, was_removed
from ..manifests.operations.shard_bytes import ShardBytes, ShardPiece, gop_piece
from ..manifests.records import VideoRow
from ..manifests.tables import Manifest
from ..storage.interface import Storage
from ..storage.range_cache import Entry, RangeCache
from .decoders.base import Buffer
from .fetching import FetchedBatch, Fetcher
from .plan import ByteRange, GopPlan, coalesce
from .read_limits import ON_DISK, ReadLimits
from .stats import ReadTally

Fetch = Callable[["GopRead"], Iterator[tuple[GopPlan, Buffer]]]


@dataclass(frozen=True)
class GopRead:
    """GOPs that are read at once: bytes [start, stop) of a shard, and the piece of each GOP."""

    key: str
    start: int
    stop: int
    gops: tuple[tuple[GopPlan, ShardPiece], ...]


def longest_first(reads: Sequence[GopRead], cost: Callable[[GopPlan], int]) -> list[GopRead]:
    """The reads, those first whose GOPs cost most together: no engine is left with a long one at the end."""
    return sorted(reads, key=lambda read: -sum(cost(gop) for gop, _ in read.gops))


class GopStore:
    """Reads the GOPs of one manifest. Any number of threads may use it."""

    def __init__(
        self, dataset: Storage, manifest: Manifest, limits: ReadLimits = ON_DISK, cache: RangeCache | None = None
    ) -> None:
        self._dataset = dataset
        self._limits = limits
        self._manifest = manifest
        self._keys = [shard_key(name) for name in manifest.shards.name.texts()]
        self._source = ShardBytes(dataset, lost_remedy=lost_remedy(dataset), damage_remedy=damage_remedy(dataset))
        self.tally = ReadTally(dataset.opens, dataset.counts)
        self.fetcher: Fetcher | None = None
        """Fetches from a store, or through the cache. None for a disk: the threads that decode read it themselves."""
        if dataset.folder is None or cache is not None:
            self.fetcher = Fetcher(self._source, cache, limits, self.tally)

    def reads(self, gops: Sequence[GopPlan], *, max_parts: int) -> list[GopRead]:
        """Reads that fetch these GOPs, in the order of the shards, with at most `max_parts` GOPs each."""
        pieces = [gop_piece(self._manifest, gop.gop) for gop in gops]
        ranges = [ByteRange(self._shard(gop), piece.start, piece.stop) for gop, piece in zip(gops, pieces, strict=True)]
        limits = self._limits
        return [
            GopRead(
                self._keys[read.range.file],
                read.range.start,
                read.range.stop,
                tuple((gops[part], pieces[part]) for part in read.parts),
            )
            for read in coalesce(
                ranges,
                max_gap_bytes=limits.max_gap_bytes,
                max_read_bytes=limits.max_read_bytes,
                max_parts=max_parts,
            )
        ]

    def will_need(self, reads: Sequence[GopRead]) -> None:
        """Have these bytes on their way, or in the memory of the system, when they are fetched. Nothing waits."""
        if self.fetcher is not None:
            self.fetcher.will_need(self._entries(reads))
            return
        for read in reads:
            self._dataset.will_need(read.key, read.start, read.stop)

    def fetching(self, reads: Sequence[GopRead]) -> AbstractContextManager[Fetch]:
        """A function, for a block, that yields each GOP of one of these reads with its bytes (moof + mdat).

        CorruptDataError when they are not the bytes that prep wrote; MissingDataError, UnreadableDataError.
        """
        if self.fetcher is None:
            return contextlib.nullcontext(self._read)
        return self._on_their_way(self.fetcher, reads)

    @contextlib.contextmanager
    def _on_their_way(self, fetcher: Fetcher, reads: Sequence[GopRead]) -> Iterator[Fetch]:
        with fetcher.batch(self._entries(reads)) as batch:
            yield partial(self._taken, batch)

    def _read(self, read: GopRead) -> Iterator[tuple[GopPlan, Buffer]]:
        started = time.perf_counter()
        gop = read.gops[0][0]
        try:
            data = memoryview(self._source.read(read.key, read.start, read.stop))
            self.tally.add(reads=1, bytes_read=read.stop - read.start, io_seconds=time.perf_counter() - started)
            for gop, piece in read.gops:
                started = time.perf_counter()
                gop_data = self._source.checked(
                    data[piece.start - read.start : piece.stop - read.start], read.key, piece, on_read=self._count
                )
                self.tally.add(io_seconds=time.perf_counter() - started)
                yield gop, gop_data
        except DatasetError as error:
            raise self.located(error, gop) from error

    def _taken(self, batch: FetchedBatch, read: GopRead) -> Iterator[tuple[GopPlan, Buffer]]:
        for gop, piece in read.gops:
            try:
                data = batch.take(self._entry(read.key, piece))
            except DatasetError as error:
                raise self.located(error, gop) from error
            yield gop, data

    def _entries(self, reads: Sequence[GopRead]) -> list[Entry]:
        return [self._entry(read.key, piece) for read in reads for _, piece in read.gops]

    def _entry(self, key: str, piece: ShardPiece) -> Entry:
        return Entry(self._dataset.url, key, piece.start, piece.stop, piece.crc32)

    def fill_cache(self, videos: Sequence[VideoRow]) -> Iterator[VideoRow]:
        """Fetch the GOPs of videos that the cache does not have, and mark the others as used: yields each video that
        is done. Nothing happens without a cache."""
        if self.fetcher is None:
            return
        of_videos = [self._entries_of(video) for video in videos]
        with self.fetcher.batch([entry for entries in of_videos for entry in entries]) as batch:
            for video, entries in zip(videos, of_videos, strict=True):
                for entry in entries:
                    batch.take(entry)
                yield video
        self.fetcher.finish()

    def _entries_of(self, video: VideoRow) -> list[Entry]:
        shards = self._manifest.segments.shard
        return [
            self._entry(
                self._keys[int(shards[video.first_segment + number // video.segment_gops])],
                gop_piece(self._manifest, video.first_gop + number),
            )
            for number in range(video.num_gops)
        ]

    def _count(self, num_bytes: int) -> None:
        self.tally.add(reads=1, bytes_read=num_bytes)

    def located(self, error: DatasetError | DecodeError, gop: GopPlan) -> DatasetError | DecodeError:
        """The same error with the GOP's video, frames, file and byte range."""
        piece = gop_piece(self._manifest, gop.gop)
        pattern = int(self._manifest.gops.pattern[gop.gop])
        last = gop.first_frame + len(self._manifest.patterns.frames.row(pattern)) - 1
        video, shard = self._manifest.videos.id.text(gop.video), self._shard(gop)
        file = self._dataset.place(self._keys[shard])
        message = error.message
        if isinstance(error, MissingDataError) and was_removed(self._dataset, self._manifest.shards.name.text(shard)):
            message = (
                f"{file} was removed together with the snapshot that needed it (see `shortgop gc`); open the dataset "
                "again to read the current snapshot"
            )
        return type(error)(
            f"frames {gop.first_frame} to {last} of video {video!r}: {message}",
            video=video,
            frame=gop.first_frame,
            segment=gop.segment,
            file=file,
            byte_range=(piece.start, piece.stop),
        )

    def _shard(self, gop: GopPlan) -> int:
        return int(self._manifest.segments.shard[gop.segment])
