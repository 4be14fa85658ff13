"""Tries whether decoders run on this machine, for `doctor`."""

from __future__ import annotations

import base64
import platform
import zlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import av
import torch

from ..errors import ShortGopError
from ..manifests.mp4 import parse_init
from ..manifests.records import Pattern
from .decoders.base import Decoder, GopRequest, Target
from .decoders.pyav import PyavDecoder
from .frame_format import FrameFormat
from .plan import Place

# One brown frame of 64x64, as an init and a GOP: `ffmpeg -f lavfi -i color=0x804020:s=64x64 -frames:v 1 -c:v libx264
# -preset ultrafast -pix_fmt yuv420p -bsf:v filter_units=remove_types=6 -fflags +bitexact -movflags
# +frag_keyframe+delay_moov+default_base_moof+skip_trailer -f mp4 sample.mp4`, packed with zlib.
_SAMPLE = zlib.decompress(
    base64.b64decode(
        "eNqVUr9Lw0AUfkkVihSMUKRDwaodBBGx2FIEoehSwcFFJx3SXmJic03IXUN17iCujo7+Ix0c7OIqOOkguEn/gvru0uq1/gBf7u577+7L"
        "e+/eOwDI2vw8cJlfBNBBIM4SDTY30H6lvh8BgEcjh8CYJN4kaHJ8iTbOmrQr8KfoOFI8NBuoH/OGjJn4w/v/4lY+E8hbhDPErOUx/u0P"
        "qWkdSlwTlRwlk3cvyPXwTsKaQ7xwdBK5xFKZR2j7VbNJPEtwtHXqNm1U0hGVTtU08yQ+y5LQspVUUq3Qyw31d8ZrHuIt44wonGszqm/8"
        "WqQKflXE6oiR2kd+znNr7UJp86dyZgYDcTVk7Wo73ZnBC8yfIj4ZN5ohWiKWRK6/dKbBlPMwe49kIzBZMAwvpsG4rPFI0GZ1xU6jfTER"
        "Fjl1X7FXaGS1RQ94KBEU/6pstwgXvSpSS6KQRbUv2MvQDAJP/Snpxs138JGLehvUdtSaHuBDlP3gYl+Hcryvi/NlLU4hzW3CJ7LJ8LDV"
        "RJwe+gn0eH+VElPEW7AuO1tzV6DP97tQscuQTO/1eo8nrXg8fwDnsHfL"
    )
)
# The same in AV1: `-c:v libsvtav1 -preset 12`, and without -bsf.
_SAMPLE_AV1 = zlib.decompress(
    base64.b64decode(
        "eNqVUs1KAzEQnk0piBbpYYUKPaxYQRDBFhUvQsFLEQ9e9OQlbXbpYtJdNmlQL9Kjj+AbeBCfwrfwLHjyrCKsk2yrsaLgbJJv/jIzOxMACCJ1"
        "nsYy2QIgYBD3NtUbTZFuNlH3IJJEAwAXus/gG5WeLHh2fZH33WtabsOfRHARldFT5E/Uqc1Z+iP6//K2PwtohExJxHrIpfpxw3LehWAxRSYQ"
        "bPrfW/Y8urew3mc8m1h0zELX8xjlpEMHjIfGx1sR8SBCxtfCBnXLbLDCVmdZGDmlVIYZD8b8o1RdjngtlWSOz5UZ2q9NauPXQexMPOYPqO4F"
        "PO5Krahu/mxnLc/xXETb3ggqMDuHkykvXL6TF9vB2SgOuc1TTalMx0nNrkplOzshlGXPkX2UL6aSoU8vceRVocMz03mVWQQnvku7Q6bMhLZE"
        "aNHQkjsNnGBG05S7l2biYuR9fNqmy1UR9d1OHuLzs1NQRk9gp9ATY1/2ihJ8FTE1VU1NZcMBYnkcJyWFfk0wqj77t/8K7ZZfhVtS9oMRPu4V"
        "8naXP9/kvQ/LN3K9"
    )
)
_SAMPLE_RGB = (128, 64, 32)
# In levels of 256: chroma subsampling and a coarse quantiser change the colour a little.
_TOLERANCE = 4


@dataclass(frozen=True)
class DecoderTrial:
    """Whether a decoder decoded a frame on this machine, and why not."""

    name: str
    works: bool
    detail: str


def try_decoders() -> tuple[DecoderTrial, ...]:
    """Decode a frame of H.264, and one of AV1, whose decoder is a library of its own."""
    return tuple(
        _try(PyavDecoder(), f"pyav (decoder{what})", sample)
        for what, sample in (("", _SAMPLE), (" of AV1", _SAMPLE_AV1))
    )


def _try(decoder: Decoder, what: str, sample: bytes) -> DecoderTrial:
    cut = sample.index(b"moof") - 4
    init = parse_init(sample[:cut])
    # torch's default device may be another one.
    out = torch.zeros((1, 1, init.height, init.width, 3), dtype=torch.uint8, device="cpu")
    geometry = FrameFormat().geometry(init.height, init.width)
    request = GopRequest(init.config, Pattern((0,), (True,)), sample[cut:], (0,), ((Place(0, 0, 0),),), [geometry])
    try:
        decoder.decode(request, [Target(FrameFormat().pixels, out.permute(0, 1, 4, 2, 3))])
    except ShortGopError as error:
        return DecoderTrial(what, False, error.message)
    if (out.int() - torch.tensor(_SAMPLE_RGB, device="cpu")).abs().max() > _TOLERANCE:
        return DecoderTrial(what, False, "it decoded a test frame to other colours")
    return DecoderTrial(what, True, "it decoded a test frame")


def versions() -> dict[str, str]:
    """Versions of Python and of the installed libraries that shortgop depends on."""
    found = {"python": platform.python_version()}
    for library in ("shortgop", "torch", "av", "numpy", "zarr", "numcodecs", "ray", "imageio-ffmpeg"):
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    found["libavcodec"] = ".".join(map(str, av.library_versions["libavcodec"]))
    return found
