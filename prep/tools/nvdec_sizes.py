"""Which sizes of video NVDEC decodes, so that prep says early what no GPU will read.

A reader asks the driver of its GPU. This table is for machines without one.
"""

from __future__ import annotations

from ...manifests.records import least_coded_size

# Least and greatest (width, height) of coded pictures. The greatest are those of NVIDIA's NVDEC application note for
# Turing and later. The least are what cuvidGetDecoderCaps is reported to answer; they have not been measured.
_LEAST = {"h264": (48, 16), "hevc": (144, 144), "av1": (128, 128)}
_GREATEST = {"h264": (4096, 4096), "hevc": (8192, 8192), "av1": (8192, 8192)}


def why_not_nvdec(codec: str, width: int, height: int) -> str | None:
    """Why NVDEC does not decode videos of this codec and size in pixels; None when it does."""
    least, greatest, coded = _LEAST[codec], _GREATEST[codec], least_coded_size(codec, width, height)
    if coded[0] < least[0] or coded[1] < least[1]:
        return f"{codec} of {width}x{height} is below {least[0]}x{least[1]}"
    if width > greatest[0] or height > greatest[1]:
        return f"{codec} of {width}x{height} is above {greatest[0]}x{greatest[1]}"
    return None
