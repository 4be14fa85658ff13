"""What a GOP's bytes must look like, and the pattern of its samples.

Prep checks segments with it to make sure that ffmpeg did what it was asked to do. `shortgop verify` checks them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ..errors import CorruptDataError
from ..wording import counted
from .mp4 import Buffer, Fragment, parse_fragment
from .records import Pattern

# NAL unit types: ITU-T H.264 table 7-1, ITU-T H.265 table 7-1.
_H264_SLICE, _H264_IDR = 1, 5
_HEVC_IDR = (19, 20)
_HEVC_FIRST_NON_VCL = 32
_HEVC_FIRST_IRAP = 16


def nal_length_bytes(codec: str, extradata: bytes) -> int:
    """Bytes of the length field before each NAL unit: lengthSizeMinusOne of avcC or hvcC, plus one."""
    at = 4 if codec == "h264" else 21
    if len(extradata) <= at:
        raise CorruptDataError(f"the extradata of {codec} has only {len(extradata)} bytes")
    return (extradata[at] & 3) + 1


def frame_ticks(timescale: int, fps: Fraction) -> int:
    """Duration of a frame in ticks. CorruptDataError if it is not a whole number."""
    ticks = timescale / fps
    if ticks.denominator != 1:
        raise CorruptDataError(f"a frame at {fps} frames/s does not last a whole number of ticks of 1/{timescale} s")
    return ticks.numerator


def _nal_headers(data: Buffer, start: int, stop: int, length_bytes: int) -> Iterator[int]:
    """The first byte of every NAL unit of an access unit. The units must fill it exactly."""
    while start < stop:
        body = start + length_bytes
        size = int.from_bytes(data[start:body], "big")
        if size < 1 or body + size > stop:
            raise CorruptDataError(f"a NAL unit of {size} bytes does not fit its access unit")
        yield data[body]
        start = body + size


def access_unit_kind(data: Buffer, start: int, stop: int, codec: str, length_bytes: int) -> tuple[bool, bool]:
    """Whether the access unit is an IDR, and whether other pictures may refer to it.

    In H.264 nal_ref_idc says whether others may refer to it. In HEVC the even types below 16 (the `*_N` types) say that
    no picture of the same temporal layer does; shortgop's encoders write only one layer.
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
        raise CorruptDataError("an access unit has no picture")
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
    """Parse the fragment of one GOP and check that it is what the format requires.

    The format requires `num_frames` samples, an IDR as the first sample and nowhere else, decode times from
    `decode_ticks` in steps of `frame_ticks`, and presentation times that are a permutation of those of the GOP's own
    frames. Returns the sample table and the pattern. CorruptDataError says what is wrong.
    """
    fragment = parse_fragment(data)
    if len(fragment) != num_frames:
        raise CorruptDataError(f"the GOP has {counted(len(fragment), 'frame')}, not {num_frames} as planned")
    if fragment.decode_ticks != decode_ticks:
        raise CorruptDataError(f"the GOP starts at tick {fragment.decode_ticks}, not {decode_ticks} as planned")
    # The last sample's duration is the muxer's guess: nothing follows it, so nothing depends on it.
    if (fragment.duration_ticks[:-1] != frame_ticks).any():
        raise CorruptDataError(f"the GOP's frames do not last {frame_ticks} ticks each")
    shown = fragment.pts_ticks - (decode_ticks + media_time_ticks)
    frames, rest = np.divmod(shown, frame_ticks)
    if rest.any() or not np.array_equal(np.sort(frames), np.arange(num_frames)):
        raise CorruptDataError("the presentation times are not those of the GOP's own frames: the GOP is not closed")
    kinds = [
        access_unit_kind(data, offset, offset + size, codec, length_bytes)
        for offset, size in zip(fragment.offsets.tolist(), fragment.sizes.tolist(), strict=True)
    ]
    if not kinds[0][0] or frames[0] != 0:
        raise CorruptDataError("the GOP does not start with an IDR that shows its first frame")
    if any(idr for idr, _ in kinds[1:]):
        raise CorruptDataError("the GOP has an IDR after its first sample")
    return fragment, Pattern(tuple(frames.tolist()), tuple(referenced for _, referenced in kinds))
