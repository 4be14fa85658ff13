"""The few boxes of an MP4 that shortgop reads: the init (ftyp + moov) and one fragment (moof + mdat) per GOP.

`sample_bounds` is the fast path for readers: many times a second they need the byte ranges of a GOP's samples, and
nothing else.

Box layouts are those of ISO/IEC 14496-12 (base format) and 14496-15 (avcC, hvcC), and of AV1's binding (av1C). All
functions here are pure functions of bytes. They raise CorruptDataError for bytes that do not follow these layouts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ..errors import CorruptDataError
from .ragged import Array
from .records import CodecConfig

Buffer = bytes | bytearray | memoryview

# tfhd and trun flags, ISO/IEC 14496-12, 8.8.7 and 8.8.8. The optional fields follow each other in this order.
_TFHD_DURATION, _TFHD_SIZE = 0x8, 0x10
_TFHD_OPTIONAL = ((0x2, "I"), (_TFHD_DURATION, "I"), (_TFHD_SIZE, "I"), (0x20, "I"))
_TFHD_BASE_DATA_OFFSET, _TFHD_DEFAULT_BASE_IS_MOOF = 0x1, 0x20000
_TRUN_DATA_OFFSET, _TRUN_FIRST_FLAGS = 0x1, 0x4
_TRUN_DURATION, _TRUN_SIZE, _TRUN_FLAGS, _TRUN_COMPOSITION = 0x100, 0x200, 0x400, 0x800
_TRUN_COLUMNS = (_TRUN_DURATION, _TRUN_SIZE, _TRUN_FLAGS, _TRUN_COMPOSITION)
_TRUN_ANY_COLUMN = sum(_TRUN_COLUMNS)

# Presentation times are sums of ticks; below this they fit an int64.
_MAX_TICKS = 1 << 62

_CODECS = {
    b"avc1": ("h264", b"avcC"),
    b"hvc1": ("hevc", b"hvcC"),
    b"hev1": ("hevc", b"hvcC"),
    b"av01": ("av1", b"av1C"),
}
_VISUAL_SAMPLE_ENTRY_BYTES = 78


class Box(NamedTuple):
    """A box's four-character type and where it lies: header at `start`, payload in [body, stop)."""

    type: bytes
    start: int
    body: int
    stop: int


@dataclass(frozen=True)
class Init:
    """The content of ftyp + moov. `timescale` is ticks per second, `media_time_ticks` the pts that the edit list puts
    at time 0 (with B-frames the first pts is later than the first dts)."""

    codec: str
    extradata: bytes
    width: int
    height: int
    timescale: int
    media_time_ticks: int
    primaries: int
    transfer: int
    matrix: int
    full_range: bool

    @property
    def config(self) -> CodecConfig:
        """The part that a decoder needs."""
        return CodecConfig(
            codec=self.codec,
            extradata=self.extradata,
            width=self.width,
            height=self.height,
            primaries=self.primaries,
            transfer=self.transfer,
            matrix=self.matrix,
            full_range=self.full_range,
        )


@dataclass(frozen=True, eq=False)
class Fragment:
    """The sample table of one fragment, in decode order.

    `offsets` count bytes from the first byte of the moof; `composition_ticks` is pts - dts of each sample.
    """

    sequence_number: int
    decode_ticks: int
    offsets: Array
    sizes: Array
    duration_ticks: Array
    composition_ticks: Array

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def pts_ticks(self) -> Array:
        """Presentation time of each sample, before the edit list."""
        starts = self.decode_ticks + np.cumsum(self.duration_ticks) - self.duration_ticks
        return np.asarray(starts + self.composition_ticks)


def boxes(data: Buffer, start: int = 0, stop: int | None = None) -> Iterator[Box]:
    """The consecutive boxes in data[start:stop], which they must fill exactly."""
    stop = len(data) if stop is None else stop
    while start < stop:
        size, kind, body = read_box_header(data, start, stop)
        if start + size > stop:
            raise CorruptDataError(f"box {kind!r} at byte {start} claims {size} bytes, only {stop - start} are there")
        yield Box(kind, start, body, start + size)
        start += size


