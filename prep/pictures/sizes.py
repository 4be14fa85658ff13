"""The size of a video, as a pure function of the source's size and the profile, and whether an encoder accepts it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from ...errors import EncodeError
from ..probing.source_video import SourceVideo
from ..profile import MAX_SIDE, SOFTWARE_ENCODERS, Profile

# FFmpeg refuses to allocate pictures of twice as many.
_MAX_PIXELS = 1 << 27

Shape = tuple[Fraction, Fraction]
Sides = tuple[int, int]


@dataclass(frozen=True)
class EncoderLimits:
    """The sides in pixels that an encoder accepts."""

    min_width: int
    min_height: int
    max_side: int


# Those on the CPU: tried. NVENC: as others report of a GPU (145x49, 129x33 and 192x128), not tried on hardware; if it
# refuses a source, the CPU encodes it.
ENCODER_LIMITS = {
    "libx264": EncoderLimits(2, 2, MAX_SIDE),
    "libx265": EncoderLimits(16, 16, MAX_SIDE),
    "libsvtav1": EncoderLimits(2, 2, 8704),
    "h264_nvenc": EncoderLimits(146, 50, 4096),
    "hevc_nvenc": EncoderLimits(130, 34, 8192),
    "av1_nvenc": EncoderLimits(192, 128, 8192),
}


@dataclass(frozen=True)
class PictureLayout:
    """The steps from an `upright` picture to one of `width` by `height`: a part of the size `cut`, whose top left pixel
    is at `cut_at`, is kept, scaled to `scaled`, and padded with black to `width` by `height`.

    All are (width, height) or (x, y) in pixels. A step that is left out has the same size as the step before it.
    """

    upright: Sides
    cut: Sides
    cut_at: Sides
    scaled: Sides
    width: int
    height: int

    @property
    def is_cropped(self) -> bool:
        """Whether more than the last pixel of an odd side is cut off."""
        return any(whole - kept > 1 for whole, kept in zip(self.upright, self.cut, strict=True))

    @property
    def is_padded(self) -> bool:
        return (self.width, self.height) != self.scaled

    @property
    def pad_at(self) -> Sides:
        """The position (x, y) of the picture in its frame: the middle, rounded to even numbers, so that chroma samples
        stay in place."""
        return (self.width - self.scaled[0]) // 4 * 2, (self.height - self.scaled[1]) // 4 * 2


def picture_layout(source: SourceVideo, profile: Profile) -> PictureLayout:
    """The size of a video, after rotation, with square pixels, in even numbers.

    It is never larger than the profile's size and, without `upscale`, never larger than the source, except that a side
    of 1 pixel becomes 2. Pictures that are larger than any encoder accepts are scaled down.
    """
    upright: Sides = (source.width, source.height)
    shape: Shape = (source.width * source.sample_aspect_ratio, Fraction(source.height))
    if source.rotation in (90, 270):
        upright, shape = upright[::-1], shape[::-1]
    box = profile.size.exact
    if box and profile.fit == "crop":
        return _cropped(upright, shape, box, upscale=profile.upscale)
    if box and profile.fit == "stretch":
        scales = (box[0] / shape[0], box[1] / shape[1])
        if not profile.upscale:
            scales = (min(scales[0], Fraction(1)), min(scales[1], Fraction(1)))
        sides = _scaled(shape, scales, box)
        return PictureLayout(upright, upright, (0, 0), sides, *sides)
    if box:
        most, within = min(box[0] / shape[0], box[1] / shape[1]), box
    else:
        short = profile.size.short_side
        most = Fraction(short or min(shape)) / min(shape)
        within = (MAX_SIDE, short or MAX_SIDE) if shape[0] >= shape[1] else (short or MAX_SIDE, MAX_SIDE)
    scale = min(most if profile.upscale else min(most, Fraction(1)), _most_that_fits(shape))
    if scale == 1 and source.sample_aspect_ratio == 1 and min(upright) > 1:
        # Cutting off the last pixel of an odd side leaves all other pixels unchanged; scaling would blur them.
        cut = sides = (upright[0] // 2 * 2, upright[1] // 2 * 2)
    else:
        cut, sides = upright, _scaled(shape, (scale, scale), within)
    return PictureLayout(upright, cut, (0, 0), sides, *(box if box and profile.fit == "pad" else sides))


def _cropped(upright: Sides, shape: Shape, box: Sides, *, upscale: bool) -> PictureLayout:
    """The layout for "crop": the middle of the picture is scaled to the box. Where the picture does not fill the box,
    the frame is smaller."""
    scale = max(box[0] / shape[0], box[1] / shape[1])
    if not upscale:
        scale = min(scale, Fraction(1))
    sides = _scaled(shape, (scale, scale), box)
    kept = [
        min(pixels, max(2, round(side / scale * pixels / length / 2) * 2))
        for side, pixels, length in zip(sides, upright, shape, strict=True)
    ]
    at = [(pixels - keep) // 4 * 2 for pixels, keep in zip(upright, kept, strict=True)]
    return PictureLayout(upright, (kept[0], kept[1]), (at[0], at[1]), sides, *sides)


def _most_that_fits(shape: Shape) -> Fraction:
    scale = MAX_SIDE / max(shape)
    pixels = shape[0] * shape[1] * scale**2
    if pixels <= _MAX_PIXELS:
        return scale
    # A thousandth less, because both sides may be rounded up; the root is rounded down to a millionth.
    return scale * Fraction(isqrt(int(_MAX_PIXELS * 999 * 10**9 / pixels)), 10**6)


def _scaled(shape: Shape, scales: Shape, box: Sides) -> Sides:
    """Both sides rounded to even numbers: to the nearest one that is within the box and, unless it is scaled up, within
    the source."""
    sides = []
    for length, scale, most in zip(shape, scales, box, strict=True):
        even = min(round(length * scale / 2) * 2, most)
        sides.append(max(2, even if scale > 1 else min(even, int(length / 2) * 2)))
    return sides[0], sides[1]


def takes(encoder: str, layout: PictureLayout) -> bool:
    """Whether the encoder accepts frames of this size."""
    limits = ENCODER_LIMITS[encoder]
    return (
        layout.width >= limits.min_width
        and layout.height >= limits.min_height
        and max(layout.width, layout.height) <= limits.max_side
        and layout.width * layout.height <= _MAX_PIXELS
    )


def check_taken(encoder: str, layout: PictureLayout, source: SourceVideo, profile: Profile) -> None:
    """EncodeError, with the remedy, when the encoder does not accept frames of this size."""
    if takes(encoder, layout):
        return
    limits = ENCODER_LIMITS[encoder]
    software = SOFTWARE_ENCODERS[profile.codec]
    if software != encoder and takes(software, layout):
        remedy = f"choose --encoder {software}"
    elif layout.width < limits.min_width or layout.height < limits.min_height:
        remedy = "choose --codec h264 with --encoder libx264, or a larger --size WIDTHxHEIGHT with --fit pad"
    else:
        remedy = "choose a smaller --size"
    raise EncodeError(
        f"{source.path}: its frames of {source.width}x{source.height} become {layout.width}x{layout.height} with "
        f"--size {profile.size} --fit {profile.fit}, but {encoder} takes {limits.min_width}x{limits.min_height} "
        f"pixels or more, at most {limits.max_side} a side and {_MAX_PIXELS} in all; {remedy}",
        file=source.path,
    )
