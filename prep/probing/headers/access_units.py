"""Reads the headers of a source's packets without decoding: where a decoder may start, and whether a packet is missing.

Formulas and codes: ISO/IEC 14496-10 (H.264) 7.3.3, 7.4.1 and D.2.8, 23008-2 (HEVC) 7.4.2.2, 13818-2 (MPEG-2) 6.3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import SupportsBytes

from .gif_blocks import has_picture
from .h264_sps import Bits, Sps, parse_sps
from .nal_units import length_bytes_of, split_units, stored_h264_sets, stored_hevc_sets

_H264_SLICES, _H264_IDR, _H264_SEI, _H264_SPS, _H264_PPS = (1, 5), 5, 6, 7, 8
_H264_HEADERS = range(6, 10)
_H264_RECOVERY_POINT = 6
# 23008-2 (HEVC) 7.3.2.4 and F.14.2.8: prefix SEI, alpha channel information.
_HEVC_SEI, _HEVC_ALPHA_INFORMATION = 39, 165
_HEVC_ENTRIES, _HEVC_HEADERS, _HEVC_PARAMETER_SETS = range(16, 22), range(32, 41), range(32, 35)
# RASL pictures.
_HEVC_SKIPPED = (8, 9)
_LOOKED_AT_BYTES = 64
_MPEG = ("mpeg1video", "mpeg2video")
_MPEG2_SEQUENCE = b"\0\0\1\xb3"
# A picture: its number in the GOP, and in an extension behind it which fields it has (1 and 2: one of them, 3: both).
_MPEG2_PICTURE = re.compile(rb"(?s)\x00\x00\x01\x00(..).*?\x00\x00\x01\xb5[\x80-\x8f].(.)")
_BOTH_FIELDS = 3
# With what a picture begins, in codecs whose pictures say what they are: 11172-2 (MPEG-1) 2.4.3.4, 13818-2 6.3.9, and
# 14496-2 (MPEG-4) 6.3.5.
_HAVE_B_PICTURES = {"mpeg1video": b"\0\0\1\0", "mpeg2video": b"\0\0\1\0", "mpeg4": b"\0\0\1\xb6"}
_I_PICTURE, _B_PICTURE = 1, 3


@dataclass(frozen=True)
class AccessUnit:
    """The headers of one packet. `is_entry`: a decoder that starts here decodes everything that is shown from here on.
    `counter` is the codec's frame counter (H.264: frame_num) in this packet, `next_counter` the value expected in the
    next packet; None where they are unknown. `is_second_field`: the packet is the second field of the frame whose first
    one is the packet before. `follows_half`: the packet before is one of two fields, and the other one is missing.
    `lacks_field`: one is missing within the packet. `has_picture`: False where a packet of H.264, HEVC, MPEG-1, MPEG-2
    or MPEG-4 has none."""

    is_entry: bool | None = None
    counter: int | None = None
    next_counter: int | None = None
    is_second_field: bool = False
    follows_half: bool = False
    lacks_field: bool = False
    has_picture: bool = True


@dataclass(frozen=True)
class _Picture:
    """A picture of MPEG-2: its number in the GOP, and which fields it has."""

    number: int
    fields: int

    def completes(self, other: _Picture | None) -> bool:
        """Whether the other one has the other field of the same frame."""
        return other is not None and self.number == other.number and self.fields + other.fields == _BOTH_FIELDS


@dataclass(frozen=True)
class _Slice:
    """The beginning of an H.264 slice. `is_bottom`: of which field it is; None for a frame."""

    frame_num: int
    is_bottom: bool | None


class HeaderReader:
    """Reads the packets of a stream in decode order. Only for H.264 and HEVC do the headers say where a decoder may
    start. By the headers read so far: `lacks_delay`: an SPS of H.264 does not say how many frames a decoder has to hold
    back; `has_sequence`: decoders can decode a keyframe, before which those of MPEG-1 and MPEG-2 need the header of a
    sequence."""

    def __init__(self, codec: str, extradata: bytes | None) -> None:
        self._codec = codec
        self._length_bytes = length_bytes_of(codec, extradata or b"")
        self._sps: Sps | None = None
        self._expected: int | None = None
        # The packet before, if it is a field without the other one of its frame.
        self._field: _Slice | None = None
        self._picture: _Picture | None = None
        self._aspects: set[object] = set()
        # None until there is an SPS.
        self._only_frames: bool | None = None
        self.lacks_delay = False
        self.has_sequence = codec not in _MPEG
        stored = stored_h264_sets(extradata or b"") if codec == "h264" else []
        stored = [nal for nal in stored if nal[0] & 31 == _H264_SPS]
        for nal in stored[:1] if self._length_bytes else stored:
            self._keep_sps(nal)

    def read(self, data: bytes) -> AccessUnit:
        """The headers of a packet; an empty AccessUnit where they cannot be parsed."""
        try:
            if self._codec == "h264":
                return self._read_h264(data)
        except IndexError:
            return AccessUnit()
        if self._codec == "hevc":
            slices = self._hevc_slices(data)
            is_entry = bool(slices) and all(kind in _HEVC_ENTRIES for kind in slices)
            return AccessUnit(is_entry=is_entry, has_picture=bool(slices))
        if self._codec in _MPEG:
            at = data.find(_MPEG2_SEQUENCE, 0, _LOOKED_AT_BYTES)
            self.has_sequence = self.has_sequence or at >= 0
            self._aspects.update(code >> 4 for code in data[at + 7 : at + 8] if at >= 0)
        if self._codec in _HAVE_B_PICTURES and _HAVE_B_PICTURES[self._codec] not in data:
            return AccessUnit(has_picture=False)
        return self._read_mpeg2(data) if self._codec == "mpeg2video" else AccessUnit()

    @property
    def aspect_changes(self) -> bool:
        """Whether the packets read so far have more than one sample aspect ratio (H.264, MPEG-1 and MPEG-2)."""
        return len(self._aspects) > 1

    @property
    def has_only_frames(self) -> bool:
        """Whether no picture can be a field or have two, by all SPS read so far (H.264)."""
        return bool(self._only_frames)

    @property
    def is_in_mid_frame(self) -> bool:
        """Whether the last packet read is a field whose frame lacks the other one."""
        return self._field is not None or self._picture is not None

    def leads(self, data: bytes) -> bool | None:
        """Whether decoders leave out the picture of a packet if they start at the entry before it; None for codecs that
        do not say so."""
        if self._codec == "hevc":
            slices = self._hevc_slices(data)
            return bool(slices) and all(kind in _HEVC_SKIPPED for kind in slices)
        return _kind_of_picture(self._codec, data) == _B_PICTURE if self._codec in _HAVE_B_PICTURES else None

    def misses_one(self, unit: AccessUnit) -> bool:
        """Whether a reference frame is missing between the previous packet and this one."""
        if unit.is_second_field:
            return False
        # After a reset the counter starts at 0.
        counts = unit.counter is not None and self._expected is not None and not unit.is_entry
        misses = counts and unit.counter not in (self._expected, 0)
        # The counter of the last reference frame.
        before = ((self._expected or 0) - 1) % (1 << self._sps.frame_num_bits) if self._sps is not None else None
        if counts and unit.counter == unit.next_counter == before:
            # Some encoders give a frame that no other one refers to the number of the reference frame before it. FFmpeg
            # takes this for no gap either.
            return False
        if unit.next_counter is not None:
            self._expected = unit.next_counter
        return misses

    def _hevc_slices(self, data: bytes) -> list[int]:
        """The types of the NAL units that are slices of a picture. Only the lowest layer is decoded; others are the
        second view of stereo, or alpha."""
        types = (nal[0] >> 1 & 63 for nal in split_units(data, self._length_bytes) if not (nal[0] & 1 or nal[1] >> 3))
        return [kind for kind in types if kind < 32]

    def _read_mpeg2(self, data: bytes) -> AccessUnit:
        """A packet has a frame, both fields of one or one of them. Where one is missing, FFmpeg's parser puts those of
        two frames together."""
        pictures = _mpeg2_pictures(data)
        if not pictures:
            return AccessUnit()
        before, self._picture = self._picture, None
        is_second = pictures[0].completes(before)
        left = pictures[is_second:]
        lacks_field = bool(is_second and left)
        while left:
            first, *left = left
            if left and left[0].completes(first):
                left = left[1:]
            elif first.fields != _BOTH_FIELDS and left:
                lacks_field = True
            elif first.fields != _BOTH_FIELDS:
                self._picture = first
        follows_half = before is not None and not is_second
        return AccessUnit(
            is_second_field=is_second and not lacks_field, follows_half=follows_half, lacks_field=lacks_field
        )

    def _read_h264(self, data: bytes) -> AccessUnit:
        recovers = False
        before, self._field = self._field, None
        nals = split_units(data, self._length_bytes)
        for nal in nals:
            kind, ref_idc = nal[0] & 31, nal[0] >> 5 & 3
            if kind == _H264_SPS:
                self._keep_sps(nal)
            elif kind == _H264_SEI:
                recovers = recovers or _recovers_at_once(nal)
            elif kind in _H264_SLICES:
                if self._sps is not None:
                    self._aspects.add(self._sps.aspect)
                first = self._slice(nal)
                is_entry = kind == _H264_IDR or recovers
                if first is None or self._sps is None:
                    return AccessUnit(is_entry=is_entry)
                is_second = kind != _H264_IDR and self._completes(before, first)
                if not is_second and self._is_one_field(first, nals):
                    self._field = first
                follows_half = before is not None and not is_second
                if self._sps.gaps_allowed:
                    return AccessUnit(is_entry, None, None, is_second, follows_half)
                expected = (first.frame_num + (1 if ref_idc else 0)) % (1 << self._sps.frame_num_bits)
                return AccessUnit(is_entry, first.frame_num, expected, is_second, follows_half)
        return AccessUnit(is_entry=False, has_picture=False)

    @staticmethod
    def _completes(before: _Slice | None, field: _Slice) -> bool:
        """Whether two fields in a row are those of one frame, as FFmpeg's decoder pairs them."""
        return (
            before is not None
            and None not in (before.is_bottom, field.is_bottom)
            and before.is_bottom != field.is_bottom
            and before.frame_num == field.frame_num
        )

    def _is_one_field(self, first: _Slice, others: Iterator[bytes]) -> bool:
        """Whether all slices of a packet are of the field that the first one is of."""
        if first.is_bottom is None:
            return False
        slices = (self._slice(nal) for nal in others if nal[0] & 31 in _H264_SLICES)
        return all(each is not None and each.is_bottom == first.is_bottom for each in slices)

    def _slice(self, nal: bytes) -> _Slice | None:
        if self._sps is None:
            return None
        bits = Bits(nal[1:_LOOKED_AT_BYTES])
        for _ in range(3):  # first_mb_in_slice, slice_type, pic_parameter_set_id
            bits.exp_golomb()
        if self._sps.separate_planes:
            bits.take(2)
        frame_num = bits.take(self._sps.frame_num_bits)
        is_field = self._sps.allows_fields and bits.take(1)  # field_pic_flag
        return _Slice(frame_num, bool(bits.take(1)) if is_field else None)

    def _keep_sps(self, nal: bytes) -> None:
        try:
            self._sps = parse_sps(nal)
        except IndexError:
            self._sps = None
        is_of_frames = self._sps is not None and self._sps.has_only_frames
        self._only_frames = is_of_frames and self._only_frames is not False
        self.lacks_delay = self.lacks_delay or self._sps is None or not self._sps.states_delay


