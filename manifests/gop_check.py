"""What a GOP's bytes must look like, and the pattern they follow.

Used where segments are written, to make sure that ffmpeg did what it was asked to, and by `shortgop verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ..errors import CorruptDataError
from .mp4 import Buffer, Fragment, parse_fragment
from .records import Pattern

# NAL unit types: ITU-T H.264 table 7-1, ITU-T H.265 table 7-1.
_H264_SLICE, _H264_IDR = 1, 5
_HEVC_IDR = (19, 20)
_HEVC_FIRST_NON_VCL = 32
_HEVC_FIRST_IRAP = 16


def nal_length_bytes(codec: str, extradata: bytes) -> int:
    """How many bytes hold the length of each NAL unit: lengthSizeMinusOne of avcC or hvcC, plus one."""
    at = 4 if codec == "h264" else 21
    if len(extradata) <= at:
        raise CorruptDataError(f"the extradata of {codec} has only {len(extradata)} bytes")
    return (extradata[at] & 3) + 1


def frame_ticks(timescale: int, fps: Fraction) -> int:
    """Ticks that a frame lasts; CorruptDataError when it is not a whole number of them."""
    ticks = timescale / fps
    if ticks.denominator != 1:
        raise CorruptDataError(f"a frame at {fps} per second is no whole number of ticks of 1/{timescale} s")
    return ticks.numerator


def _nal_headers(data: Buffer, start: int, stop: int, length_bytes: int) -> Iterator[int]:
    """First byte of every NAL unit of an access unit; they must fill it exactly."""
    while start < stop:
        body = start + length_bytes
        size = int.from_bytes(data[start:body], "big")
        if size < 1 or body + size > stop:
            raise CorruptDataError(f"a NAL unit of {size} bytes does not fit its access unit")
        yield data[body]
        start = body + size


def access_unit_kind(data: Buffer, start: int, stop: int, codec: str, length_bytes: int) -> tuple[bool, bool]:
    """Whether the access unit is an IDR, and whether other pictures may refer to it.

    H.264 says so in nal_ref_idc; HEVC by the even types below 16 (the `*_N` types), which is about pictures of the
    same temporal layer: shortgop's encoders write only one.
    """
    slices = 0
    idr = referenced = False
    for header in _nal_headers(data, start, stop, length_bytes):
        if codec == "h264":
            kind = header & 0x1F
            if _H264_SLICE <= kind <= _H264_IDR:
                slices += 1
                idr |= kind == _H264_IDR
                referenced |= bool(header & 0x60)
        else:
            kind = header >> 1 & 0x3F
            if kind < _HEVC_FIRST_NON_VCL:
                slices += 1
                idr |= kind in _HEVC_IDR
                referenced |= kind >= _HEVC_FIRST_IRAP or kind % 2 == 1
    if slices == 0:
        raise CorruptDataError("an access unit without a picture")
    return idr, referenced


def check_gop(
    data: Buffer,
    *,
    codec: str,
    length_bytes: int,
    num_frames: int,
    decode_ticks: int,
    media_time_ticks: int,
    frame_ticks: int,
) -> tuple[Fragment, Pattern]:
    """Parse the fragment of one GOP and insist that it is what the format promises.

    That is: `num_frames` samples, an IDR first and nowhere else, decode times from `decode_ticks` in steps of
    `frame_ticks`, and presentation times that are a permutation of the GOP's own frames. Returns the sample table and
    the pattern; CorruptDataError names what is wrong.
    """
    fragment = parse_fragment(data)
    if len(fragment) != num_frames:
        raise CorruptDataError(f"a GOP of {len(fragment)} frames where {num_frames} were planned")
    if fragment.decode_ticks != decode_ticks:
        raise CorruptDataError(f"a GOP that starts at tick {fragment.decode_ticks}, not {decode_ticks} as planned")
    # The last sample's duration is the muxer's guess: nothing follows it, so nothing depends on it.
    if (fragment.duration_ticks[:-1] != frame_ticks).any():
        raise CorruptDataError(f"frames that do not last {frame_ticks} ticks each")
    shown = fragment.pts_ticks - (decode_ticks + media_time_ticks)
    frames, rest = np.divmod(shown, frame_ticks)
    if rest.any() or not np.array_equal(np.sort(frames), np.arange(num_frames)):
        raise CorruptDataError("presentation times that are not the GOP's own frames: the GOP is not closed")
    kinds = [
        access_unit_kind(data, offset, offset + size, codec, length_bytes)
        for offset, size in zip(fragment.offsets.tolist(), fragment.sizes.tolist(), strict=True)
    ]
    if not kinds[0][0] or frames[0] != 0:
        raise CorruptDataError("a GOP that does not start with an IDR showing its first frame")
    if any(idr for idr, _ in kinds[1:]):
        raise CorruptDataError("an IDR inside a GOP")
    return fragment, Pattern(tuple(frames.tolist()), tuple(referenced for _, referenced in kinds))
