"""A writer of MP4 fragments, independent of the parser."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field


def box(kind: bytes, *payload: bytes, large: bool = False) -> bytes:
    body = b"".join(payload)
    if large:
        return struct.pack(">I4sQ", 1, kind, 16 + len(body)) + body
    return struct.pack(">I4s", 8 + len(body), kind) + body


def full_box(kind: bytes, version: int, flags: int, *payload: bytes) -> bytes:
    return box(kind, struct.pack(">I", version << 24 | flags), *payload)


@dataclass(frozen=True)
class Writer:
    """Writes a fragment in any of the ways the standard allows for one track run."""

    samples: Sequence[tuple[int, int, int]]  # size, duration, composition
    payload: bytes | None = None  # by default each sample is filled with its number
    sequence_number: int = 1
    decode_ticks: int = 0
    tfdt_version: int = 1
    default_size: int | None = None
    default_duration: int | None = None
    data_offset: bool = True
    first_flags: bool = False
    sample_flags: bool = False
    signed: bool = True
    large: bool = False
    tfhd_extra: dict[int, int] = field(default_factory=dict)
    tfhd_flags: int = 0x20000

    def write(self) -> bytes:
        size_of_moof = len(self._moof(0))
        header = 16 if self.large else 8
        numbered = b"".join(bytes([number % 256]) * size for number, (size, _, _) in enumerate(self.samples))
        mdat = box(b"mdat", numbered if self.payload is None else self.payload, large=self.large)
        return self._moof(size_of_moof + header) + mdat

    def _moof(self, data_offset: int) -> bytes:
        defaults = dict(self.tfhd_extra)
        if self.default_duration is not None:
            defaults[0x8] = self.default_duration
        if self.default_size is not None:
            defaults[0x10] = self.default_size
        tfhd = full_box(
            b"tfhd",
            0,
            self.tfhd_flags | sum(defaults),
            struct.pack(">I", 1),
            *(struct.pack(">I", defaults[flag]) for flag in sorted(defaults)),
        )
        tfdt = full_box(
            b"tfdt", self.tfdt_version, 0, struct.pack(">Q" if self.tfdt_version else ">I", self.decode_ticks)
        )
        flags = (
            0x1 * self.data_offset
            | 0x4 * self.first_flags
            | 0x100 * (self.default_duration is None)
            | 0x200 * (self.default_size is None)
            | 0x400 * self.sample_flags
            | 0x800
        )
        entries = b""
        for size, duration, composition in self.samples:
            entries += struct.pack(">I", duration) if self.default_duration is None else b""
            entries += struct.pack(">I", size) if self.default_size is None else b""
            entries += struct.pack(">I", 0x01010000) if self.sample_flags else b""
            entries += struct.pack(">i" if self.signed else ">I", composition)
        trun = full_box(
            b"trun",
            int(self.signed),
            flags,
            struct.pack(">I", len(self.samples)),
            struct.pack(">i", data_offset) if self.data_offset else b"",
            struct.pack(">I", 0x02000000) if self.first_flags else b"",
            entries,
        )
        mfhd = full_box(b"mfhd", 0, 0, struct.pack(">I", self.sequence_number))
        return box(b"moof", mfhd, box(b"traf", tfhd, tfdt, trun))
