"""Reads the sequence parameter set of an H.264 stream: ISO/IEC 14496-10, 7.3.2.1.1 and annex E.1."""

from __future__ import annotations

import math
from dataclasses import dataclass

_HIGH_PROFILES = {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}
# 14496-10, table E-1: sample aspect ratios for aspect_ratio_idc 1 and up. After 255 the ratio itself follows.
_ASPECTS = (
    (1, 1), (12, 11), (10, 11), (16, 11), (40, 33), (24, 11), (20, 11), (32, 11), (80, 33), (18, 11), (15, 11),
    (64, 33), (160, 99), (4, 3), (3, 2), (2, 1),
)  # fmt: skip
_OWN_ASPECT = 255


class Bits:
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
        rest = self._bits & ((1 << self._left) - 1)
        zeros = self._left - rest.bit_length()
        return self.take(2 * zeros + 1) - 1


@dataclass(frozen=True)
class Sps:
    """The fields that are needed to read slice headers, and the sample aspect ratio. `allows_fields`: a picture may be
    a field. `has_only_frames`: decoders mark no picture as one of two fields, since the SPS allows no fields and no
    message says how pictures are to be shown. `states_delay`: the SPS says how many frames a decoder has to hold back,
    so that they come out in the order in which they are shown. `order_bits`: how long the number is that orders slices,
    0 where they have none. `has_order_deltas`: a slice may state how its order differs from the expected one.
    `orders_fields`: the two fields of a frame have different orders. `has_chroma`: slices have colours, and weights of
    these."""

    frame_num_bits: int
    separate_planes: bool
    gaps_allowed: bool
    aspect: tuple[int, int]
    allows_fields: bool
    has_only_frames: bool
    states_delay: bool = False
    number: int = 0
    order_bits: int = 0
    has_order_deltas: bool = False
    orders_fields: bool = False
    has_chroma: bool = True


def parse_sps(nal: bytes) -> Sps:
    """The SPS in a NAL unit. IndexError for one that ends early or that no encoder writes."""
    bits = Bits(nal[1:])
    profile = bits.take(8)
    bits.take(16)
    number = bits.exp_golomb()
    separate_planes, has_chroma = False, True
    if profile in _HIGH_PROFILES:
        chroma = bits.exp_golomb()
        separate_planes = chroma == 3 and bool(bits.take(1))
        has_chroma = chroma != 0 and not separate_planes
        bits.exp_golomb()
        bits.exp_golomb()
        bits.take(1)
        if bits.take(1):
            for place in range(12 if chroma == 3 else 8):
                if bits.take(1):
                    _skip_scaling_list(bits, 16 if place < 6 else 64)
    frame_num_bits = bits.exp_golomb() + 4
    order_type = bits.exp_golomb()
    order_bits, has_order_deltas, orders_fields = 0, False, False
    if order_type == 0:
        order_bits = bits.exp_golomb() + 4
    elif order_type == 1:
        has_order_deltas = not bits.take(1)  # delta_pic_order_always_zero_flag
        bits.exp_golomb()
        orders_fields = bits.exp_golomb() != 0  # offset_for_top_to_bottom_field
        for _ in range(bits.exp_golomb()):
            bits.exp_golomb()
    bits.exp_golomb()
    if frame_num_bits > 16:
        raise IndexError("no SPS has so many bits of frame_num")
    gaps_allowed = bool(bits.take(1))
    try:
        for _ in range(2):  # width and height
            bits.exp_golomb()
        frames_only = bool(bits.take(1))  # frame_mbs_only_flag
    except IndexError:
        return Sps(frame_num_bits, separate_planes, gaps_allowed, (1, 1), allows_fields=False, has_only_frames=False)
    aspect, has_only_frames, states_delay = _shown(bits, frames_only=frames_only)
    return Sps(
        frame_num_bits, separate_planes, gaps_allowed, aspect, not frames_only, has_only_frames, states_delay,
        number, order_bits, has_order_deltas, orders_fields, has_chroma,
    )  # fmt: skip


def _shown(bits: Bits, *, frames_only: bool) -> tuple[tuple[int, int], bool, bool]:
    """The sample aspect ratio, 1:1 where there is none, whether there are only frames, and whether the delay of the
    decoder is stated: from the bits after frame_mbs_only_flag."""
    aspect = (1, 1)
    try:
        if not frames_only:
            bits.take(1)
        bits.take(1)
        if bits.take(1):  # frame_cropping_flag
            for _ in range(4):
                bits.exp_golomb()
        if not bits.take(1):  # vui_parameters_present_flag
            return aspect, frames_only, False
        if bits.take(1):  # aspect_ratio_info_present_flag
            aspect = _aspect(bits)
        has_only_frames = not _has_picture_structure(bits) and frames_only
    except IndexError:
        return aspect, False, False
    try:
        return aspect, has_only_frames, bool(bits.take(1))  # bitstream_restriction_flag
    except IndexError:
        return aspect, has_only_frames, False


def _aspect(bits: Bits) -> tuple[int, int]:
    code = bits.take(8)
    if code == _OWN_ASPECT:
        ratio = (bits.take(16), bits.take(16))
    else:
        ratio = _ASPECTS[code - 1] if 1 <= code <= len(_ASPECTS) else (1, 1)
    shared = math.gcd(*ratio) or 1
    return ratio[0] // shared, ratio[1] // shared


def _has_picture_structure(bits: Bits) -> bool:
    """pic_struct_present_flag: whether messages say how pictures are to be shown. From the bits after the aspect."""
    if bits.take(1):  # overscan_info_present_flag
        bits.take(1)
    if bits.take(1):  # video_signal_type_present_flag
        bits.take(4)
        if bits.take(1):
            bits.take(24)
    if bits.take(1):  # chroma_loc_info_present_flag
        for _ in range(2):
            bits.exp_golomb()
    if bits.take(1):  # timing_info_present_flag
        bits.take(65)
    has_buffers = False
    for _ in range(2):  # nal_hrd_parameters_present_flag, vcl_hrd_parameters_present_flag
        if bits.take(1):
            has_buffers = True
            _skip_buffers(bits)
    if has_buffers:
        bits.take(1)
    return bool(bits.take(1))


def _skip_buffers(bits: Bits) -> None:
    """hrd_parameters()."""
    count = bits.exp_golomb() + 1
    bits.take(8)
    for _ in range(count):
        for _ in range(2):
            bits.exp_golomb()
        bits.take(1)
    bits.take(20)


def _skip_scaling_list(bits: Bits, size: int) -> None:
    last, following = 8, 8
    for _ in range(size):
        if following:
            code = bits.exp_golomb()
            following = (last + (code // 2 + 1 if code & 1 else -(code // 2))) % 256
        last = following or last
