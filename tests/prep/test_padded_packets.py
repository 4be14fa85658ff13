"""Packets that are made of bytes have what decoders read behind them."""

from __future__ import annotations

import ctypes

from shortgop.prep.probing.headers.padded_packets import packet_of


def test_zeros_lie_behind_a_packet_that_is_made_of_bytes() -> None:
    """As many as AV_INPUT_BUFFER_PADDING_SIZE of libavcodec/defs.h."""
    for data in (b"", b"\xff", b"\xff" * 999):
        packet = packet_of(data)
        assert bytes(packet) == data
        assert ctypes.string_at(packet.buffer_ptr + packet.size, 64) == bytes(64)
