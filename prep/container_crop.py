"""The part of a source's pictures that its container shows, as MP4, QuickTime and Matroska can say."""

from __future__ import annotations

from dataclasses import dataclass

from .clean_aperture import clean_aperture
from .pixel_crop import pixel_crop


@dataclass(frozen=True)
class ContainerCrop:
    """What is shown of a decoded picture of `coded_width` by `coded_height`: `width` by `height` pixels from the
    column `left` and the row `top` on."""

    coded_width: int
    coded_height: int
    left: int
    top: int
    width: int
    height: int


def container_crop(
    path: str, format_name: str, stream_index: int, track_id: int, coded: tuple[int, int]
) -> ContainerCrop | None:
    """What the container cuts off of pictures of the size `coded` (width, height), None where that is nothing.

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
    # More cut off than there is makes no sense, and players do not follow it either.
    return ContainerCrop(width, height, left, top, *shown) if min(shown) > 0 and shown != coded else None
