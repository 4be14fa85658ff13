"""Pictures as files, encoded by the FFmpeg that PyAV brings; the suffix decides the format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.codec.context import CodecContext
from av.video.reformatter import ColorRange

from ..errors import OutputError, UsageError
from ..manifests.output_files import check_output, new_file
from ..manifests.ragged import Array


@dataclass(frozen=True)
class PictureFormat:
    """An encoder of libavcodec whose packet is a whole file, what it takes, and how large its pictures may be."""

    encoder: str
    pixels: str
    options: Mapping[str, str] = field(default_factory=dict)
    max_side_pixels: int = 32_000


_JPEG = PictureFormat("mjpeg", "yuvj444p", {"qmin": "2", "qmax": "2"})
_TIFF = PictureFormat("tiff", "rgb24")
# All but JPEG give the very pixels back.
FORMATS = {
    ".bmp": PictureFormat("bmp", "bgr24"),
    ".jpeg": _JPEG,
    ".jpg": _JPEG,
    ".png": PictureFormat("png", "rgb24"),
    ".tif": _TIFF,
    ".tiff": _TIFF,
    ".webp": PictureFormat("libwebp", "bgra", {"lossless": "1"}, max_side_pixels=16_383),
}


def check_picture(
    path: Path, size: tuple[int, int], *, overwrite: bool, sources: Iterable[str] = (), what: str = "the pixels"
) -> None:
    """Raise what `write_picture` would for one of this (height, width); nothing is written."""
    check_output(path, suffixes=FORMATS, overwrite=overwrite, sources=sources)
    most = FORMATS[path.suffix.lower()].max_side_pixels
    if max(size) > most:
        raise UsageError(
            f"{what} make {size[1]}x{size[0]} pixels, too large a picture for {path.suffix}, which has {most} at most; "
            "ask for fewer"
        )


def write_picture(picture: Array, path: Path, *, overwrite: bool = False, sources: Iterable[str] = ()) -> None:
    """Write uint8 RGB, (height, width, 3), to a file, a new one unless told to `overwrite`.

    UsageError when `path` must not be written: its suffix is not in `FORMATS`, it exists, it lies within a dataset, it
    is one of `sources`. OutputError when it cannot be written. Then it is as it was before.
    """
    check_picture(path, picture.shape[:2], overwrite=overwrite, sources=sources)
    try:
        data = _encoded(picture, FORMATS[path.suffix.lower()])
    except av.FFmpegError as error:
        raise OutputError(f"libavcodec does not encode {path}: {error}", file=str(path)) from error
    with new_file(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(data)


def _encoded(picture: Array, wanted: PictureFormat) -> bytes:
    encoder: Any = CodecContext.create(wanted.encoder, "w")
    encoder.height, encoder.width = picture.shape[:2]
    encoder.pix_fmt, encoder.time_base, encoder.options = wanted.pixels, Fraction(1), dict(wanted.options)
    full = ColorRange.JPEG if wanted.pixels.startswith("yuvj") else None
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=wanted.pixels, dst_color_range=full)
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
