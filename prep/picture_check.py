"""Sources whose colours cannot be prepared here are refused before anything is encoded."""

from __future__ import annotations

from ..manifests.errors import EncodeError
from .ffmpeg import ENVIRONMENT_VARIABLE, has_filter
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
    missing = [name for name in ("zscale", "tonemap") if not has_filter(ffmpeg_path, name)]
    if needs_zscale(source) and missing:
        what = "HDR" if tone_maps(source) else "linear light"
        raise EncodeError(
            f"{source.path} is {what}, and {ffmpeg_path} has no filter {missing[0]} to bring it to BT.709: `pip install "
            f"imageio-ffmpeg` brings an ffmpeg that has, or set {ENVIRONMENT_VARIABLE} to one",
            file=source.path,
        )
