"""Packets made of bytes, for decoders."""

from __future__ import annotations

from typing import Any

from av.packet import Packet


def packet_of(data: bytes) -> Packet[Any]:
    """A packet with these bytes, and zeros behind them: decoders read further than a packet's end. A packet that PyAV
    makes of bytes has none, and decoders then say that it is damaged, once in a while."""
    packet: Packet[Any] = Packet(len(data))
    packet.update(data)
    return packet