def read_box_header(data: Buffer, start: int, stop: int) -> tuple[int, bytes, int]:
    """Size of the whole box, its type, and where its payload starts."""
    if start + 8 > stop:
        raise CorruptDataError(f"no room for a box header at byte {start}")
    size, kind = struct.unpack_from(">I4s", data, start)
    body = start + 8
    if size == 1:
        if start + 16 > stop:
            raise CorruptDataError(f"no room for a box header at byte {start}")
        (size,) = struct.unpack_from(">Q", data, body)
        body += 8
    if size < body - start:
        raise CorruptDataError(f"box {kind!r} at byte {start} claims {size} bytes, less than its header")
    return size, kind, body


def children(data: Buffer, parent: Box, kind: bytes, skip: int = 0) -> Iterator[Box]:
    """The boxes of a kind right in another one, behind `skip` bytes of its payload."""
    return (box for box in boxes(data, parent.body + skip, parent.stop) if box.type == kind)


def child(data: Buffer, parent: Box, kind: bytes, skip: int = 0) -> Box:
    """The first of these. CorruptDataError if there is none."""
    box = _child_or_none(data, parent, kind, skip)
    if box is None:
        raise CorruptDataError(f"box {parent.type!r} at byte {parent.start} has no {kind!r}")
    return box


def _child_or_none(data: Buffer, parent: Box, kind: bytes, skip: int = 0) -> Box | None:
    return next(children(data, parent, kind, skip), None)


def _path(data: Buffer, box: Box, *kinds: bytes) -> Box:
    for kind in kinds:
        box = child(data, box, kind)
    return box


def _fields(data: Buffer, box: Box, layout: str, offset: int = 0) -> tuple[Any, ...]:
    """Big-endian fields at `offset` of the box's payload, in `struct`'s notation."""
    if box.body + offset + struct.calcsize(f">{layout}") > box.stop:
        raise CorruptDataError(f"box {box.type!r} at byte {box.start} is too short for its fields")
    return struct.unpack_from(f">{layout}", data, box.body + offset)


def parse_init(data: Buffer) -> Init:
    """Read ftyp + moov of a file with a single H.264, HEVC or AV1 track."""
    moov = next((box for box in boxes(data) if box.type == b"moov"), None)
    if moov is None:
        raise CorruptDataError("the init has no moov box")
    trak = child(data, moov, b"trak")
    mdia = child(data, trak, b"mdia")
    mdhd = child(data, mdia, b"mdhd")
    (version,) = _fields(data, mdhd, "B")
    (timescale,) = _fields(data, mdhd, "I", 20 if version == 1 else 12)

    stsd = _path(data, mdia, b"minf", b"stbl", b"stsd")
    entry = next(boxes(data, stsd.body + 8, stsd.stop), None)
    if entry is None or entry.type not in _CODECS:
        found = entry.type if entry else None
        raise CorruptDataError(f"the sample entry is {found!r}, not one of H.264, HEVC or AV1")
    codec, config_type = _CODECS[entry.type]
    width, height = _fields(data, entry, "HH", 24)
    if not (timescale and width and height):
        raise CorruptDataError(f"the init has a picture of {width}x{height} at {timescale} ticks per second")
    config = child(data, entry, config_type, _VISUAL_SAMPLE_ENTRY_BYTES)
    primaries, transfer, matrix, full_range = 2, 2, 2, False
    colr = _child_or_none(data, entry, b"colr", _VISUAL_SAMPLE_ENTRY_BYTES)
    if colr is not None and _fields(data, colr, "4s") == (b"nclx",):
        primaries, transfer, matrix, flags = _fields(data, colr, "HHHB", 4)
        full_range = bool(flags & 0x80)
    return Init(
        codec=codec,
        extradata=bytes(data[config.body : config.stop]),
        width=width,
        height=height,
        timescale=timescale,
        media_time_ticks=_media_time(data, trak),
        primaries=primaries,
        transfer=transfer,
        matrix=matrix,
        full_range=full_range,
    )


def _media_time(data: Buffer, trak: Box) -> int:
    """Media time of the first edit that shows media, in ticks. Empty edits (media time -1) before it are skipped."""
    edts = _child_or_none(data, trak, b"edts")
    if edts is None:
        return 0
    elst = child(data, edts, b"elst")
    version, count = _fields(data, elst, "B3xI")
    entry = "QqI" if version == 1 else "IiI"
    for index in range(count):
        _, media_time, _ = _fields(data, elst, entry, 8 + index * struct.calcsize(f">{entry}"))
        if media_time >= 0:
            return int(media_time)
    return 0


