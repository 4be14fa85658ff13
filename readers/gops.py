"""The bytes of GOPs, found through the manifest and held against their CRC-32."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..manifests.dataset import shard_path
from ..manifests.errors import CorruptDataError, DatasetError, DecodeError
from ..manifests.tables import Manifest
from .byte_source import ByteSource
from .plan import GopPlan
from .ranges import ByteRange, coalesce

# A hole this long costs about as much to copy as another read costs to ask for.
_MAX_GAP_BYTES = 1 << 16
# Bounds what a long request holds besides its frames.
_MAX_READ_BYTES = 1 << 22
# Far below the 1024 descriptors that a process usually may have.
_MAX_OPEN_FILES = 64


class GopStore:
    """Reads the GOPs of one manifest; may be used by any number of threads."""

    def __init__(self, dataset: Path, manifest: Manifest) -> None:
        self._manifest = manifest
        self._paths = [shard_path(dataset, name) for name in manifest.shards.name.texts()]
        self._source = ByteSource(max_open_files=_MAX_OPEN_FILES)

    def fetch(self, gops: Sequence[GopPlan]) -> Iterator[tuple[GopPlan, memoryview]]:
        """Each GOP with its bytes (moof + mdat), in the order in which they lie in the shards.

        Little more is in memory at a time than one read. CorruptDataError or MissingDataError when bytes are not those
        that were written.
        """
        ranges = [self._range(gop) for gop in gops]
        for read in coalesce(ranges, max_gap_bytes=_MAX_GAP_BYTES, max_read_bytes=_MAX_READ_BYTES):
            gop, whole = gops[read.parts[0]], read.range
            try:
                data = memoryview(self._source.read(self._paths[whole.file], whole.start, whole.stop))
                for part in read.parts:
                    gop, place = gops[part], ranges[part]
                    gop_data = data[place.start - whole.start : place.stop - whole.start]
                    _check(gop_data, int(self._manifest.gops.crc32[gop.gop]))
                    yield gop, gop_data
            except DatasetError as error:
                raise self.located(error, gop) from error

    def init(self, gop: GopPlan) -> bytes:
        """ftyp + moov of the segment that a GOP lies in."""
        table = self._manifest.segments
        start = int(table.offset[gop.segment])
        stop = start + int(table.init_length[gop.segment])
        file = self._paths[int(table.shard[gop.segment])]
        try:
            data = self._source.read(file, start, stop)
            _check(data, int(table.init_crc32[gop.segment]))
        except DatasetError as error:
            raise type(error)(
                f"the init of video {gop.video!r}: {error.message}",
                video=gop.video,
                segment=gop.segment,
                file=str(file),
                byte_range=(start, stop),
            ) from error
        return data

    def located(self, error: DatasetError | DecodeError, gop: GopPlan) -> DatasetError | DecodeError:
        """The same error about this GOP, saying which of whose frames are concerned and where they lie."""
        place = self._range(gop)
        pattern = int(self._manifest.gops.pattern[gop.gop])
        last = gop.first_frame + len(self._manifest.patterns.frames.row(pattern)) - 1
        return type(error)(
            f"frames {gop.first_frame} to {last} of video {gop.video!r}: {error.message}",
            video=gop.video,
            frame=gop.first_frame,
            segment=gop.segment,
            file=str(self._paths[place.file]),
            byte_range=(place.start, place.stop),
        )

    def _range(self, gop: GopPlan) -> ByteRange:
        start = int(self._manifest.gops.offset[gop.gop])
        stop = start + int(self._manifest.gops.length[gop.gop])
        return ByteRange(int(self._manifest.segments.shard[gop.segment]), start, stop)


def _check(data: bytes | memoryview, crc32: int) -> None:
    if zlib.crc32(data) != crc32:
        raise CorruptDataError(
            "the bytes are not those that were written, their CRC-32 differs: copy the shard to the dataset again"
        )
