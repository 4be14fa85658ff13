"""The few boxes of an MP4 that shortgop reads: the init (ftyp + moov) and one fragment (moof + mdat) per GOP.

Box layouts are those of ISO/IEC 14496-12 (base format) and 14496-15 (avcC, hvcC). Everything here is a pure function
of bytes; whatever does not fit raises CorruptDataError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .errors import CorruptDataError
from .ragged import Array

Buffer = bytes | bytearray | memoryview

# tfhd and trun flags, ISO/IEC 14496-12, 8.8.7 and 8.8.8.
_TFHD_OPTIONAL = ((0x1, 8), (0x2, 4), (0x8, 4), (0x10, 4), (0x20, 4))
_TFHD_DEFAULT_BASE_IS_MOOF = 0x20000
_TRUN_DATA_OFFSET, _TRUN_FIRST_FLAGS = 0x1, 0x4
_TRUN_DURATION, _TRUN_SIZE, _TRUN_FLAGS, _TRUN_COMPOSITION = 0x100, 0x200, 0x400, 0x800

_CODECS = {b"avc1": ("h264", b"avcC"), b"hvc1": ("hevc", b"hvcC"), b"hev1": ("hevc", b"hvcC")}
_VISUAL_SAMPLE_ENTRY_BYTES = 78


@dataclass(frozen=True)
class Box:
    """A box's four-character type and where it lies: header at `start`, payload in [body, stop)."""

    type: bytes
    start: int
    body: int
    stop: int


@dataclass(frozen=True)
class Init:
    """What ftyp + moov say. `timescale` is ticks per second, `media_time_ticks` the pts that the edit list puts at
    time 0 (B-frames push the first pts behind the first dts)."""

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
    """The boxes that lie side by side in data[start:stop]; they must fill it exactly."""
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


def _child(data: Buffer, parent: Box, kind: bytes, skip: int = 0) -> Box:
    box = _child_or_none(data, parent, kind, skip)
    if box is None:
        raise CorruptDataError(f"box {parent.type!r} at byte {parent.start} has no {kind!r}")
    return box


def _child_or_none(data: Buffer, parent: Box, kind: bytes, skip: int = 0) -> Box | None:
    return next((box for box in boxes(data, parent.body + skip, parent.stop) if box.type == kind), None)


def _path(data: Buffer, box: Box, *kinds: bytes) -> Box:
    for kind in kinds:
        box = _child(data, box, kind)
    return box


def parse_init(data: Buffer) -> Init:
    """Read ftyp + moov of a file with a single H.264 or HEVC track."""
    try:
        return _parse_init(data)
    except (struct.error, IndexError) as error:
        raise CorruptDataError(f"the init of an MP4 does not parse: {error}") from error


def _parse_init(data: Buffer) -> Init:
    moov = next((box for box in boxes(data) if box.type == b"moov"), None)
    if moov is None:
        raise CorruptDataError("an init without moov")
    trak = _child(data, moov, b"trak")
    mdia = _child(data, trak, b"mdia")
    mdhd = _child(data, mdia, b"mdhd")
    version = data[mdhd.body]
    (timescale,) = struct.unpack_from(">I", data, mdhd.body + (20 if version == 1 else 12))

    stsd = _path(data, mdia, b"minf", b"stbl", b"stsd")
    entry = next(boxes(data, stsd.body + 8, stsd.stop), None)
    if entry is None or entry.type not in _CODECS:
        raise CorruptDataError(f"a sample entry {entry.type if entry else None!r} where H.264 or HEVC was expected")
    codec, config_type = _CODECS[entry.type]
    width, height = struct.unpack_from(">HH", data, entry.body + 24)
    config = _child(data, entry, config_type, _VISUAL_SAMPLE_ENTRY_BYTES)
    primaries, transfer, matrix, full_range = 2, 2, 2, False
    colr = _child_or_none(data, entry, b"colr", _VISUAL_SAMPLE_ENTRY_BYTES)
    if colr is not None and bytes(data[colr.body : colr.body + 4]) == b"nclx":
        primaries, transfer, matrix, flags = struct.unpack_from(">HHHB", data, colr.body + 4)
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
    """The first edit that shows media; empty edits (media time -1) before it are skipped."""
    edts = _child_or_none(data, trak, b"edts")
    if edts is None:
        return 0
    elst = _child(data, edts, b"elst")
    entry = ">QqI" if data[elst.body] == 1 else ">IiI"
    (count,) = struct.unpack_from(">I", data, elst.body + 4)
    for index in range(count):
        _, media_time, _ = struct.unpack_from(entry, data, elst.body + 8 + index * struct.calcsize(entry))
        if media_time >= 0:
            return int(media_time)
    return 0


