"""The part of a source's pictures that its container shows. MP4, QuickTime and Matroska can state one."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

from .matroska_elements import elements, number_in, track_of
from .sample_entry import sample_entry_boxes

# ISO/IEC 14496-12, 12.1.4.
_CLAP = struct.Struct(">IIIIiIiI")
# RFC 9559 (Matroska), 5.1.4.1.28: the video of a track, and how many pixels are not shown at the left, the right, the
# top and the bottom.
_VIDEO, _CROP_AT = 0xE0, (0x54CC, 0x54DD, 0x54BB, 0x54AA)
_Sides = tuple[int, int, int, int]


@dataclass(frozen=True)
class ContainerCrop:
    """A decoded picture has `coded_width` by `coded_height` pixels. Of these, `width` by `height` are shown; the top
    left one is at (`left`, `top`)."""

    coded_width: int
    coded_height: int
    left: int
    top: int
    width: int
    height: int


def container_crop(
    path: str, format_name: str, stream_index: int, track_id: int, coded: tuple[int, int]
) -> ContainerCrop | None:
    """How the container crops pictures of the size `coded` (width, height); None where it does not.

    `format_name` is FFmpeg's name for the container, `track_id` its id for the stream.
    """
    if "mp4" in format_name:
        found = _clean_aperture(path, track_id, coded)
    elif "matroska" in format_name:
        found = _pixel_crop(path, stream_index, coded)
    else:
        return None
    # Players ignore a crop that leaves no pixel, too.
    return ContainerCrop(*coded, *found) if min(found[2:]) > 0 and found[2:] != coded else None


def _clean_aperture(path: str, track_id: int, coded: tuple[int, int]) -> _Sides:
    """Where the clean aperture in the first sample entry of an MP4's track begins, and its width and height; all of the
    picture where there is none."""
    uncut = (0, 0, *coded)
    clap = sample_entry_boxes(path, track_id).get(b"clap", b"")
    if len(clap) < _CLAP.size:
        return uncut
    width, width_unit, height, height_unit, right, right_unit, down, down_unit = _CLAP.unpack_from(clap)
    if not (width_unit and height_unit and right_unit and down_unit):
        return uncut
    # How far its centre is from that of the picture.
    off = (Fraction(right, right_unit) // 1, Fraction(down, down_unit) // 1)
    sides = [min(whole, part) for whole, part in zip(coded, (width // width_unit, height // height_unit), strict=True)]
    left, top = (
        min(max(0, (whole - part) // 2 + by), whole - part) for whole, part, by in zip(coded, sides, off, strict=True)
    )
    return left, top, sides[0], sides[1]


def _pixel_crop(path: str, stream_index: int, coded: tuple[int, int]) -> _Sides:
    """The same by the PixelCrop elements of a Matroska track."""
    try:
        track = track_of(path, stream_index)
    except OSError:
        # `probe` reports files that cannot be read.
        track = []
    video = list(elements(next((body for kind, body in track if kind == _VIDEO), b"")))
    left, right, top, bottom = (number_in(video, kind) for kind in _CROP_AT)
    return left, top, coded[0] - left - right, coded[1] - top - bottom
