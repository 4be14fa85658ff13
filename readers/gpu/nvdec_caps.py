"""What NVDEC decodes: the driver's answer, and why it cannot decode a stream.

`nvdec_caps` asks the driver. The rest is pure, and is tested with answers that were written down.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ToolError
from ...manifests.records import CodecConfig, least_coded_size
from .cuda_driver import check, load, other_driver
from .nvcuvid_structs import CHROMA_420
from .stream_format import StreamFormat, stream_format

LIBRARY = "libnvcuvid.so.1"
# Numbers and layout from include/ffnvcodec/dynlink_cuviddec.h of nv-codec-headers n13.0.19.0 (Video Codec SDK 13.0):
# cudaVideoCodec, cudaVideoSurfaceFormat, CUVIDDECODECAPS.
CODEC_NUMBERS = {"h264": 4, "hevc": 8, "vp9": 10, "av1": 11}
_SURFACES = ("nv12", "p016", "yuv444", "yuv444_16bit")
# Of the codecs and depths that segments have.
_ASKED = (("h264", 8), ("h264", 10), ("hevc", 8), ("hevc", 10), ("av1", 8), ("av1", 10))


class DecodeCapsStruct(ctypes.Structure):
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
class CodecCaps:
    """Whether NVDEC decodes a codec of one bit depth in 4:2:0: on how many engines, to which surfaces, and the least
    and greatest (width, height) of coded pictures. `refused` is the error of a driver that does not say."""

    supported: bool
    engines: int = 0
    surfaces: tuple[str, ...] = ()
    min_size: tuple[int, int] = (0, 0)
    max_size: tuple[int, int] = (0, 0)
    max_macroblocks: int = 0
    refused: str = ""

    @staticmethod
    def of(answer: DecodeCapsStruct) -> CodecCaps:
        if not answer.is_supported:
            return CodecCaps(False)
        return CodecCaps(
            True,
            answer.num_engines,
            tuple(name for bit, name in enumerate(_SURFACES) if answer.output_format_mask >> bit & 1),
            (answer.min_width, answer.min_height),
            (answer.max_width, answer.max_height),
            answer.max_macroblocks,
        )

    def __str__(self) -> str:
        if not self.supported:
            return self.refused or "no"
        sizes = f"{self.min_size[0]}x{self.min_size[1]} to {self.max_size[0]}x{self.max_size[1]}"
        return f"{self.engines} engines, {sizes}, {self.max_macroblocks} macroblocks, to {', '.join(self.surfaces)}"


@dataclass(frozen=True)
class NvdecCaps:
    """What NVDEC of one GPU decodes, by codec and bit depth; `missing` says why there is no NVDEC at all."""

    codecs: Mapping[tuple[str, int], CodecCaps]
    missing: str | None = None

    @property
    def engines(self) -> int:
        """NVDEC engines of the GPU; 0 without NVDEC."""
        return max((caps.engines for caps in self.codecs.values()), default=0)


def ask_codec(library: Any, codec: str, bit_depth: int) -> CodecCaps:
    """Ask libnvcuvid for one codec in 4:2:0, in the current CUDA context. An error is an answer about this codec alone:
    one that a chip lacks may be refused instead of denied."""
    answer = DecodeCapsStruct(codec=CODEC_NUMBERS[codec], chroma=CHROMA_420, bit_depth_minus_8=bit_depth - 8)
    try:
        check(library.cuvidGetDecoderCaps(ctypes.byref(answer)), f"cuvidGetDecoderCaps({codec}, {bit_depth} bits)")
    except ToolError as error:
        return CodecCaps(False, refused=error.message)
    return CodecCaps.of(answer)


def nvdec_caps() -> NvdecCaps:
    """What NVDEC of the current CUDA context's GPU decodes."""
    try:
        caps = ask_all(load(LIBRARY))
    except ToolError as error:
        return NvdecCaps({}, missing=error.message)
    if caps.missing is not None and (other := other_driver(LIBRARY)):
        return NvdecCaps({}, missing=f"{caps.missing}; {other}")
    return caps


def ask_all(library: Any) -> NvdecCaps:
    """Ask libnvcuvid for all that segments have. Where it refuses every question, NVDEC cannot be used."""
    codecs = {asked: ask_codec(library, *asked) for asked in _ASKED}
    refused = [caps.refused for caps in codecs.values() if caps.refused]
    return NvdecCaps({}, missing=refused[0]) if len(refused) == len(codecs) else NvdecCaps(codecs)


def why_not(config: CodecConfig, caps: NvdecCaps) -> str | None:
    """Why NVDEC cannot decode streams of this configuration; None when it can."""
    if caps.missing is not None:
        return caps.missing
    form = stream_format(config)
    name = f"{config.codec} of {form.bit_depth} bits"
    if form.chroma != "4:2:0":
        return f"NVDEC is used for 4:2:0 only, and this is {config.codec} in {form.chroma}"
    codec = caps.codecs.get((config.codec, form.bit_depth), CodecCaps(False))
    if not codec.supported or _surface(form) not in codec.surfaces:
        return f"NVDEC of this GPU does not decode {name}{f' ({codec.refused})' if codec.refused else ''}"
    return _why_not_size(config, codec, name)


def _surface(form: StreamFormat) -> str:
    return "nv12" if form.bit_depth == 8 else "p016"


def _why_not_size(config: CodecConfig, codec: CodecCaps, name: str) -> str | None:
    # The driver's limits are about coded pictures, and these macroblocks are 256 pixels of any codec: cuviddec.h.
    size, coded = (config.width, config.height), least_coded_size(config.codec, config.width, config.height)
    macroblocks = coded[0] * coded[1] // 256
    if any(side < least for side, least in zip(coded, codec.min_size, strict=True)):
        return f"{size[0]}x{size[1]} is below the {codec.min_size[0]}x{codec.min_size[1]} that NVDEC takes of {name}"
    if any(side > most for side, most in zip(coded, codec.max_size, strict=True)):
        return f"{size[0]}x{size[1]} is above the {codec.max_size[0]}x{codec.max_size[1]} that NVDEC takes of {name}"
    if macroblocks > codec.max_macroblocks:
        return (
            f"{size[0]}x{size[1]} has {macroblocks} macroblocks, and NVDEC takes up to {codec.max_macroblocks} of "
            f"{name}"
        )
    return None