def has_only_headers(codec: str, data: bytes, extradata: bytes | None) -> bool:
    """Whether a packet has no picture: one of H.264 or HEVC has parameter sets, messages or a delimiter, and one of a
    GIF what lies behind its last picture, such as a comment."""
    if codec == "gif":
        return bool(data) and not has_picture(data)
    nals = list(split_units(data, length_bytes_of(codec, extradata or b"")))
    if codec == "hevc":
        return bool(nals) and all(nal[0] >> 1 & 63 in _HEVC_HEADERS for nal in nals)
    return bool(nals) and all(nal[0] & 31 in _H264_HEADERS for nal in nals)


def may_order_fields(extradata: bytes | None) -> bool:
    """Whether the two fields of a frame may have different orders, by the parameter sets that are stored for an H.264
    stream: ISO/IEC 14496-10, 7.3.2.1.1 and 7.3.2.2."""
    for nal in stored_h264_sets(extradata or b""):
        with suppress(IndexError):
            if nal[0] & 31 == _H264_SPS and parse_sps(nal).orders_fields:
                return True
            if nal[0] & 31 == _H264_PPS:
                bits = Bits(nal[1:])
                for _ in range(2):  # pic_parameter_set_id, seq_parameter_set_id
                    bits.exp_golomb()
                # entropy_coding_mode_flag, bottom_field_pic_order_in_frame_present_flag
                if bits.take(2) & 1:
                    return True
    return False