def parse_fragment(data: Buffer) -> Fragment:
    """Read the sample table of one fragment: a moof with a single track run, followed by its mdat.

    CorruptDataError for anything else, or if the samples do not fill the mdat exactly.
    """
    top = list(boxes(data))
    if [box.type for box in top] != [b"moof", b"mdat"]:
        raise CorruptDataError(f"the boxes are {[box.type for box in top]}, not one moof and one mdat")
    moof, mdat = top
    (sequence_number,) = _fields(data, child(data, moof, b"mfhd"), "I", 4)
    traf = child(data, moof, b"traf")
    default_duration, default_size = _sample_defaults(data, child(data, traf, b"tfhd"))
    tfdt = child(data, traf, b"tfdt")
    (version,) = _fields(data, tfdt, "B")
    (decode_ticks,) = _fields(data, tfdt, "Q" if version == 1 else "I", 4)
    if decode_ticks > _MAX_TICKS:
        raise CorruptDataError(f"the fragment starts at tick {decode_ticks}, which is too large")

    truns = list(children(data, traf, b"trun"))
    if len(truns) != 1:
        raise CorruptDataError(f"the fragment has {len(truns)} track runs, not one")
    data_offset, columns, count = _track_run(data, truns[0])
    payload = mdat.stop - mdat.body
    if not 0 < count <= payload:
        raise CorruptDataError(f"the fragment has {count} samples in {payload} bytes")
    sizes = columns.get(_TRUN_SIZE, np.full(count, default_size, dtype=np.int64))
    expected_offset = mdat.body - moof.start
    if data_offset not in (None, expected_offset) or int(sizes.sum()) != payload:
        raise CorruptDataError(f"the {count} samples of a fragment do not fill its mdat")
    return Fragment(
        sequence_number=sequence_number,
        decode_ticks=decode_ticks,
        offsets=expected_offset + np.cumsum(sizes) - sizes,
        sizes=sizes,
        duration_ticks=columns.get(_TRUN_DURATION, np.full(count, default_duration, dtype=np.int64)),
        composition_ticks=columns.get(_TRUN_COMPOSITION, np.zeros(count, dtype=np.int64)),
    )


def _sample_defaults(data: Buffer, tfhd: Box) -> tuple[int, int]:
    """Default duration and size of samples, for a track run that gives none; 0 if tfhd gives none either."""
    (version_and_flags,) = _fields(data, tfhd, "I")
    if version_and_flags & _TFHD_BASE_DATA_OFFSET or not version_and_flags & _TFHD_DEFAULT_BASE_IS_MOOF:
        raise CorruptDataError("the sample offsets do not count from the moof")
    defaults, offset = {}, 8
    for flag, layout in _TFHD_OPTIONAL:
        if version_and_flags & flag:
            (defaults[flag],) = _fields(data, tfhd, layout, offset)
            offset += struct.calcsize(layout)
    return defaults.get(_TFHD_DURATION, 0), defaults.get(_TFHD_SIZE, 0)


def _track_run(data: Buffer, trun: Box) -> tuple[int | None, dict[int, Array], int]:
    """The data offset (None if absent), the columns by flag, and the number of samples."""
    version_and_flags, count = _fields(data, trun, "II")
    data_offset, at = None, 8
    if version_and_flags & _TRUN_DATA_OFFSET:
        (data_offset,) = _fields(data, trun, "i", at)
        at += 4
    if version_and_flags & _TRUN_FIRST_FLAGS:
        at += 4
    columns = [flag for flag in _TRUN_COLUMNS if version_and_flags & flag]
    if trun.body + at + 4 * count * len(columns) != trun.stop:
        raise CorruptDataError(f"a track run of {count} samples does not fill its box")
    if not columns:
        return data_offset, {}, count
    entries = np.frombuffer(data, dtype=">u4", count=count * len(columns), offset=trun.body + at)
    by_flag = {flag: entries[index :: len(columns)].astype(np.int64) for index, flag in enumerate(columns)}
    if _TRUN_COMPOSITION in by_flag and version_and_flags >> 24 == 1:
        by_flag[_TRUN_COMPOSITION] = by_flag[_TRUN_COMPOSITION].astype(np.int32).astype(np.int64)
    return data_offset, by_flag, count


