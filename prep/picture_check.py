"""Sources whose colours cannot be prepared here are refused before anything is encoded."""

from __future__ import annotations

from typing import Literal

from ..errors import EncodeError
from .ffmpeg import ENVIRONMENT_VARIABLE, decodes_alpha_layers, lists
from .picture_filters import needs_zscale, tone_maps
from .probe import SourceVideo


def check_picture(source: SourceVideo, ffmpeg_path: str) -> None:
    """EncodeError for a source that needs a filter this ffmpeg lacks, or a decoder that nobody has."""
    if source.picture.undecodable_colours:
        raise EncodeError(
            f"{source.path} is Dolby Vision of profile 5, whose colours only Dolby Vision's own decoders read: convert "
            "it to HDR10 or BT.709 first",
            file=source.path,
        )
    if source.picture.alpha_layer and not decodes_alpha_layers(ffmpeg_path):
        raise EncodeError(
            f"{source.path} is HEVC with alpha, which FFmpeg decodes from version 8 on, and {ffmpeg_path} is older: "
            f"`pip install imageio-ffmpeg` brings a newer one, or set {ENVIRONMENT_VARIABLE} to one",
            file=source.path,
        )
    decoder = source.picture.decoder
    needed: list[tuple[Literal["filters", "decoders"], str, str]] = []
    if needs_zscale(source):
        what = "is HDR" if tone_maps(source) else "holds linear light"
        needed += [("filters", "zscale", what), ("filters", "tonemap", what)]
    if decoder:
        needed += [("decoders", decoder, f"is {source.codec} with alpha")]
    for kind, name, what in needed:
        if not lists(ffmpeg_path, kind, name):
            raise EncodeError(
                f"{source.path} {what}, for which {ffmpeg_path} has no {kind.removesuffix('s')} {name}: `pip install "
                f"imageio-ffmpeg` brings an ffmpeg that has, or set {ENVIRONMENT_VARIABLE} to one",
                file=source.path,
            )