def refers_to_others(codec: str, packet: SupportsBytes) -> bool:
    """Whether the first picture in a packet of MPEG-1, MPEG-2 or MPEG-4 refers to others, so that no decoder may start
    there, whatever a container says; False for other codecs."""
    return codec in _HAVE_B_PICTURES and _kind_of_picture(codec, bytes(packet)) not in (None, _I_PICTURE)


def _kind_of_picture(codec: str, data: bytes) -> int | None:
    """The kind of the first picture in a packet of one of these codecs, by the codes of MPEG-1; None where there is no
    picture."""
    start = _HAVE_B_PICTURES[codec]
    at = data.find(start) + len(start)
    if at < len(start) or at + 1 >= len(data):
        return None
    # Of MPEG-1 and MPEG-2 a number of ten bits comes first, and the codes are one more than those of MPEG-4.
    return (data[at] >> 6) + 1 if codec == "mpeg4" else data[at + 1] >> 3 & 7


def _mpeg2_pictures(data: bytes) -> list[_Picture]:
    """The pictures in a packet; only the first one if it is a whole frame."""
    found: list[_Picture] = []
    for match in _MPEG2_PICTURE.finditer(data):
        found.append(_Picture(int.from_bytes(match[1]) >> 6, match[2][0] & 3))
        if found[0].fields == _BOTH_FIELDS:
            break
    return found


