"""Of which codecs a picture that is cut off is known by its own bytes."""

from __future__ import annotations

from . import gif_blocks, motion_jpeg

_HAS_END = {"mjpeg": motion_jpeg.has_end, "gif": gif_blocks.has_end}


class PictureEnds:
    """Whether the last picture of a stream lacks its end. Some cameras write none, so of JPEGs it does only if others
    have one."""

    def __init__(self, codec: str) -> None:
        self._has_end = _HAS_END[codec]
        self._some_end = codec != "mjpeg"
        self._last = b""

    def see(self, picture: bytes) -> None:
        self._some_end = self._some_end or self._has_end(picture)
        self._last = picture

    @property
    def is_missing(self) -> bool:
        return self._some_end and not self._has_end(self._last)


def picture_ends(codec: str) -> PictureEnds | None:
    """The same for a stream of this codec; None for codecs whose pictures do not tell."""
    return PictureEnds(codec) if codec in _HAS_END else None
