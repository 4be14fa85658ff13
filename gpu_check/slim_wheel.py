"""Makes a wheel smaller for a machine that it is carried to."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

# Members that are not needed. TorchCodec has libraries for six releases of FFmpeg, and PyAV's wheel brings FFmpeg 8.
# Reading HEIC wants another library that nobody carries. PyNvVideoCodec's has FFmpeg's source, samples, and each
# library of FFmpeg under three names, of which the loader asks for one.
UNUSED = re.compile(
    r"torchcodec/(libtorchcodec_\w*[45679]\.so|.*heic.*\.so)|torchcodec\.libs/.*heic.*"
    r"|(samples|benchmarks)/.*|PyNvVideoCodec/lib\w+\.so(\.\d+\.\d+\.\d+)?|pynvvideocodec-[\d.]+\.data/.*"
)


def pack_again(wheel: Path) -> int:
    """Write the wheel again, packed by LZMA, without the members that are not needed; return how many these were.

    LZMA takes a quarter less than what pip reads. And the RECORD still lists all members: the wheel is to be unpacked,
    and no longer to be installed.
    """
    slim = wheel.with_suffix(".slim")
    left_out = 0
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(slim, "w") as written:
        for member in archive.infolist():
            if UNUSED.fullmatch(member.filename):
                left_out += 1
            else:
                written.writestr(member, archive.read(member), zipfile.ZIP_LZMA)
    slim.replace(wheel)
    return left_out
