"""Writes pictures to files with the FFmpeg of PyAV; the suffix decides the format."""

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
from ..manifests.operations.output_files import check_output, new_file
from ..manifests.ragged import Array


@dataclass(frozen=True)
class PictureFormat:
    """An encoder of libavcodec whose packet is a whole file: its pixel format, options and largest side."""

    encoder: str
    pixels: str
    options: Mapping[str, str] = field(default_factory=dict)
    max_side_pixels: int = 32_000


_JPEG = PictureFormat("mjpeg", "yuvj444p", {"qmin": "2", "qmax": "2"})
_TIFF = PictureFormat("tiff", "rgb24")
# All but JPEG are lossless.
FORMATS = {
    ".bmp": PictureFormat("bmp", "bgr24"),
    ".jpeg": _JPEG,
    ".jpg": _JPEG,
    ".png": PictureFormat("png", "rgb24"),
    ".tif": _TIFF,
    ".tiff": _TIFF,
    ".webp": PictureFormat("libwebp", "bgra", {"lossless": "1"}, max_side_pixels=16_383),
}


def check_picture_file(
    path: Path, size: tuple[int, int], *, overwrite: bool, sources: Iterable[str] = (), what: str = "the pixels"
) -> None:
    """Raise the errors that `write_picture` would raise for a picture of this (height, width). Writes nothing."""
    check_output(path, suffixes=FORMATS, overwrite=overwrite, sources=sources)
    most = FORMATS[path.suffix.lower()].max_side_pixels
    if max(size) > most:
        raise UsageError(
            f"{what} make a picture of {size[1]}x{size[0]} pixels; {path.suffix} takes at most {most} on a side: "
            "ask for fewer"
        )


def write_picture(picture: Array, path: Path, *, overwrite: bool = False, sources: Iterable[str] = ()) -> None:
    """Write a picture, uint8 RGB, (height, width, 3), to a file. It may exist only with `overwrite`.

    UsageError when `path` must not be written: its suffix is not in `FORMATS`, it exists, it lies within a dataset, or
    it is one of `sources`. OutputError when it cannot be written. After an error the file is as it was before.
    """
    check_picture_file(path, picture.shape[:2], overwrite=overwrite, sources=sources)
    try:
        data = encoded(picture, FORMATS[path.suffix.lower()])
    except av.FFmpegError as error:
        raise OutputError(f"libavcodec does not encode {path}: {error}", file=str(path)) from error
    with new_file(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(data)


def encoded(picture: Array, wanted: PictureFormat) -> bytes:
    """A picture, uint8 RGB, (height, width, 3), as the bytes of a file. Errors are FFmpeg's own."""
    encoder: Any = CodecContext.create(wanted.encoder, "w")
    encoder.height, encoder.width = picture.shape[:2]
    encoder.pix_fmt, encoder.time_base, encoder.options = wanted.pixels, Fraction(1), dict(wanted.options)
    full = ColorRange.JPEG if wanted.pixels.startswith("yuvj") else None
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=wanted.pixels, dst_color_range=full)
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
