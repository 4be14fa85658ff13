"""Where the samples of a GOP lie in its bytes: all that a reader needs of a fragment, found many times a second."""

from __future__ import annotations

import struct
from itertools import accumulate

from .mp4 import Buffer, parse_fragment

_HEADER = struct.Struct(">I4s")
_HEADER_AND_FLAGS = struct.Struct(">I4sI")
_TRUN = struct.Struct(">I4sIIi")
_KINDS = (b"moof", b"mdat", b"mfhd", b"traf", b"tfhd", b"tfdt", b"trun")
_DEFAULT_BASE_IS_MOOF, _BASE_DATA_OFFSET = 0x20000, 0x1
_DATA_OFFSET, _FIRST_FLAGS, _DURATION, _SIZE, _COLUMNS = 0x1, 0x4, 0x100, 0x200, 0xF00


def sample_bounds(data: Buffer) -> list[int]:
    """The first byte of each sample of a fragment, in decode order, and the byte behind the last one.

    The samples follow each other and fill the mdat. CorruptDataError when the data is no fragment, as
    `parse_fragment` says.
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
    """The same where the boxes are those that ffmpeg writes; None where they are not, be it right or wrong."""
    moof_size, moof = _HEADER.unpack_from(data, 0)
    mdat_size, mdat = _HEADER.unpack_from(data, moof_size)
    mfhd_size, mfhd = _HEADER.unpack_from(data, 8)
    traf_at = 8 + mfhd_size
    traf_size, traf = _HEADER.unpack_from(data, traf_at)
    tfhd_size, tfhd, tfhd_flags = _HEADER_AND_FLAGS.unpack_from(data, traf_at + 8)
    tfdt_size, tfdt = _HEADER.unpack_from(data, traf_at + 8 + tfhd_size)
    at = traf_at + 8 + tfhd_size + tfdt_size
    trun_size, trun, flags, count, data_offset = _TRUN.unpack_from(data, at)
    entries = at + _TRUN.size + (4 if flags & _FIRST_FLAGS else 0)
    columns = (flags & _COLUMNS).bit_count()
    usual = (
        (moof, mdat, mfhd, traf, tfhd, tfdt, trun) == _KINDS
        and moof_size + mdat_size == len(data)
        and traf_at + traf_size == at + trun_size == entries + 4 * columns * count == moof_size
        and tfhd_flags & (_DEFAULT_BASE_IS_MOOF | _BASE_DATA_OFFSET) == _DEFAULT_BASE_IS_MOOF
        and flags & (_DATA_OFFSET | _SIZE) == _DATA_OFFSET | _SIZE
        and data_offset == moof_size + _HEADER.size
        and count > 0
    )
    if not usual:
        return None
    values = struct.unpack_from(f">{columns * count}I", data, entries)
    bounds = list(accumulate(values[1 if flags & _DURATION else 0 :: columns], initial=moof_size + _HEADER.size))
    return bounds if bounds[-1] == len(data) else None
