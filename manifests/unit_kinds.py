"""What the bytes of an access unit (in AV1: a temporal unit) say: whether a GOP begins with it, and which of its bytes
hold what other pictures may refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from ..errors import CorruptDataError
from .av1 import referenced_stop, sequence_header_of, temporal_unit_kind
from .mp4 import Buffer

# NAL unit types: ITU-T H.264 table 7-1, ITU-T H.265 table 7-1.
_H264_SLICE, _H264_IDR = 1, 5
_HEVC_IDR = (19, 20)
_HEVC_FIRST_NON_VCL = 32
_HEVC_FIRST_IRAP = 16

KindOf = Callable[[Buffer, int, int], tuple[bool, bool]]
"""Called with data and the bytes [start, stop) of an access unit: whether it is an IDR (in AV1 a key frame), and
whether other pictures may refer to it (in AV1 to a frame that it has)."""
StopOf = Callable[[Buffer, int, int], int]
"""Called likewise: where what other pictures may refer to ends."""


@lru_cache(maxsize=256)
def access_unit_kinds(codec: str, extradata: bytes) -> KindOf:
    """The function that reads the access units of a stream with this avcC, hvcC or av1C box.

    CorruptDataError for a box that ends early, and from the function for bytes that are no access unit of one picture.
    """
    if codec == "av1":
        return partial(temporal_unit_kind, sequence=sequence_header_of(extradata))
    kind = _h264_kind if codec == "h264" else _hevc_kind
    return partial(kind, length_bytes=nal_length_bytes(codec, extradata))


@lru_cache(maxsize=256)
def referenced_stops(codec: str, extradata: bytes) -> StopOf | None:
    """The function that says which bytes of an access unit a decoder needs where its own picture is not wanted, and
    others may refer to it. None where it is all of them: only AV1 has other frames beside that which is shown."""
    return partial(referenced_stop, sequence=sequence_header_of(extradata)) if codec == "av1" else None


def nal_length_bytes(codec: str, extradata: bytes) -> int:
    """Bytes of the length field before each NAL unit: lengthSizeMinusOne of avcC or hvcC, plus one."""
    at = 4 if codec == "h264" else 21
    if len(extradata) <= at:
        raise CorruptDataError(f"the extradata of {codec} has only {len(extradata)} bytes")
    return (extradata[at] & 3) + 1


def _nal_headers(data: Buffer, start: int, stop: int, length_bytes: int) -> Iterator[int]:
    """The first byte of every NAL unit of an access unit. The units must fill it exactly."""
    while start < stop:
        body = start + length_bytes
        size = int.from_bytes(data[start:body], "big")
        if size < 1 or body + size > stop:
            raise CorruptDataError(f"a NAL unit of {size} bytes does not fit its access unit")
        yield data[body]
        start = body + size


def _h264_kind(data: Buffer, start: int, stop: int, length_bytes: int) -> tuple[bool, bool]:
    """nal_ref_idc says whether others may refer to a picture."""
    slices, idr, referenced = 0, False, False
    for header in _nal_headers(data, start, stop, length_bytes):
        kind = header & 0x1F
        if _H264_SLICE <= kind <= _H264_IDR:
            slices += 1
            idr |= kind == _H264_IDR
            referenced |= bool(header & 0x60)
    return _of_picture(slices, idr, referenced)


def _hevc_kind(data: Buffer, start: int, stop: int, length_bytes: int) -> tuple[bool, bool]:
    """The even types below 16 (the `*_N` types) say that no picture of the same temporal layer refers to this one;
    shortgop's encoders write only one layer."""
    slices, idr, referenced = 0, False, False
    for header in _nal_headers(data, start, stop, length_bytes):
        kind = header >> 1 & 0x3F
        if kind < _HEVC_FIRST_NON_VCL:
            slices += 1
            idr |= kind in _HEVC_IDR
            referenced |= kind >= _HEVC_FIRST_IRAP or kind % 2 == 1
    return _of_picture(slices, idr, referenced)


def _of_picture(slices: int, idr: bool, referenced: bool) -> tuple[bool, bool]:
    if slices == 0:
        raise CorruptDataError("an access unit has no picture")
    return idr, referenced
