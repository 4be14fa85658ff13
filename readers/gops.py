"""Reads the bytes of GOPs from the shards, and checks them against the CRC-32 in the manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import DatasetError, DecodeError, MissingDataError
from ..manifests.layout import shard_key
from ..manifests.lost import damage_remedy, lost_remedy, was_removed
from ..manifests.shard_bytes import Piece, ShardBytes, gop_piece
from ..manifests.tables import Manifest
from ..storage.interface import Storage
from .decoders.base import Buffer
from .plan import ByteRange, GopPlan, coalesce
from .stats import Tally

# Reading a gap of this length takes about as long as another read call.
_MAX_GAP_BYTES = 1 << 16
# Bounds the memory of a long request besides its frames.
_MAX_READ_BYTES = 1 << 22


@dataclass(frozen=True)
class GopRead:
    """GOPs that are read at once: bytes [start, stop) of a shard, and the piece of each GOP."""

    key: str
    start: int
    stop: int
    gops: tuple[tuple[GopPlan, Piece], ...]


def longest_first(reads: Sequence[GopRead], cost: Callable[[GopPlan], int]) -> list[GopRead]:
    """The reads, those first whose GOPs cost most together: no engine is left with a long one at the end."""
    return sorted(reads, key=lambda read: -sum(cost(gop) for gop, _ in read.gops))


class GopStore:
    """Reads the GOPs of one manifest. Any number of threads may use it."""

    def __init__(self, dataset: Storage, manifest: Manifest) -> None:
        self._dataset = dataset
        self._manifest = manifest
        self._keys = [shard_key(name) for name in manifest.shards.name.texts()]
        self._source = ShardBytes(dataset, lost_remedy=lost_remedy(dataset), damage_remedy=damage_remedy(dataset))
        self.tally = Tally(dataset.opens)

    def reads(self, gops: Sequence[GopPlan], *, max_parts: int) -> list[GopRead]:
        """Reads that fetch these GOPs, in the order of the shards, with at most `max_parts` GOPs each."""
        pieces = [gop_piece(self._manifest, gop.gop) for gop in gops]
        ranges = [ByteRange(self._shard(gop), piece.start, piece.stop) for gop, piece in zip(gops, pieces, strict=True)]
        limits = {"max_gap_bytes": _MAX_GAP_BYTES, "max_read_bytes": _MAX_READ_BYTES, "max_parts": max_parts}
        return [
            GopRead(
                self._keys[read.range.file],
                read.range.start,
                read.range.stop,
                tuple((gops[part], pieces[part]) for part in read.parts),
            )
            for read in coalesce(ranges, **limits)
        ]

    def will_need(self, reads: Sequence[GopRead]) -> None:
        """Tell the system which bytes are read soon."""
        for read in reads:
            self._dataset.will_need(read.key, read.start, read.stop)

    def fetch(self, read: GopRead) -> Iterator[tuple[GopPlan, Buffer]]:
        """Yield each GOP of a read with its bytes (moof + mdat).

        CorruptDataError when they are not the bytes that prep wrote; MissingDataError, UnreadableDataError.
        """
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
