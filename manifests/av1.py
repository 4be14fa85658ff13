"""AV1 as far as shortgop reads it: which frames a temporal unit has, and whether other frames refer to them.

Syntax and names are those of the AV1 Bitstream & Decoding Process Specification (version 1.0.0 with errata 1), sections
5.3 to 5.9; the av1C box is that of AV1 Codec ISO Media File Format Binding, section 2.3. All functions are pure
functions of bytes, and raise CorruptDataError for bytes that do not follow these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import CorruptDataError
from .mp4 import Buffer

CONFIG_HEADER_BYTES = 4
"""Bytes of an av1C box before its OBUs."""
_SEQUENCE_HEADER = 1
_FRAME_TYPES = {3, 6}  # OBU_FRAME_HEADER, OBU_FRAME
_KEY_FRAME, _SWITCH_FRAME = 0, 3
_SELECTED_BY_FRAME = 2
# The fields that are read of a frame header take a few bytes.
_HEADER_BYTES = 32
_LEB128_BYTES = 8


class Obu(NamedTuple):
    """An open bitstream unit: its type, where its header starts, and its payload [body, stop)."""

    type: int
    start: int
    body: int
    stop: int


@dataclass(frozen=True)
class SequenceHeader:
    """What a frame header takes from the sequence header to be read as far as `refresh_frame_flags`."""

    screen_content_tools: int
    integer_mv: int
    frame_id_bits: int
    order_hint_bits: int


@dataclass(frozen=True)
class FrameHeader:
    """`is_key`: a key frame. `is_referenced`: later frames may refer to it. A header that shows a frame which was
    decoded before, and hidden then, is one that is shown and that no frame refers to."""

    is_shown: bool
    is_key: bool
    is_referenced: bool


class _Bits:
    """Reads a few bytes bit by bit, the highest first."""

    def __init__(self, data: Buffer) -> None:
        self._value, self._left = int.from_bytes(data, "big"), 8 * len(data)

    def __call__(self, count: int) -> int:
        """The next `count` bits as an integer. CorruptDataError when there are not so many."""
        self._left -= count
        if self._left < 0:
            raise CorruptDataError("an AV1 header ends early")
        return self._value >> self._left & ((1 << count) - 1)


def obus(data: Buffer, start: int, stop: int) -> Iterator[Obu]:
    """The consecutive OBUs in data[start:stop], which they must fill exactly."""
    while start < stop:
        header = data[start]
        if header & 0x80:
            raise CorruptDataError(f"an OBU at byte {start} has a header that AV1 forbids")
        body, size = start + (2 if header & 4 else 1), 0
        if header & 2:
            byte, shift = 0x80, 0
            while byte >= 0x80 and body < stop and shift < 7 * _LEB128_BYTES:
                byte, body = data[body], body + 1
                size |= (byte & 0x7F) << shift
                shift += 7
            if byte >= 0x80:
                raise CorruptDataError(f"the size of an OBU at byte {start} does not end")
        else:
            size = stop - body
        if size < 0 or body + size > stop:
            raise CorruptDataError(f"an OBU of {size} bytes at byte {start} does not fit its temporal unit")
        yield Obu(header >> 3 & 15, start, body, body + size)
        start = body + size


def sequence_header_of(extradata: Buffer) -> SequenceHeader:
    """The sequence header in an av1C box."""
    for obu in obus(extradata, CONFIG_HEADER_BYTES, len(extradata)):
        if obu.type == _SEQUENCE_HEADER:
            return read_sequence_header(extradata[obu.body : obu.stop])
    raise CorruptDataError("the av1C box has no sequence header")


def read_sequence_header(payload: Buffer) -> SequenceHeader:
    """sequence_header_obu (5.5.1). CorruptDataError also for what the encoders that shortgop uses do not write: still
    pictures, and timing information, with which headers of frames are longer."""
    bits = _Bits(payload)
    bits(3)  # seq_profile
    bits(1)  # still_picture
    if bits(1):
        raise CorruptDataError("the AV1 stream has the headers of a still picture")
    if bits(1):  # timing_info_present_flag
        raise CorruptDataError("the AV1 stream has timing information, which shortgop's encoders do not write")
    has_initial_delay = bits(1)
    for _ in range(bits(5) + 1):
        bits(12)  # operating_point_idc
        if bits(5) > 7:  # seq_level_idx
            bits(1)  # seq_tier
        if has_initial_delay and bits(1):
            bits(4)  # initial_display_delay_minus_1
    width_bits, height_bits = bits(4) + 1, bits(4) + 1
    bits(width_bits)
    bits(height_bits)
    # frame_id_numbers_present_flag, delta_frame_id_length_minus_2, additional_frame_id_length_minus_1
    frame_id_bits = bits(4) + bits(3) + 3 if bits(1) else 0
    bits(3)  # use_128x128_superblock, enable_filter_intra, enable_intra_edge_filter
    bits(4)  # enable_interintra_compound, enable_masked_compound, enable_warped_motion, enable_dual_filter
    has_order_hint = bits(1)
    if has_order_hint:
        bits(2)  # enable_jnt_comp, enable_ref_frame_mvs
    screen_content_tools = _SELECTED_BY_FRAME if bits(1) else bits(1)
    integer_mv = _SELECTED_BY_FRAME
    if screen_content_tools:
        integer_mv = _SELECTED_BY_FRAME if bits(1) else bits(1)
    order_hint_bits = bits(3) + 1 if has_order_hint else 0
    return SequenceHeader(screen_content_tools, integer_mv, frame_id_bits, order_hint_bits)


def read_frame_header(payload: Buffer, sequence: SequenceHeader) -> FrameHeader:
    """uncompressed_header (5.9.2), as far as `refresh_frame_flags`, which says whether the frame is kept for others."""
    bits = _Bits(payload[:_HEADER_BYTES])
    if bits(1):  # show_existing_frame
        return FrameHeader(is_shown=True, is_key=False, is_referenced=False)
    frame_type, is_shown = bits(2), bool(bits(1))
    if not is_shown:
        bits(1)  # showable_frame
    resets = frame_type == _SWITCH_FRAME or (frame_type == _KEY_FRAME and is_shown)
    is_resilient = resets or bool(bits(1))
    bits(1)  # disable_cdf_update
    tools = sequence.screen_content_tools
    if bits(1) if tools == _SELECTED_BY_FRAME else tools:
        bits(1 if sequence.integer_mv == _SELECTED_BY_FRAME else 0)
    bits(sequence.frame_id_bits)
    bits(0 if frame_type == _SWITCH_FRAME else 1)  # frame_size_override_flag
    bits(sequence.order_hint_bits)
    # Only key frames and intra-only frames (2) refer to no other.
    bits(0 if frame_type in {_KEY_FRAME, 2} or is_resilient else 3)  # primary_ref_frame
    return FrameHeader(is_shown, frame_type == _KEY_FRAME, is_referenced=resets or bits(8) != 0)


def temporal_unit_kind(data: Buffer, start: int, stop: int, sequence: SequenceHeader) -> tuple[bool, bool]:
    """Whether the temporal unit in data[start:stop] begins a GOP, and whether other frames may refer to one of its own.

    It has to show one frame, the last that it has. A key frame has to be shown, as the only frame of its unit, and to
    have the sequence header before it: what is decoded before it is of no use to any frame behind it.
    """
    frames, has_sequence_header = [], False
    for obu in obus(data, start, stop):
        if obu.type == _SEQUENCE_HEADER:
            has_sequence_header = True
        elif obu.type in _FRAME_TYPES:
            frames.append(read_frame_header(data[obu.body : obu.stop], sequence))
    if [frame.is_shown for frame in frames] != [False] * (len(frames) - 1) + [True]:
        raise CorruptDataError("a temporal unit does not show one frame, the last that it has")
    is_key = any(frame.is_key for frame in frames)
    if is_key and (len(frames) != 1 or not has_sequence_header):
        raise CorruptDataError("a key frame is hidden, or comes without the sequence header")
    return is_key, any(frame.is_referenced for frame in frames)


def referenced_stop(data: Buffer, start: int, stop: int, sequence: SequenceHeader) -> int:
    """Where the frames of a temporal unit end that others may refer to: at `stop`, or before the one that it shows."""
    shown = [obu for obu in obus(data, start, stop) if obu.type in _FRAME_TYPES][-1:]
    if shown and not read_frame_header(data[shown[0].body : shown[0].stop], sequence).is_referenced:
        return shown[0].start
    return stop
