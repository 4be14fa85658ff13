"""Splits packets and stored headers of H.264 and HEVC into their NAL units (ISO/IEC 14496-15; 14496-10, annex B)."""

from __future__ import annotations

from collections.abc import Iterator

START_CODE = b"\0\0\1"
_H264_PARAMETER_SETS = (7, 8)


def split_units(data: bytes, length_bytes: int) -> Iterator[bytes]:
    """The NAL units of a packet. Each follows its length in `length_bytes` bytes or, where that is 0, a start code.

    One that is longer than the rest of the packet ends them, for FFmpeg too: a damaged packet must not be taken for
    parameter sets, by which all later ones would be read.
    """
    if length_bytes == 0:
        yield from (nal for nal in data.split(START_CODE)[1:] if len(nal) > 1)
        return
    at = 0
    while at + length_bytes < len(data):
        start = at + length_bytes
        at = start + int.from_bytes(data[at:start])
        if start + 1 < at <= len(data):
            yield data[start:at]


def length_bytes_of(codec: str, extradata: bytes) -> int:
    """How many bytes the length of a NAL unit takes; 0 for NAL units with start codes."""
    if codec == "h264" and len(extradata) > 6 and extradata[0] == 1:
        return (extradata[4] & 3) + 1
    if codec == "hevc" and len(extradata) > 22 and extradata[:3] not in (b"\0\0\1", b"\0\0\0"):
        return (extradata[21] & 3) + 1
    return 0


def stored_h264_sets(extradata: bytes) -> list[bytes]:
    """The parameter sets in an avcC (14496-15, 5.3.3.1), or behind start codes."""
    if not length_bytes_of("h264", extradata):
        return [nal for nal in extradata.split(START_CODE)[1:] if nal and nal[0] & 31 in _H264_PARAMETER_SETS]
    found, at = [], 5
    for mask in (31, 255):  # SPS, PPS
        count = int.from_bytes(extradata[at : at + 1]) & mask
        at += 1
        for _ in range(count):
            size = int.from_bytes(extradata[at : at + 2])
            found.append(extradata[at + 2 : at + 2 + size])
            at += 2 + size
    return [nal for nal in found if nal]


def stored_hevc_sets(extradata: bytes) -> Iterator[bytes]:
    """The NAL units of an hvcC (14496-15, 8.3.2)."""
    if not length_bytes_of("hevc", extradata):
        return
    at = 23
    for _ in range(extradata[22]):
        count = int.from_bytes(extradata[at + 1 : at + 3])
        at += 3
        for _ in range(count):
            size = int.from_bytes(extradata[at : at + 2])
            if size > 2:
                yield extradata[at + 2 : at + 2 + size]
            at += 2 + size
