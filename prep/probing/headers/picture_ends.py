"""Of which codecs a picture that is cut off is known by its own bytes."""

from __future__ import annotations

from .gif_blocks import GifEnds
from .motion_jpeg import PictureEnds


def picture_ends(codec: str) -> PictureEnds | GifEnds | None:
    """What says whether the last picture of a stream lacks its end; None for other codecs."""
    match codec:
        case "mjpeg":
            return PictureEnds()
        case "gif":
            return GifEnds()
        case _:
            return None
