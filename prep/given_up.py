"""Lists what a source has and its video in the dataset lacks, as short texts: `given_up` in the manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..manifests.lacking import CUT_OFF, GUESSED_RATE
from .pictures.picture_filters import deinterlaces, needs_zscale, tone_maps
from .pictures.sizes import PictureLayout, picture_layout
from .probing.source_video import SourceVideo
from .profile import Profile

_BYTE_BITS = 8
_SUBSAMPLED = ("4:2:0", "4:1:0", "gray")
# How ffmpeg's log calls a frame that differs from the first one.
_OTHER_FRAME = re.compile(r"incoming frame - w: (\d+) h: (\d+) fmt:")


def given_up(source: SourceVideo, profile: Profile, reports: Iterable[str] = ()) -> tuple[str, ...]:
    """Short texts in a fixed order, the same in every dataset. `reports`: ffmpeg's log lines about frames that differ
    from the first one (`RunningFfmpeg.changes`)."""
    picture, layout = source.picture, picture_layout(source, profile)
    sizes = [(int(found[1]), int(found[2])) for found in map(_OTHER_FRAME.search, reports) if found]
    resized = any(size != source.coded_size for size in sizes)
    texts = {
        CUT_OFF: source.is_cut_off,
        GUESSED_RATE: source.has_guessed_rate,
        "times of some frames are not stated: estimated": len(source.estimated_times) > 0,
        "frames arrived in bursts: evenly spaced": source.has_bursts,
        "resolution changes: scaled to the first frame's": resized,
        "pixels change: converted to the first frame's": bool(sizes) and not resized,
        "sample aspect ratio changes: one for all": picture.aspect_changes,
        "deinterlaced": deinterlaces(source, profile),
        "alpha over black": picture.alpha,
        "tone-mapped": tone_maps(source),
        "linear light to BT.709": needs_zscale(source) and not tone_maps(source),
        "cropped": layout.is_cropped,
        "stretched": _is_stretched(source, layout),
        "scaled": layout.scaled != layout.cut,
        _depth(source): picture.floating or picture.bits > _BYTE_BITS,
        "RGB to 4:2:0": picture.rgb,
        f"chroma {picture.chroma} to 4:2:0": not picture.rgb and picture.chroma not in _SUBSAMPLED,
        "full range to limited": picture.full_range and not picture.rgb,
        **{f"{tag} tag dropped": True for tag in picture.tags},
        **{f"{kind} dropped": True for kind in picture.left_behind},
    }
    return tuple(text for text, applies in texts.items() if applies)


def _depth(source: SourceVideo) -> str:
    return "floating point to 8 bits" if source.picture.floating else f"{source.picture.bits} bits to 8"


def _is_stretched(source: SourceVideo, layout: PictureLayout) -> bool:
    """Whether the shape changes by more than rounding to even sides does."""
    aspect = source.sample_aspect_ratio if source.rotation in (0, 180) else 1 / source.sample_aspect_ratio
    width, height = layout.cut[0] * aspect, layout.cut[1]
    # By how many pixels of the scaled picture one side is off if both are scaled by the factor of the other.
    apart = min(
        abs(layout.scaled[0] - width * layout.scaled[1] / height),
        abs(layout.scaled[1] - height * layout.scaled[0] / width),
    )
    return apart > 2  # sides are rounded to even numbers
