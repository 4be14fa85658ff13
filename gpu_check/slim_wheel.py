"""Takes out of a wheel what a machine that it is carried to does not need."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

# TorchCodec has libraries for six releases of FFmpeg, and PyAV's wheel brings FFmpeg 8. Reading HEIC wants another
# library that nobody carries.
UNUSED_OF_TORCHCODEC = re.compile(r"torchcodec/(libtorchcodec_\w*[45679]\.so|.*heic.*\.so)|torchcodec\.libs/.*heic.*")


def without(wheel: Path, unused: re.Pattern[str]) -> int:
    """Write the wheel again without the members whose whole names match, and return how many there were.

    Its RECORD still lists them: it is to be unpacked, and no longer to be installed.
    """
    slim = wheel.with_suffix(".slim")
    left_out = 0
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(slim, "w") as written:
        for member in archive.infolist():
            if unused.fullmatch(member.filename):
                left_out += 1
            else:
                written.writestr(member, archive.read(member), zipfile.ZIP_DEFLATED, 9)
    slim.replace(wheel)
    return left_out
