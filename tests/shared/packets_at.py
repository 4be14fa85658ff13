"""Packets of H.264 at any times."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av


def packets_at(target: Path, times: Sequence[int], packets: Sequence[tuple[int, bytes]], timebase: Fraction) -> Path:
    """Write packets without B-frames, which may have the same time, in units of `timebase` seconds."""
    with av.open(target, "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for time, (_number, data) in zip(times, packets, strict=True):
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.pts, packet.dts = stream, timebase, time, time
            packet.is_keyframe = b"\0\0\1\x65" in data
            out.mux(packet)
    return target
