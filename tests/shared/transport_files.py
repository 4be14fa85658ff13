"""Transport streams as packets, and what prep makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import shortgop
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

PID = 256
"""Of the first stream in what FFmpeg writes."""
MPEG2 = ("-c:v", "mpeg2video", "-q:v", "2", "-bf", "2", "-g", "20", "-flags", "cgop", "-sc_threshold", "1000000000")


def packets_in(data: bytes) -> list[bytearray]:
    return [bytearray(data[at : at + 188]) for at in range(0, len(data), 188)]


def prepared(source: Path, *, salvage: bool = False) -> tuple[Report, list[int]]:
    """What the job says of a source, and the numbers that its frames show."""
    out = source.parent / f"dataset-{salvage}"
    report = prepare([str(source)], DiskStorage(out), Profile(), where=Where("inline"), policy=SourcePolicy(salvage))
    return report, [] if report.failures else [read_number(frame) for frame in shortgop.open(out)[0]]


def written(path: Path, parts: Iterable[bytes | bytearray]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(parts))
    return path


def pes_starts(packets: list[bytearray]) -> list[int]:
    """The numbers of the packets with which a frame begins."""
    return [
        number
        for number, packet in enumerate(packets)
        if packet[1] & 0x40 and int.from_bytes(packet[1:3]) & 0x1FFF == PID
    ]
