"""Reads the headers of a source's packets without decoding: where a decoder may start, and whether a packet is missing.

Formulas and codes: ISO/IEC 14496-10 (H.264) 7.3, 7.4.1 and D.2.8, 23008-2 (HEVC) 7.4.2.2, 13818-2 (MPEG-2) 6.3.9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

_H264_SLICES, _H264_IDR, _H264_SEI, _H264_SPS = (1, 5), 5, 6, 7
_H264_RECOVERY_POINT = 6
# 23008-2 (HEVC) 7.3.2.4 and F.14.2.8: prefix SEI, alpha channel information.
_HEVC_SEI, _HEVC_ALPHA_INFORMATION = 39, 165
_HEVC_ENTRIES = range(16, 22)
_HIGH_PROFILES = {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}
_LOOKED_AT_BYTES = 64
# 14496-10, table E-1: sample aspect ratios for aspect_ratio_idc 1 and up. After 255 the ratio itself follows.
_ASPECTS = (
    (1, 1), (12, 11), (10, 11), (16, 11), (40, 33), (24, 11), (20, 11), (32, 11), (80, 33), (18, 11), (15, 11),
    (64, 33), (160, 99), (4, 3), (3, 2), (2, 1),
)  # fmt: skip
_OWN_ASPECT = 255
_MPEG2_SEQUENCE = b"\0\0\1\xb3"
_START_CODE = b"\0\0\1"


@dataclass(frozen=True)
class AccessUnit:
    """The headers of one packet. `is_entry`: a decoder that starts here decodes everything that is shown from here on.
    `counter` is the codec's frame counter (H.264: frame_num) in this packet, `next_counter` the value expected in the
    next packet; None where they are unknown."""

    is_entry: bool | None = None
    counter: int | None = None
    next_counter: int | None = None


@dataclass(frozen=True)
class _Sps:
    """The fields of an SPS that are needed to read slice headers, and its sample aspect ratio."""

    frame_num_bits: int
    separate_planes: bool
    gaps_allowed: bool
    aspect: tuple[int, int]


class _Bits:
    """Reads the bits of a NAL unit; IndexError after the last one."""

    def __init__(self, payload: bytes) -> None:
        data = payload.replace(b"\0\0\3", b"\0\0")
        self._bits = int.from_bytes(data)
        self._left = 8 * len(data)

    def take(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise IndexError("a NAL unit ends early")
        return self._bits >> self._left & ((1 << count) - 1)

    def exp_golomb(self) -> int:
        zeros = 0
        while not self.take(1):
            zeros += 1
        return (1 << zeros) - 1 + self.take(zeros)


class HeaderReader:
    """Reads the packets of a stream in decode order. Only for H.264 and HEVC do the headers say where a decoder may
    start."""

    def __init__(self, codec: str, extradata: bytes | None) -> None:
        self._codec = codec
        self._length_bytes = _length_bytes(codec, extradata or b"")
        self._sps: _Sps | None = None
        self._expected: int | None = None
        self._aspects: set[object] = set()
        for nal in _stored_parameter_sets(codec, extradata or b""):
            self._keep_sps(nal)

    def read(self, data: bytes) -> AccessUnit:
        """The headers of a packet; an empty AccessUnit where they cannot be parsed."""
        try:
            if self._codec == "h264":
                return self._read_h264(data)
        except IndexError:
            return AccessUnit()
        if self._codec == "hevc":
            types = [nal[0] >> 1 & 63 for nal in self._nals(data)]
            slices = [kind for kind in types if kind < 32]
            return AccessUnit(is_entry=bool(slices) and all(kind in _HEVC_ENTRIES for kind in slices))
        if self._codec in ("mpeg1video", "mpeg2video"):
            at = data.find(_MPEG2_SEQUENCE, 0, _LOOKED_AT_BYTES)
            self._aspects.update(code >> 4 for code in data[at + 7 : at + 8] if at >= 0)
        return AccessUnit()

    @property
    def aspect_changes(self) -> bool:
        """Whether the packets read so far have more than one sample aspect ratio (H.264, MPEG-1 and MPEG-2)."""
        return len(self._aspects) > 1

    def misses_one(self, unit: AccessUnit) -> bool:
        """Whether a reference frame is missing between the previous packet and this one."""
        # After a reset the counter starts at 0.
        counts = unit.counter is not None and self._expected is not None and not unit.is_entry
        misses = counts and unit.counter not in (self._expected, 0)
        if unit.next_counter is not None:
            self._expected = unit.next_counter
        return misses

    def _nals(self, data: bytes) -> Iterator[bytes]:
        return _split(data, self._length_bytes)

    def _read_h264(self, data: bytes) -> AccessUnit:
        recovers = False
        for nal in self._nals(data):
            kind, ref_idc = nal[0] & 31, nal[0] >> 5 & 3
            if kind == _H264_SPS:
                self._keep_sps(nal)
            elif kind == _H264_SEI:
                recovers = recovers or _recovers_at_once(nal)
            elif kind in _H264_SLICES:
                if self._sps is not None:
                    self._aspects.add(self._sps.aspect)
                frame_num = self._frame_num(nal)
                if frame_num is None or self._sps is None:
                    return AccessUnit(is_entry=kind == _H264_IDR or recovers)
                expected = (frame_num + (1 if ref_idc else 0)) % (1 << self._sps.frame_num_bits)
                return AccessUnit(kind == _H264_IDR or recovers, frame_num, expected)
        return AccessUnit(is_entry=False)

    def _frame_num(self, nal: bytes) -> int | None:
        if self._sps is None or self._sps.gaps_allowed:
            return None
        bits = _Bits(nal[1:_LOOKED_AT_BYTES])
        for _ in range(3):  # first_mb_in_slice, slice_type, pic_parameter_set_id
            bits.exp_golomb()
        if self._sps.separate_planes:
            bits.take(2)
        return bits.take(self._sps.frame_num_bits)

    def _keep_sps(self, nal: bytes) -> None:
        try:
            self._sps = _parse_sps(nal)
        except IndexError:
            self._sps = None


def _split(data: bytes, length_bytes: int) -> Iterator[bytes]:
    """The NAL units of a packet. Each follows its length in `length_bytes` bytes or, where that is 0, a start code."""
    if length_bytes == 0:
        yield from (nal for nal in data.split(_START_CODE)[1:] if len(nal) > 1)
        return
    at = 0
    while at + length_bytes < len(data):
        start = at + length_bytes
        at = start + int.from_bytes(data[at:start])
        if at > start + 1:
            yield data[start : min(at, len(data))]


def _length_bytes(codec: str, extradata: bytes) -> int:
    """How many bytes the length of a NAL unit takes; 0 for NAL units with start codes."""
    if codec == "h264" and len(extradata) > 6 and extradata[0] == 1:
        return (extradata[4] & 3) + 1
    if codec == "hevc" and len(extradata) > 22 and extradata[:3] not in (b"\0\0\1", b"\0\0\0"):
        return (extradata[21] & 3) + 1
    return 0


def _stored_parameter_sets(codec: str, extradata: bytes) -> list[bytes]:
    if codec != "h264":
        return []
    if _length_bytes(codec, extradata):
        size = int.from_bytes(extradata[6:8])
        return [extradata[8 : 8 + size]] if extradata[5] & 31 else []
    return [nal for nal in extradata.split(_START_CODE)[1:] if nal and nal[0] & 31 == _H264_SPS]


def has_alpha_layer(extradata: bytes | None, first_packet: bytes) -> bool:
    """Whether an HEVC stream declares one of its layers to be alpha."""
    stored = extradata or b""
    length_bytes = _length_bytes("hevc", stored)
    nals = [*_stored_hevc_sets(stored), *_split(first_packet, length_bytes)]
    return any(
        kind == _HEVC_ALPHA_INFORMATION and not body[:1] > b"\x7f"  # alpha_channel_cancel_flag
        for nal in nals
        if nal[0] >> 1 & 63 == _HEVC_SEI
        for kind, body in _sei_messages(nal[2:])
    )


def _stored_hevc_sets(extradata: bytes) -> Iterator[bytes]:
    """The NAL units of an hvcC (ISO/IEC 14496-15, 8.3.2)."""
    if not _length_bytes("hevc", extradata):
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


def _recovers_at_once(nal: bytes) -> bool:
    """Whether an SEI has a recovery point with recovery_frame_cnt 0: a decoder that starts here shows correct
    frames."""
    for kind, body in _sei_messages(nal[1:]):
        if kind == _H264_RECOVERY_POINT:
            return body[:1] > b"\x7f"  # recovery_frame_cnt is ue(v): 0 is the single bit 1
    return False


def _sei_messages(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each message of an SEI; `payload` starts after the header of its NAL unit."""
    at = 0
    while at + 2 < len(payload):
        codes = []
        for _ in ("type", "size"):
            code = 0
            while at + 1 < len(payload) and payload[at] == 255:
                code, at = code + 255, at + 1
            codes.append(code + payload[at])
            at += 1
        yield codes[0], payload[at : at + codes[1]]
        at += codes[1]


