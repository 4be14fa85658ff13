"""An H.264 stream of field pictures: each field of a frame is a picture, and a packet, of its own, as camcorders record
(AVCHD). No encoder at hand writes it, so it is written here, of macroblocks that hold their pixels as they are.

Formulas and codes: ISO/IEC 14496-10, 7.3.2.1 (SPS), 7.3.2.2 (PPS), 7.3.3 (slice header), 7.3.5 (I_PCM).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

from synthetic import burn

WIDTH, HEIGHT = 96, 64
_MACROBLOCK = 16
_I_PCM = 25
_ONLY_I_SLICES = 7
_IDR, _OTHER = 0x65, 0x61
_MPEG2_SEQUENCE = b"\0\0\1\xb3"
HALF = Fraction(1, 50)


def field_packets(numbers: range, *, gop: int) -> list[bytes]:
    """Two packets for each frame, the first with its upper field; `gop` frames begin with an IDR."""
    packets = []
    for place, number in enumerate(numbers):
        luma = burn(number, WIDTH, HEIGHT).mean(axis=2) * (219 / 255) + 16
        for is_bottom in (0, 1):
            field = luma[is_bottom::2].astype(np.uint8)
            head = [_nal(0x67, _sps()), _nal(0x68, _pps())] if place % gop == 0 and not is_bottom else []
            packets.append(b"".join([*head, _slice(field, place % gop, is_bottom, place // gop % 2)]))
    return packets


def written(path: Path, packets: list[bytes], left_out: tuple[int, ...] = (), each: Fraction = HALF) -> Path:
    """A file of these packets, 50 a second or one `each` so many seconds, without some of them."""
    raw = path.with_name("raw.m2v" if packets[0].startswith(_MPEG2_SEQUENCE) else "raw.h264")
    raw.write_bytes(b"".join(packets))
    with av.open(raw) as source, av.open(path, "w") as container:
        stream = container.add_stream_from_template(source.streams.video[0])
        assert isinstance(stream, VideoStream)
        for number, data in enumerate(packets):
            if number in left_out:
                continue
            packet = av.Packet(data)
            packet.stream, packet.time_base = stream, each
            packet.pts = packet.dts = number
            packet.duration = 1
            packet.is_keyframe = b"\0\0\1\x65" in data or data.startswith(_MPEG2_SEQUENCE)
            container.mux(packet)
    return path


class BitWriter:
    """Writes the fields of headers of H.264: numbers of so many bits, and of Exp-Golomb codes."""

    def __init__(self) -> None:
        self._bits: list[str] = []

    def put(self, value: int, count: int) -> BitWriter:
        self._bits.append(f"{value:0{count}b}")
        return self

    def golomb(self, *values: int) -> BitWriter:
        for value in values:
            self.put(value + 1, 2 * (value + 1).bit_length() - 1)
        return self

    def aligned(self) -> bytes:
        """What is written so far, filled up with zeros."""
        text = "".join(self._bits)
        text += "0" * (-len(text) % 8)
        return int(text, 2).to_bytes(len(text) // 8)


def _sps() -> bytes:
    main_profile, level_3 = 77, 30
    writer = BitWriter().put(main_profile, 8).put(0, 8).put(level_3, 8)
    # id 0, frame_num of 4 bits, frames are shown as they are decoded, one reference, no gaps, 96x64 of fields.
    writer.golomb(0, 0, 2, 1).put(0, 1).golomb(WIDTH // _MACROBLOCK - 1, HEIGHT // _MACROBLOCK // 2 - 1)
    # frame_mbs_only_flag 0, no frames of mixed macroblocks, direct_8x8_inference, no crop, no VUI, and the stop bit.
    return writer.put(0b001001, 6).aligned()


def _pps() -> bytes:
    # Both ids 0, CAVLC, one slice group and one reference, no weights, deblocking can be switched off.
    return BitWriter().golomb(0, 0).put(0, 2).golomb(0, 0, 0).put(0, 3).golomb(0, 0, 0).put(0b1001, 4).aligned()


def _slice(field: NDArray[np.uint8], frame_num: int, is_bottom: int, idr_id: int) -> bytes:
    is_idr = frame_num == 0 and not is_bottom
    writer = BitWriter().golomb(0, _ONLY_I_SLICES, 0).put(frame_num % 16, 4).put(1, 1).put(is_bottom, 1)
    if is_idr:
        writer.golomb(idr_id).put(0, 2)
    else:
        writer.put(0, 1)
    # The quantizer as it is, and no deblocking.
    writer.golomb(0, 1)
    data = b""
    for pixels in _macroblocks(field):
        data += writer.golomb(_I_PCM).aligned() + pixels
        writer = BitWriter()
    return _nal(_IDR if is_idr else _OTHER, data + b"\x80")


def _macroblocks(field: NDArray[np.uint8]) -> Iterator[bytes]:
    side, grey = _MACROBLOCK, b"\x80" * 128
    for top in range(0, field.shape[0], side):
        for left in range(0, field.shape[1], side):
            yield field[top : top + side, left : left + side].tobytes() + grey


def _nal(header: int, payload: bytes) -> bytes:
    # A byte keeps start codes out of the payload.
    return b"\0\0\0\1" + bytes([header]) + re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", payload)