def parse_fragment(data: Buffer) -> Fragment:
    """Read the sample table of one fragment: a moof with a single track run, followed by its mdat.

    CorruptDataError when it is anything else, or when the samples do not fill the mdat exactly.
    """
    try:
        return _parse_fragment(data)
    except (struct.error, ValueError) as error:
        raise CorruptDataError(f"a fragment does not parse: {error}") from error


def _parse_fragment(data: Buffer) -> Fragment:
    top = list(boxes(data))
    if [box.type for box in top] != [b"moof", b"mdat"]:
        raise CorruptDataError(f"boxes {[box.type for box in top]} where one moof and one mdat were expected")
    moof, mdat = top
    mfhd = _child(data, moof, b"mfhd")
    (sequence_number,) = struct.unpack_from(">I", data, mfhd.body + 4)
    traf = _child(data, moof, b"traf")

    tfhd = _child(data, traf, b"tfhd")
    (tfhd_flags,) = struct.unpack_from(">I", data, tfhd.body)
    tfhd_flags &= 0xFFFFFF
    if tfhd_flags & 0x1 or not tfhd_flags & _TFHD_DEFAULT_BASE_IS_MOOF:
        raise CorruptDataError("sample offsets that do not count from the moof")
    defaults, at = {}, tfhd.body + 8
    for flag, size in _TFHD_OPTIONAL:
        if tfhd_flags & flag:
            (defaults[flag],) = struct.unpack_from(">Q" if size == 8 else ">I", data, at)
            at += size

    tfdt = _child(data, traf, b"tfdt")
    (decode_ticks,) = struct.unpack_from(">Q" if data[tfdt.body] == 1 else ">I", data, tfdt.body + 4)

    truns = [box for box in boxes(data, traf.body, traf.stop) if box.type == b"trun"]
    if len(truns) != 1:
        raise CorruptDataError(f"{len(truns)} track runs where one was expected")
    trun = truns[0]
    flags, count = struct.unpack_from(">II", data, trun.body)
    version, flags = flags >> 24, flags & 0xFFFFFF
    at = trun.body + 8
    data_offset = mdat.body - moof.start
    if flags & _TRUN_DATA_OFFSET:
        (data_offset,) = struct.unpack_from(">i", data, at)
        at += 4
    if flags & _TRUN_FIRST_FLAGS:
        at += 4
    columns = [flag for flag in (_TRUN_DURATION, _TRUN_SIZE, _TRUN_FLAGS, _TRUN_COMPOSITION) if flags & flag]
    if at + 4 * count * len(columns) != trun.stop:
        raise CorruptDataError(f"a track run of {count} samples does not fill its box")
    entries = np.frombuffer(data, dtype=">u4", count=count * len(columns), offset=at).reshape(count, -1)
    by_flag = {flag: entries[:, index].astype(np.int64) for index, flag in enumerate(columns)}

    sizes = by_flag.get(_TRUN_SIZE, np.full(count, defaults.get(0x10, 0), dtype=np.int64))
    composition = by_flag.get(_TRUN_COMPOSITION, np.zeros(count, dtype=np.int64))
    if version == 1:
        composition = composition.astype(np.int32).astype(np.int64)
    offsets = data_offset + np.cumsum(sizes) - sizes
    if count == 0 or data_offset != mdat.body - moof.start or data_offset + int(sizes.sum()) != mdat.stop - moof.start:
        raise CorruptDataError(f"the {count} samples of a fragment do not fill its mdat")
    return Fragment(
        sequence_number=sequence_number,
        decode_ticks=decode_ticks,
        offsets=offsets,
        sizes=sizes,
        duration_ticks=by_flag.get(_TRUN_DURATION, np.full(count, defaults.get(0x8, 0), dtype=np.int64)),
        composition_ticks=composition,
    )


def restamp_fragment(data: Buffer, sequence_number: int, decode_ticks: int) -> bytes:
    """The fragment with another sequence number and decode time, so that it can stand in another file."""
    out = bytearray(data)
    moof = next(boxes(out))
    struct.pack_into(">I", out, _child(out, moof, b"mfhd").body + 4, sequence_number)
    tfdt = _path(out, moof, b"traf", b"tfdt")
    struct.pack_into(">Q" if out[tfdt.body] == 1 else ">I", out, tfdt.body + 4, decode_ticks)
    return bytes(out)