def _parse_sps(nal: bytes) -> _Sps:
    bits = _Bits(nal[1:])
    profile = bits.take(8)
    bits.take(16)
    bits.exp_golomb()
    separate_planes = False
    if profile in _HIGH_PROFILES:
        chroma = bits.exp_golomb()
        separate_planes = chroma == 3 and bool(bits.take(1))
        bits.exp_golomb()
        bits.exp_golomb()
        bits.take(1)
        if bits.take(1):
            for number in range(12 if chroma == 3 else 8):
                if bits.take(1):
                    _skip_scaling_list(bits, 16 if number < 6 else 64)
    frame_num_bits = bits.exp_golomb() + 4
    order_type = bits.exp_golomb()
    if order_type == 0:
        bits.exp_golomb()
    elif order_type == 1:
        bits.take(1)
        for _ in range(2):
            bits.exp_golomb()
        for _ in range(bits.exp_golomb()):
            bits.exp_golomb()
    bits.exp_golomb()
    if frame_num_bits > 16:
        raise IndexError("no SPS has so many bits of frame_num")
    gaps_allowed = bool(bits.take(1))
    return _Sps(frame_num_bits, separate_planes, gaps_allowed, _aspect(bits))


def _aspect(bits: _Bits) -> tuple[int, int]:
    """The sample aspect ratio, from the bits after gaps_in_frame_num_value_allowed_flag; 1:1 where there is none."""
    try:
        bits.exp_golomb()
        bits.exp_golomb()
        if not bits.take(1):  # frame_mbs_only_flag
            bits.take(1)
        bits.take(1)
        if bits.take(1):  # frame_cropping_flag
            for _ in range(4):
                bits.exp_golomb()
        if not (bits.take(1) and bits.take(1)):  # vui_parameters_present_flag, aspect_ratio_info_present_flag
            return 1, 1
        code = bits.take(8)
        ratio = (bits.take(16), bits.take(16)) if code == _OWN_ASPECT else _ASPECTS[code - 1 if code else 0]
    except IndexError:
        return 1, 1
    shared = math.gcd(*ratio) or 1
    return ratio[0] // shared, ratio[1] // shared


def _skip_scaling_list(bits: _Bits, size: int) -> None:
    last, following = 8, 8
    for _ in range(size):
        if following:
            code = bits.exp_golomb()
            following = (last + (code // 2 + 1 if code & 1 else -(code // 2))) % 256
        last = following or last
