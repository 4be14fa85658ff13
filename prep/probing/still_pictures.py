"""Files with one picture, in formats that may hold a video as well."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from av.container import InputContainer

from .opening import demuxer_of, is_picture_format

# Formats of which a file with one frame is a picture, and the brands of such files in ISO/IEC 14496-12 containers
# (AVIF and HEIF, ISO/IEC 23008-12).
_MOVING_PICTURES = ("gif", "apng")
_BRANDS = ("avif", "avis", "heic", "heix", "mif1")
# The first bytes of a WebP file with extended features, and the bit that says that it is animated (RFC 9649, 2.7).
_WEBP_EXTENDED = b"VP8X"
_WEBP_ANIMATED = 0x02
# Photographs (JPEG, HEIF) of phones may have a video behind the picture, which is an MP4 of its own.
_PHOTO = re.compile(rb"\xff\xd8\xff|....ftyp(hei|mif|msf|avif)", re.DOTALL)
_MP4_START = re.compile(rb"\0\0\0[\x10-\x80]ftyp(?!hei|mif|msf|avif)[\w ]{4}")
_LONGEST_PHOTO_BYTES = 1 << 26
_STILL = (
    "a still picture, not a video; with --image-fps a folder or a list of JPEG, PNG or WebP files is a video, and in a "
    "list that has videos too each of them is a video of one frame"
)
_UNKNOWN_CODEC = "has a video codec that FFmpeg does not know; convert it first"
_CONVERTED = "and give OUT.mkv of `ffmpeg -i FILE -c:v ffv1 OUT.mkv`"
_ANIMATED_JPEG_XL = (
    "is an animated JPEG XL, which PyAV does not decode; convert it with an FFmpeg that was built with libjxl (as "
    f"imageio-ffmpeg's), {_CONVERTED}"
)


def why_still(path: str, container: InputContainer) -> str:
    """Why a file with a single packet is no video: the end of a sentence about it. "" if it may be a short video."""
    demuxer = demuxer_of(container)
    if demuxer == "webp_pipe" and _is_animated_webp(path):
        return (
            "an animated WebP, which FFmpeg 8 does not read as a video; convert it with FFmpeg 9 or newer, "
            f"{_CONVERTED}"
        )
    is_picture = is_picture_format(demuxer) or demuxer in _MOVING_PICTURES
    return _STILL if is_picture or container.metadata.get("major_brand") in _BRANDS else ""


def why_not_decoded(container: InputContainer) -> str:
    """Why a file is not prepared whose codec FFmpeg does not know, by its demuxer: the end of a sentence about it."""
    demuxer = demuxer_of(container)
    if demuxer == "jpegxl_anim":
        return _ANIMATED_JPEG_XL
    return f"is {_STILL}" if is_picture_format(demuxer) else _UNKNOWN_CODEC


def why_motion_photo(path: str) -> str:
    """Why a photograph with a video behind it is no video, and what to do: the end of "it is ...". "" if it is none."""
    found = None
    with suppress(OSError), Path(path).open("rb") as file:
        if _PHOTO.match(file.read(16)):
            file.seek(0)
            found = _MP4_START.search(file.read(_LONGEST_PHOTO_BYTES), 1)
    if found is None:
        return ""
    return (
        "a photo with a video behind it (a motion photo); "
        f"give OUT.mp4 of `tail -c +{found.start() + 1} FILE > OUT.mp4`"
    )


def _is_animated_webp(path: str) -> bool:
    with Path(path).open("rb") as file:
        head = file.read(21)
    return head[12:16] == _WEBP_EXTENDED and len(head) == 21 and bool(head[20] & _WEBP_ANIMATED)
