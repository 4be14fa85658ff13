"""The properties of a source's pictures. Plans need them where there is no PyAV, which `picture` finds them with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fields(Enum):
    """Whether frames consist of two fields: NO; FLAGGED by the decoder for each frame; or all of them, as the container
    states, with the top or the bottom field first."""

    NO = "no"
    FLAGGED = "flagged"
    TOP_FIRST = "tff"
    BOTTOM_FIRST = "bff"


@dataclass(frozen=True)
class SourcePicture:
    """The properties of a source's pictures, except their size and colour tags.

    `bits`: of the deepest component. `chroma`: "4:2:0" and the like, "RGB" or "gray". `mirrored`: pictures are flipped,
    besides being rotated, when they are shown. `linear`: values are linear light. `left_behind`: kinds of streams that
    are not prepared ("audio"). `tags`: other properties that the frames declare ("stereo 3D"). `alpha_layer`: alpha is
    a layer of its own in the stream. `false_matrix`: pictures of luma and chroma are tagged as RGB, so that libswscale
    would refuse to convert them. `aspect_changes`: the sample aspect ratio changes within the stream.
    `dolby_vision_profile`: the one by which alone its colours are defined, 0 for other videos. `stated_twice`: messages
    in H.264 or HEVC state what the container states too, such as the orientation, and nothing else that is needed; the
    container counts. `film_grain`: headers describe grain, which is no part of the coded pictures, and decoders add it.
    `decoder`: the one that ffmpeg has to be given by name, if any.
    """

    pix_fmt: str = "yuv420p"
    bits: int = 8
    floating: bool = False
    chroma: str = "4:2:0"
    alpha: bool = False
    alpha_layer: bool = False
    full_range: bool = False
    linear: bool = False
    fields: Fields = Fields.NO
    mirrored: bool = False
    false_matrix: bool = False
    aspect_changes: bool = False
    dolby_vision_profile: int = 0
    stated_twice: bool = False
    film_grain: bool = False
    left_behind: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    decoder: str | None = None

    @property
    def rgb(self) -> bool:
        return self.chroma == "RGB"


PLAIN_PICTURE = SourcePicture()
