"""What a stream's samples are, read from its avcC, hvcC or av1C box: bits and chroma, which NVDEC may not decode."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import CorruptDataError
from ...manifests.records import CodecConfig

# ISO/IEC 14496-15, 5.3.3.1.2: Baseline, Main and Extended have 8 bits in 4:2:0, and their avcC box says nothing of it.
_AVC_PLAIN_PROFILES = frozenset({66, 77, 88})
_AVC_444_PROFILE = 244
_CHROMA = ("4:0:0", "4:2:0", "4:2:2", "4:4:4")


@dataclass(frozen=True)
class StreamFormat:
    """The bits of a sample, and the chroma format, such as "4:2:0"."""

    bit_depth: int
    chroma: str


def stream_format(config: CodecConfig) -> StreamFormat:
    """The format of the samples of a codec configuration. CorruptDataError for a box that ends early."""
    try:
        return _READERS[config.codec](config.extradata)
    except IndexError:
        raise CorruptDataError(
            f"the codec configuration of {config.codec} ends early; the manifest is damaged"
        ) from None


def _of_hvcc(box: bytes) -> StreamFormat:
    """ISO/IEC 14496-15, 8.3.3.1.2: `chromaFormat` in byte 16, `bitDepthLumaMinus8` in byte 17."""
    return StreamFormat((box[17] & 7) + 8, _CHROMA[box[16] & 3])


def _of_avcc(box: bytes) -> StreamFormat:
    profile, at = box[1], 6
    if profile in _AVC_PLAIN_PROFILES:
        return StreamFormat(8, "4:2:0")
    for _ in range(box[5] & 31):
        at += 2 + int.from_bytes(box[at : at + 2], "big")
    num_pps, at = box[at], at + 1
    for _ in range(num_pps):
        at += 2 + int.from_bytes(box[at : at + 2], "big")
    # Some writers leave the bytes after the parameter sets out.
    if at >= len(box):
        return StreamFormat(8, "4:4:4" if profile == _AVC_444_PROFILE else "4:2:0")
    return StreamFormat((box[at + 1] & 7) + 8, _CHROMA[box[at] & 3])


def _of_av1c(box: bytes) -> StreamFormat:
    """AV1 Codec ISO Media File Format Binding, 2.3.3: `high_bitdepth`, `twelve_bit`, `monochrome` and both
    `chroma_subsampling` in byte 2."""
    high, twelve, monochrome, sub_x, sub_y = (bool(box[2] >> bit & 1) for bit in (6, 5, 4, 3, 2))
    chroma = "4:0:0" if monochrome else "4:2:0" if sub_x and sub_y else "4:2:2" if sub_x else "4:4:4"
    return StreamFormat((12 if twelve else 10) if high else 8, chroma)


_READERS = {"h264": _of_avcc, "hevc": _of_hvcc, "av1": _of_av1c}
