"""Which files of a folder are videos, by their names."""

from __future__ import annotations

from .list_lines import is_list

# Formats of videos that FFmpeg reads and decodes. .avif, .png and .webp are missing: nearly all of these are stills,
# and each would be a failure. So are .3gpp, as which phones record voices, and .avs, .mod and .dat, which mostly name
# other things.
VIDEO_SUFFIXES = (
    ".264 .265 .266 .360 .3g2 .3gp .3gp2 .amv .apng .asf .avi .bik .cine .dav .divx .dv .evo .f4v .flc .fli "
    ".flv .gif .gxf .h261 .h263 .h264 .h265 .h266 .hevc .insv .ismv .ivf .m1v .m2p .m2t .m2ts .m2v .m4v .mj2 .mjpeg "
    ".mjpg .mk3d .mkv .mov .mp2v .mp4 .mpe .mpeg .mpg .mpv .mts .mve .mxf .nsv .nut .nuv .obu .ogm .ogv .pva .qt .rm "
    ".rmvb .roq .smk .tod .tp .trp .ts .vc1 .viv .vob .vro .vvc .webm .wmv .wtv .xmv .y4m"
)
_SUFFIXES = frozenset(suffix[1:] for suffix in VIDEO_SUFFIXES.split())


def is_video_name(name: str) -> bool:
    """Whether a file is a video by its name."""
    # Path.suffix takes several times as long, os.path.splitext twice, and there may be a million names. Dots at the
    # beginning of a name do not begin a suffix.
    stem, _, suffix = name.rpartition(".")
    return suffix.lower() in _SUFFIXES and bool(stem.rpartition("/")[2].strip("."))


def is_tar_name(name: str) -> bool:
    """Whether a file is a tar by its name."""
    return name.lower().endswith(".tar")


def has_known_name(name: str) -> bool:
    """Whether a file may be an argument: a video, a list or a tar by its name."""
    return is_video_name(name) or is_list(name) or is_tar_name(name)