def has_alpha_layer(extradata: bytes | None, first_packet: bytes) -> bool:
    """Whether an HEVC stream declares one of its layers to be alpha."""
    stored = extradata or b""
    length_bytes = length_bytes_of("hevc", stored)
    nals = [*stored_hevc_sets(stored), *split_units(first_packet, length_bytes)]
    return any(
        kind == _HEVC_ALPHA_INFORMATION and not body[:1] > b"\x7f"  # alpha_channel_cancel_flag
        for nal in nals
        if nal[0] >> 1 & 63 == _HEVC_SEI
        for kind, body in _sei_messages(nal[2:])
    )


def hevc_parameter_sets(extradata: bytes) -> list[bytes]:
    """The parameter sets in an hvcC, without the messages that are beside them."""
    return [nal for nal in stored_hevc_sets(extradata) if nal[0] >> 1 & 63 in _HEVC_PARAMETER_SETS]


def _recovers_at_once(nal: bytes) -> bool:
    """Whether an SEI has a recovery point with recovery_frame_cnt 0: a decoder that starts here shows correct
    frames."""
    for kind, body in _sei_messages(nal[1:]):
        if kind == _H264_RECOVERY_POINT:
            return body[:1] > b"\x7f"  # recovery_frame_cnt is ue(v): 0 is the single bit 1
    return False


def _sei_messages(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each message of an SEI; `payload` starts after the header of its NAL unit. Sizes do not count
    the bytes that keep start codes out of it."""
    payload = payload.replace(b"\0\0\3", b"\0\0")
    at = 0
    while at + 2 < len(payload):
        codes = []
        for _ in ("type", "size"):
            code = 0
            while payload[at : at + 1] == b"\xff":
                code, at = code + 255, at + 1
            # A message may end in the middle of its own header.
            codes.append(code + int.from_bytes(payload[at : at + 1]))
            at += 1
        yield codes[0], payload[at : at + codes[1]]
        at += codes[1]
