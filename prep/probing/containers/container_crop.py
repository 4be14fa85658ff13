"""The part of a source's pictures that its container shows. MP4, QuickTime and Matroska can state one."""

from __future__ import annotations

from dataclasses import dataclass

from .clean_aperture import clean_aperture
from .pixel_crop import pixel_crop


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
    width, height = coded
    if "mp4" in format_name and (aperture := clean_aperture(path, track_id)):
        shown = (min(width, aperture.width), min(height, aperture.height))
        left, top = (
            min(max(0, (whole - part) // 2 + int(off // 1)), whole - part)
            for whole, part, off in zip(coded, shown, (aperture.right, aperture.down), strict=True)
        )
    elif "matroska" in format_name and (crop := pixel_crop(path, stream_index)):
        shown = (width - crop.left - crop.right, height - crop.top - crop.bottom)
        left, top = crop.left, crop.top
    else:
        return None
    # Players ignore a crop that leaves no pixel, too.
    return ContainerCrop(width, height, left, top, *shown) if min(shown) > 0 and shown != coded else None
