"""What a source's pictures are like, as the first frames that decode say: format, fields, alpha, which way is up."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import cast

import numpy as np
from av.container import InputContainer
from av.sidedata.sidedata import SideData
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

FRAMES_LOOKED_AT = 8
"""How many frames are decoded to find out whether a source is interlaced: a round of telecine is five."""

# AVFieldOrder of libavcodec: which field is shown first.
_TOP_FIRST, _BOTTOM_FIRST = (2, 5), (3, 4)
# Their streams say of each frame whether it is interlaced. What a container says of others is all that is known.
_FRAMES_TELL = {
    "mpeg1video", "mpeg2video", "mpeg4", "h264", "hevc", "vvc", "vc1", "wmv3", "dvvideo", "prores", "prores_raw",
    "dnxhd", "cfhd", "cavs", "av1", "vp8", "vp9", "theora",
}  # fmt: skip
MIXED_FIELDS = {"mpeg2video", "h264", "vc1", "cavs"}
"""Codecs of broadcasts and discs, in which film and video follow each other."""

_UNSPECIFIED = 2
_LINEAR = 8
_DOLBY_VISION_TAGS = ("dvh1", "dvhe", "dva1", "dvav")
# FFmpeg's own decoders leave out the alpha that WebM keeps beside the picture.
_ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
_OTHER_STREAMS = {"audio": "audio", "subtitle": "subtitles", "data": "data", "video": "other video"}
_SUBSAMPLING = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (4, 1): "4:1:1", (1, 2): "4:4:0", (4, 4): "4:1:0"}


class Fields(Enum):
    """Whether frames are two fields in one: NO, FLAGGED by the decoder frame by frame, or all of them, because the
    container says so, with the top or the bottom field first."""

    NO = "no"
    FLAGGED = "flagged"
    TOP_FIRST = "tff"
    BOTTOM_FIRST = "bff"


@dataclass(frozen=True)
class SourcePicture:
    """A source's pictures, beyond their size and colour tags.

    `bits` are those of the deepest component, `chroma` is "4:2:0" and the like, "RGB" or "gray". `mirrored` pictures
    are flipped as well as rotated when they are shown. `linear` ones hold light rather than a signal. `left_behind`
    are the kinds of streams that are not prepared ("audio"), `tags` what the frames are called besides ("stereo 3D").
    `alpha_layer`: alpha is a layer of its own in the stream. `aspect_changes`: the shape of its pixels changes in
    mid-stream. `decoder` is the one that ffmpeg has to be told to use, if any.
    """

    pix_fmt: str = "yuv420p"
    bits: int = 8
    floating: bool = False
    chroma: str = "4:2:0"
    alpha: bool = False
    alpha_layer: bool = False
    palette: bool = False
    full_range: bool = False
    linear: bool = False
    fields: Fields = Fields.NO
    mirrored: bool = False
    aspect_changes: bool = False
    undecodable_colours: bool = False
    left_behind: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    decoder: str | None = None

    @property
    def rgb(self) -> bool:
        return self.chroma == "RGB"


PLAIN_PICTURE = SourcePicture()


def picture_of(
    frames: Sequence[VideoFrame], stream: VideoStream, container: InputContainer, *, has_alpha_layer: bool = False
) -> SourcePicture:
    """Read it off the first frames of a stream, one at least. PyAV does not decode layers of alpha."""
    first, codec = frames[0], stream.codec_context
    pixels = first.format
    kinds = {name for name, _ in _side_data(first)}
    unspecified_transfer = int(first.color_trc) == _UNSPECIFIED
    # The fourth byte of a pixel in a BITMAPINFO of 32 bits is not used, and usually 0.
    unused_alpha = codec.name == "rawvideo" and container.format.name == "avi"
    decoder = _ALPHA_DECODERS.get(codec.name) if stream.metadata.get("alpha_mode") == "1" else None
    return SourcePicture(
        pix_fmt=pixels.name,
        bits=max((component.bits for component in pixels.components), default=8),
        floating=_is_float(pixels.name),
        chroma=_chroma(pixels),
        alpha=has_alpha_layer or decoder is not None or (not unused_alpha and _has_alpha(first)),
        alpha_layer=has_alpha_layer,
        palette=pixels.has_palette,
        full_range=int(first.color_range) == 2 or pixels.name.startswith("yuvj"),
        linear=int(first.color_trc) == _LINEAR or (codec.name == "exr" and unspecified_transfer),
        fields=_fields([frame.interlaced_frame for frame in frames], codec.name, codec.field_order),
        mirrored=_is_mirrored(first),
        # Base layers that other players read carry the tags of PQ, HLG or BT.709; profile 5 has none.
        undecodable_colours=unspecified_transfer
        and (codec.codec_tag.lower() in _DOLBY_VISION_TAGS or bool(kinds & {"DOVI_RPU_BUFFER", "DOVI_METADATA"})),
        left_behind=_left_behind(stream, container),
        tags=tuple(
            text for kind, text in (("STEREO3D", "stereo 3D"), ("SPHERICAL", "360 projection")) if kind in kinds
        ),
        decoder=decoder,
    )


def _is_float(pix_fmt: str) -> bool:
    return any(part in pix_fmt for part in ("f16", "f32"))


def _chroma(pixels: VideoFormat) -> str:
    name = pixels.name
    if pixels.is_rgb or pixels.has_palette or pixels.is_bayer or name.startswith("xyz"):
        return "RGB"
    if name.startswith(("gray", "ya", "mono")):
        return "gray"
    of_64 = VideoFormat(name, 64, 64)
    return _SUBSAMPLING.get((64 // of_64.chroma_width(), 64 // of_64.chroma_height()), "4:4:4")


def _has_alpha(frame: VideoFrame) -> bool:
    if frame.format.has_palette:
        # The palette has room for alpha; whether it has any only its colours tell.
        return bool((frame.to_ndarray(format="bgra")[..., 3] < np.iinfo(np.uint8).max).any())
    return any(component.is_alpha for component in frame.format.components)


def _fields(flagged: Sequence[bool], codec: str, field_order: int) -> Fields:
    """HEVC has no frames of two fields: each field is a picture of its own, and is left as it is."""
    if codec == "hevc":
        return Fields.NO
    if any(flagged):
        return Fields.FLAGGED
    if field_order in _TOP_FIRST + _BOTTOM_FIRST:
        if codec in _FRAMES_TELL:
            return Fields.FLAGGED
        return Fields.TOP_FIRST if field_order in _TOP_FIRST else Fields.BOTTOM_FIRST
    return Fields.NO


def _is_mirrored(frame: VideoFrame) -> bool:
    """A display matrix (ISO/IEC 14496-12, 6.2.2) with a negative determinant turns a picture over."""
    for name, data in _side_data(frame):
        if name == "DISPLAYMATRIX":
            a, b, _, c, d, *_ = struct.unpack("=9i", data)
            return bool(a * d - b * c < 0)
    return False


def _side_data(frame: VideoFrame) -> Iterator[tuple[str, bytes]]:
    # PyAV raises ValueError for all of it where it does not know a kind that its FFmpeg has only lately, such as Exif.
    with contextlib.suppress(ValueError):
        for side_data in cast("Iterable[SideData]", frame.side_data):
            yield side_data.type.name, bytes(side_data)


def _left_behind(stream: VideoStream, container: InputContainer) -> tuple[str, ...]:
    kinds = [other.type for other in container.streams if other.index != stream.index and not _is_cover_picture(other)]
    return tuple(name for kind, name in _OTHER_STREAMS.items() if kind in kinds)


def _is_cover_picture(stream: object) -> bool:
    disposition = getattr(stream, "disposition", None)
    return disposition is not None and "attached_pic" in str(disposition)