def restamp_fragment(data: Buffer, sequence_number: int, decode_ticks: int) -> bytes:
    """The fragment with another sequence number and decode time, as another file needs it."""
    out = bytearray(data)
    moof = next(boxes(out), None)
    if moof is None or moof.type != b"moof":
        raise CorruptDataError("the fragment does not start with moof")
    _patch(out, child(out, moof, b"mfhd"), "I", 4, sequence_number)
    tfdt = _path(out, moof, b"traf", b"tfdt")
    (version,) = _fields(out, tfdt, "B")
    _patch(out, tfdt, "Q" if version == 1 else "I", 4, decode_ticks)
    return bytes(out)


def _patch(data: bytearray, box: Box, layout: str, offset: int, value: int) -> None:
    # CorruptDataError if the box is too short for the field.
    _fields(data, box, layout, offset)
    try:
        struct.pack_into(f">{layout}", data, box.body + offset, value)
    except struct.error:
        raise CorruptDataError(f"{value} does not fit the field of box {box.type!r}") from None


_HEADER = struct.Struct(">I4s")
_HEADER_AND_FLAGS = struct.Struct(">I4sI")
_TRUN = struct.Struct(">I4sIIi")
_KINDS = (b"moof", b"mdat", b"mfhd", b"traf", b"tfhd", b"tfdt", b"trun")


def sample_bounds(data: Buffer) -> list[int]:
    """The first byte of each sample of a fragment, in decode order, and the byte after the last sample.

    The samples follow each other and fill the mdat. CorruptDataError if the data is not a fragment as `parse_fragment`
    defines it.
    """
    try:
        bounds = _usual_bounds(data)
    except struct.error:
        bounds = None
    if bounds is None:
        fragment = parse_fragment(data)
        bounds = [*fragment.offsets.tolist(), int(fragment.offsets[-1] + fragment.sizes[-1])]
    return bounds


def _usual_bounds(data: Buffer) -> list[int] | None:
    """`sample_bounds` for the boxes that ffmpeg writes. None for other boxes, valid or not."""
    moof_size, moof = _HEADER.unpack_from(data, 0)
    mdat_size, mdat = _HEADER.unpack_from(data, moof_size)
    mfhd_size, mfhd = _HEADER.unpack_from(data, 8)
    traf_at = 8 + mfhd_size
    traf_size, traf = _HEADER.unpack_from(data, traf_at)
    tfhd_size, tfhd, tfhd_flags = _HEADER_AND_FLAGS.unpack_from(data, traf_at + 8)
    tfdt_size, tfdt = _HEADER.unpack_from(data, traf_at + 8 + tfhd_size)
    at = traf_at + 8 + tfhd_size + tfdt_size
    trun_size, trun, flags, count, data_offset = _TRUN.unpack_from(data, at)
    entries = at + _TRUN.size + (4 if flags & _TRUN_FIRST_FLAGS else 0)
    columns = (flags & _TRUN_ANY_COLUMN).bit_count()
    usual = (
        (moof, mdat, mfhd, traf, tfhd, tfdt, trun) == _KINDS
        and moof_size + mdat_size == len(data)
        and traf_at + traf_size == at + trun_size == entries + 4 * columns * count == moof_size
        and tfhd_flags & (_TFHD_DEFAULT_BASE_IS_MOOF | _TFHD_BASE_DATA_OFFSET) == _TFHD_DEFAULT_BASE_IS_MOOF
        and flags & (_TRUN_DATA_OFFSET | _TRUN_SIZE) == _TRUN_DATA_OFFSET | _TRUN_SIZE
        and data_offset == moof_size + _HEADER.size
        and count > 0
    )
    if not usual:
        return None
    values = struct.unpack_from(f">{columns * count}I", data, entries)
    bounds = list(accumulate(values[1 if flags & _TRUN_DURATION else 0 :: columns], initial=moof_size + _HEADER.size))
    return bounds if bounds[-1] == len(data) else None
