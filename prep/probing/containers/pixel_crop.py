"""The PixelCrop elements of a Matroska track: how many pixels at each side of its pictures are not shown."""

from __future__ import annotations

from typing import NamedTuple

from .matroska_elements import elements, number_in, track_of

# RFC 9559 (Matroska), 5.1.4.1.28.
_VIDEO = 0xE0
_CROP_BOTTOM, _CROP_TOP, _CROP_LEFT, _CROP_RIGHT = 0x54AA, 0x54BB, 0x54CC, 0x54DD


class PixelCrop(NamedTuple):
    """How many pixels are cut off at each side of a picture."""

    left: int
    right: int
    top: int
    bottom: int


def pixel_crop(path: str, stream_index: int) -> PixelCrop | None:
    """The crop of the track of this stream, or None where it has none."""
    try:
        track = track_of(path, stream_index)
    except OSError:
        # `probe` reports files that cannot be read.
        return None
    video = list(elements(next((body for kind, body in track if kind == _VIDEO), b"")))
    crop = PixelCrop(*(number_in(video, kind) for kind in (_CROP_LEFT, _CROP_RIGHT, _CROP_TOP, _CROP_BOTTOM)))
    return crop if any(crop) else None
