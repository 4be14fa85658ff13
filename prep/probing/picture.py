"""The properties of a source's pictures, from the first frames that decode: format, fields, alpha, orientation."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import cast

import numpy as np
from av.container import InputContainer
from av.filter import Graph
from av.sidedata.sidedata import SideData, Type
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from .codec_names import codec_of
from .headers.access_units import HeaderReader, may_order_fields
from .picture_properties import Fields, SourcePicture

FRAMES_LOOKED_AT = 8
"""How many frames are decoded to find out whether a source is interlaced: a cycle of telecine has five."""

# Values of libavcodec's AVFieldOrder: TT, TB, and BB, BT. Its comment says that the bottom field of TB is shown first.
# But ffmpeg writes TB into Matroska and QuickTime for frames whose top field is first, and those of libavcodec's
# decoders that go by the container (rawdec, v210dec) read it so.
_TOP_FIRST, _BOTTOM_FIRST = (2, 4), (3, 5)
MIXED_FIELDS = {"mpeg2video", "h264", "vc1"}
"""Codecs of broadcasts and discs, which switch between film and video."""
# The frames of these codecs state whether they are interlaced. For others, such as AV1, only the container does.
_FRAMES_TELL = {
    *MIXED_FIELDS, "dvvideo", "mpeg4", "hevc", "vvc", "wmv3", "prores", "dnxhd", "cfhd",
}  # fmt: skip
# An encoder that was not told of fields writes into most of them that there are none. Into these containers ffmpeg
# writes the field order of the pictures that its encoder got, so of other codecs than these the container counts, also
# that of the files that a script or playlist names. (Of MXF FFmpeg takes segmented frames for interlaced ones.)
_STATE_FIELDS = ("matroska", "mov", "concat", "hls")
_FRAMES_ALWAYS_TELL = {*MIXED_FIELDS, "dvvideo"}
# These code each field as a picture of its own. Such pictures are flagged.
_FIELDS_ARE_PICTURES = {"hevc", "vvc"}

VP_AND_AV1 = ("vp8", "vp9", "av1")
"""Codecs whose frames say how they are decoded; some frames are only for reference, never shown."""

UNSPECIFIED = 2
_RGB_MATRIX = 0
_LINEAR = 8
_COMMON_PROFILE = 5
# FFmpeg 8.1 has four.
_UNKNOWN_KINDS = 16
# Their decoders give an ICC profile a name.
_NAME_PROFILES = ("png", "apng")
_DOLBY_VISION_TAGS = ("dvh1", "dvhe", "dva1", "dvav")
# FFmpeg's own decoders ignore the alpha that WebM stores beside the picture.
_ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
_OTHER_STREAMS = {"audio": "audio", "subtitle": "subtitles", "data": "data", "video": "other video"}
# What FFmpeg gives a frame once for the container and once more for messages in the headers of these codecs.
_STATED_BY_BOTH = ("DISPLAYMATRIX", "STEREO3D")
_MESSAGE_CODECS = ("h264", "hevc")
_FULL_CHROMA = ("4:4:4", "RGB")
_SUBSAMPLING = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (4, 1): "4:1:1", (1, 2): "4:4:0", (4, 4): "4:1:0"}


def picture_of(
    frames: Sequence[VideoFrame],
    stream: VideoStream,
    container: InputContainer,
    *,
    has_alpha_layer: bool,
    aspect_changes: bool,
    dolby_vision_profile: int,
    has_field_pairs: bool,
) -> SourcePicture:
    """The properties, from one or more first frames of a stream. PyAV does not decode alpha layers, hence
    `has_alpha_layer`. `dolby_vision_profile`: as the container states it. `has_field_pairs`: packets of Motion JPEG
    have two pictures, one for each field."""
    first, codec = frames[0], stream.codec_context
    codec_name = codec_of(codec)
    pixels = first.format
    side_data = _side_data(first, codec_name)
    stated = [name for name, _ in side_data]
    kinds = {*stated}
    unspecified_transfer = int(first.color_trc) == UNSPECIFIED
    # Where the container says nothing of it: Dolby Vision with a base layer for other players has the tags of PQ, HLG
    # or BT.709.
    has_its_tag = codec.codec_tag.lower() in _DOLBY_VISION_TAGS
    is_dolby_vision = has_its_tag or bool(kinds & {"DOVI_RPU_BUFFER", "DOVI_METADATA"})
    # AVI's 32-bit BITMAPINFO pixels have a fourth byte that is unused, and usually 0.
    unused_alpha = codec_name == "rawvideo" and container.format.name == "avi"
    decoder = _ALPHA_DECODERS.get(codec_name) if stream.metadata.get("alpha_mode") == "1" else None
    fields = _fields(
        [frame.interlaced_frame for frame in frames],
        codec_name,
        codec.field_order,
        frames_tell=_frames_tell(stream, container),
        in_pairs=has_field_pairs,
        tag=codec.codec_tag,
    )
    return SourcePicture(
        pix_fmt=pixels.name,
        bits=max((component.bits for component in pixels.components), default=8),
        floating=any(part in pixels.name for part in ("f16", "f32")),
        chroma=_chroma(pixels),
        alpha=has_alpha_layer or decoder is not None or (not unused_alpha and _has_alpha(first)),
        alpha_layer=has_alpha_layer,
        aspect_changes=aspect_changes,
        full_range=int(first.color_range) == 2 or pixels.name.startswith("yuvj"),
        linear=int(first.color_trc) == _LINEAR or (codec_name == "exr" and unspecified_transfer),
        fields=fields,
        mirrored=_is_mirrored(side_data),
        false_matrix=pixels.name.startswith("yuv") and int(first.colorspace) == _RGB_MATRIX,
        dolby_vision_profile=dolby_vision_profile
        or (_COMMON_PROFILE if is_dolby_vision and unspecified_transfer else 0),
        stated_twice=codec_name in _MESSAGE_CODECS
        and any(stated.count(kind) > 1 for kind in _STATED_BY_BOTH)
        # Messages also tell of fields, of alpha, and of old versions of x264, whose 4:4:4 decodes otherwise.
        and not (fields == Fields.FLAGGED or has_alpha_layer)
        and not (codec_name == "h264" and _chroma(pixels) in _FULL_CHROMA),
        film_grain="FILM_GRAIN_PARAMS" in kinds,
        left_behind=_left_behind(stream, container),
        tags=tuple(
            text for kind, text in (("STEREO3D", "stereo 3D"), ("SPHERICAL", "360 projection")) if kind in kinds
        ),
        decoder=decoder,
    )


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
        # Every palette format has alpha; only the colours of this palette show whether it is used.
        return bool((frame.to_ndarray(format="bgra")[..., 3] < np.iinfo(np.uint8).max).any())
    return any(component.is_alpha for component in frame.format.components)


def _frames_tell(stream: VideoStream, container: InputContainer) -> bool:
    """Whether frames that are not flagged as interlaced are not, whatever the container states."""
    codec = codec_of(stream.codec_context)
    if not container.format.name.startswith(_STATE_FIELDS):
        return codec in _FRAMES_TELL
    # So an encoder of H.264 that was not told of fields writes its headers. Where it gave the fields different orders,
    # FFmpeg takes these for a field order of the container, and writes it into others.
    extradata = stream.codec_context.extradata
    has_only_frames = HeaderReader(codec, extradata).has_only_frames and not may_order_fields(extradata)
    return codec in _FRAMES_ALWAYS_TELL and not has_only_frames


def _fields(
    flagged: Sequence[bool], codec: str, field_order: int, *, frames_tell: bool, in_pairs: bool, tag: str
) -> Fields:
    """Which frames have two fields, by the decoder's flags and the container. A field that is a picture of its own
    stays as it is: none of these frames has two."""
    are_pictures = codec in _FIELDS_ARE_PICTURES
    if any(flagged):
        return Fields.NO if are_pictures else Fields.FLAGGED
    if field_order in _TOP_FIRST + _BOTTOM_FIRST:
        if frames_tell:
            return Fields.NO if are_pictures else Fields.FLAGGED
        return Fields.TOP_FIRST if field_order in _TOP_FIRST else Fields.BOTTOM_FIRST
    if not in_pairs:
        return Fields.NO
    # FFmpeg flags no frame. Of two pictures in a packet it puts the first one into the lower rows where the container
    # calls the codec MJPG, and into the upper ones elsewhere.
    return Fields.BOTTOM_FIRST if tag == "MJPG" else Fields.TOP_FIRST


def _is_mirrored(side_data: Iterable[tuple[str, bytes]]) -> bool:
    """Whether the display matrix (ISO/IEC 14496-12, 6.2.2) has a negative determinant, which mirrors the picture."""
    for name, data in side_data:
        if name == "DISPLAYMATRIX":
            a, b, _, c, d, *_ = struct.unpack("=9i", data)
            return bool(a * d - b * c < 0)
    return False


def _side_data(frame: VideoFrame, codec: str) -> list[tuple[str, bytes]]:
    found: object
    try:
        found = (_with_safe_side_data(frame) if codec in _NAME_PROFILES else frame).side_data
    except ValueError:
        # PyAV tells nothing at all if it does not know one kind that its FFmpeg has, such as Exif.
        found = _with_safe_side_data(frame).side_data
    return [(each.type.name, bytes(each)) for each in cast("Iterable[SideData]", found)]


def _with_safe_side_data(frame: VideoFrame) -> VideoFrame:
    """The same frame without side data of kinds that PyAV does not know, which FFmpeg added at the end of its list, and
    without an ICC profile: the process dies where PyAV frees the name of one, which FFmpeg frees too."""
    first_unknown = len(Type)
    kinds = (Type.ICC_PROFILE.value, *range(first_unknown, first_unknown + _UNKNOWN_KINDS))
    graph = Graph()
    graph.link_nodes(
        graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1)),
        *(graph.add("sidedata", f"mode=delete:type={kind}") for kind in kinds),
        graph.add("buffersink"),
    ).configure()
    graph.push(frame)
    return cast("VideoFrame", graph.pull())


def _left_behind(stream: VideoStream, container: InputContainer) -> tuple[str, ...]:
    kinds = [other.type for other in container.streams if other.index != stream.index and not _is_cover_picture(other)]
    return tuple(name for kind, name in _OTHER_STREAMS.items() if kind in kinds)


def _is_cover_picture(stream: object) -> bool:
    disposition = getattr(stream, "disposition", None)
    return disposition is not None and "attached_pic" in str(disposition)
