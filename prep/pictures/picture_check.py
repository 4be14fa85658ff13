"""Refuses, before anything is encoded, sources whose pictures this ffmpeg cannot convert."""

from __future__ import annotations

from typing import Literal

from ...errors import EncodeError
from ..probing.containers.dolby_vision import NOT_CONVERTIBLE
from ..probing.source_video import SourceVideo
from ..running.ffmpeg import ENVIRONMENT_VARIABLE, is_from_8_on, lists
from .picture_filters import needs_zscale, tone_maps


def check_picture(source: SourceVideo, ffmpeg_path: str) -> None:
    """EncodeError for a source that this ffmpeg cannot decode or convert."""
    profile = source.picture.dolby_vision_profile
    if profile:
        raise EncodeError(f"{source.path} {NOT_CONVERTIBLE.format(profile=profile)}", file=source.path)
    if source.picture.alpha_layer and not is_from_8_on(ffmpeg_path):
        raise EncodeError(
            f"{source.path} is HEVC with alpha, which FFmpeg decodes from version 8 on, and {ffmpeg_path} is older; "
            f"run `pip install imageio-ffmpeg`, or set {ENVIRONMENT_VARIABLE} to the path of a newer one",
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
                f"{source.path} {what}, but {ffmpeg_path} lacks the {kind.removesuffix('s')} {name}; run `pip install "
                f"imageio-ffmpeg`, or set {ENVIRONMENT_VARIABLE} to the path of an ffmpeg that has it",
                file=source.path,
            )
