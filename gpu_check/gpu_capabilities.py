"""What NVDEC decodes here, as libnvcuvid says."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from check_record import Record
from cuda_driver import check, load, require_gpu, use_primary_context

# Numbers and layout from include/ffnvcodec/dynlink_cuviddec.h of nv-codec-headers n13.0.19.0 (Video Codec SDK 13.0):
# cudaVideoCodec, cudaVideoChromaFormat, cudaVideoSurfaceFormat, CUVIDDECODECAPS.
CODECS = {"h264": 4, "hevc": 8, "vp9": 10, "av1": 11}
CHROMA_420 = 1
SURFACES = ("nv12", "p016", "yuv444", "yuv444_16bit")


class DecodeCaps(ctypes.Structure):
    """CUVIDDECODECAPS. The first three are given, the others are the answer."""

    _fields_ = (
        ("codec", ctypes.c_int),
        ("chroma", ctypes.c_int),
        ("bit_depth_minus_8", ctypes.c_uint),
        ("reserved1", ctypes.c_uint * 3),
        ("is_supported", ctypes.c_ubyte),
        ("num_engines", ctypes.c_ubyte),
        ("output_format_mask", ctypes.c_ushort),
        ("max_width", ctypes.c_uint),
        ("max_height", ctypes.c_uint),
        ("max_macroblocks", ctypes.c_uint),
        ("min_width", ctypes.c_ushort),
        ("min_height", ctypes.c_ushort),
        ("is_histogram_supported", ctypes.c_ubyte),
        ("counter_bit_depth", ctypes.c_ubyte),
        ("max_histogram_bins", ctypes.c_ushort),
        ("reserved3", ctypes.c_uint * 10),
    )


@dataclass(frozen=True)
class Capability:
    """Whether a codec of this bit depth is decoded, on how many engines, to which surfaces, and sizes in pixels."""

    supported: bool
    engines: int = 0
    surfaces: tuple[str, ...] = ()
    min_size: tuple[int, int] = (0, 0)
    max_size: tuple[int, int] = (0, 0)
    max_macroblocks: int = 0

    @staticmethod
    def of(caps: DecodeCaps) -> Capability:
        if not caps.is_supported:
            return Capability(False)
        return Capability(
            True,
            caps.num_engines,
            tuple(name for bit, name in enumerate(SURFACES) if caps.output_format_mask >> bit & 1),
            (caps.min_width, caps.min_height),
            (caps.max_width, caps.max_height),
            caps.max_macroblocks,
        )

    def __str__(self) -> str:
        if not self.supported:
            return "no"
        sizes = f"{self.min_size[0]}x{self.min_size[1]} to {self.max_size[0]}x{self.max_size[1]}"
        return f"{self.engines} engines, {sizes}, {self.max_macroblocks} macroblocks, to {', '.join(self.surfaces)}"


def query(library: Any, codec: str, bit_depth: int) -> Capability:
    """Ask for one codec in 4:2:0. RuntimeError where the driver refuses the question."""
    caps = DecodeCaps(codec=CODECS[codec], chroma=CHROMA_420, bit_depth_minus_8=bit_depth - 8)
    check(library.cuvidGetDecoderCaps(ctypes.byref(caps)), f"cuvidGetDecoderCaps({codec}, {bit_depth} bits)")
    return Capability.of(caps)


def nvdec(record: Record) -> None:
    """The table of codecs and bit depths; fails where H.264 of 8 bits is not decoded."""
    driver = require_gpu()
    library = load("libnvcuvid.so.1")
    use_primary_context(driver)
    found = {}
    for codec in CODECS:
        for bit_depth in (8, 10):
            found[codec, bit_depth] = query(library, codec, bit_depth)
            record.figure(f"{codec} {bit_depth} bits", str(found[codec, bit_depth]))
    if not found["h264", 8].supported:
        raise RuntimeError("NVDEC does not decode H.264 of 8 bits here")
