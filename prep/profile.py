"""How the videos of a dataset are encoded: one profile for all, stored in the dataset's root."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from ..arguments import spelled_rate
from ..errors import FormatVersionError, UsageError

CODECS = ("h264", "hevc", "av1")
ENCODERS = {
    "libx264": "h264",
    "h264_nvenc": "h264",
    "libx265": "hevc",
    "hevc_nvenc": "hevc",
    "libsvtav1": "av1",
    "av1_nvenc": "av1",
}
SOFTWARE_ENCODERS = {codec: name for name, codec in ENCODERS.items() if name.startswith("lib")}
NVENC_ENCODERS = {codec: name for name, codec in ENCODERS.items() if name.endswith("nvenc")}

_X264_PRESETS = (
    "ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo",
)  # fmt: skip
_NVENC_PRESETS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7", "slow", "medium", "fast")
PRESETS = {
    "libx264": _X264_PRESETS,
    "h264_nvenc": _NVENC_PRESETS,
    "libx265": _X264_PRESETS,
    "hevc_nvenc": _NVENC_PRESETS,
    "libsvtav1": tuple(map(str, range(14))),
    "av1_nvenc": _NVENC_PRESETS,
}
"""The presets of each encoder, as its ffmpeg calls them."""

# Options that mean something else with each codec: their ranges, and their values where none are given. That AV1 looks
# with CRF 35 as the others do with 23 is measured: docs/benchmarks-all.md.
_CRF_RANGE = {"h264": (0, 51), "hevc": (0, 51), "av1": (1, 63)}
_MAX_B_FRAMES = {"h264": 16, "hevc": 16, "av1": 1}
_OF_CODEC: dict[str, dict[str, Any]] = {
    "h264": {"crf": 23, "b_frames": 3},
    "hevc": {"crf": 23, "b_frames": 3},
    "av1": {"crf": 35, "b_frames": 1},
}

MAX_FPS = 1000
MAX_SIDE = 16384
FITS = ("within", "pad", "crop", "stretch")
DEINTERLACE = ("auto", "never")

# How prep worked before these options existed. Unit names contain a hash of `Profile.key`, which leaves out options
# with these values, so that unit names in older datasets stay the same.
_BEFORE: dict[str, Any] = {"fastdecode": False, "fit": "stretch", "upscale": True, "deinterlace": "never"}


@dataclass(frozen=True)
class Size:
    """The largest size of frames: the source's own (both None), a short side, or a width and a height (`Profile.fit`
    says how pictures are fitted to these). Sides are rounded to even numbers.
    """

    short_side: int | None = None
    exact: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.exact:
            return f"{self.exact[0]}x{self.exact[1]}"
        return str(self.short_side) if self.short_side else "source"


@dataclass(frozen=True)
class Profile:
    """All options that affect the encoded bytes.

    `fps` None keeps each source's own rate. `fit` says how pictures are fitted to a width and a height: "within"
    scales the whole picture, and frames have its shape; "pad" adds black borders, "crop" cuts off what does not
    fit, "stretch" changes the shape. Without `upscale` pictures are never enlarged, so only "pad" gives all frames
    the same size. `deinterlace`: "auto" deinterlaces interlaced sources, "never" none. `crf` is the
    constant-quality level of the encoder (NVENC calls it cq). `b_frames` is how many frames that no other refers to
    lie between two that others refer to. `fastdecode` omits what takes a decoder longest:
    with x264 the deblocking filter and arithmetic coding, with x265 what its own tune=fastdecode names, with SVT-AV1
    all loop filters, with NVENC arithmetic coding in H.264. `segment_seconds` is rounded to whole GOPs. With the
    encoder "auto" each machine uses the fastest one that runs.
    """

    fps: Fraction | None = None
    size: Size = Size()
    fit: str = "within"
    upscale: bool = False
    deinterlace: str = "auto"
    gop_frames: int = 16
    b_frames: int = 3
    codec: str = "h264"
    encoder: str = "auto"
    crf: int = 23
    preset: str | None = None
    fastdecode: bool = True
    segment_seconds: Fraction = Fraction(10)
    shard_bytes: int = 256_000_000

    def __post_init__(self) -> None:
        if self.fps is not None:
            object.__setattr__(self, "fps", Fraction(self.fps))
        least_crf, most_crf = _CRF_RANGE.get(self.codec, (0, 0))
        most_b_frames = _MAX_B_FRAMES.get(self.codec, 0)
        of_codec = f" with --codec {self.codec}"
        checks = (
            (1 <= self.gop_frames <= 1000, "--gop", self.gop_frames, "from 1 to 1000 frames"),
            (self.codec in CODECS, "--codec", self.codec, ", ".join(CODECS)),
            (0 <= self.b_frames <= most_b_frames, "--b-frames", self.b_frames, f"from 0 to {most_b_frames}{of_codec}"),
            (
                least_crf <= self.crf <= most_crf,
                "--crf",
                self.crf,
                f"from {least_crf} (best) to {most_crf} (smallest){of_codec}",
            ),
            (self.encoder in ("auto", *ENCODERS), "--encoder", self.encoder, "auto, " + ", ".join(ENCODERS)),
            (0 < self.segment_seconds <= 3600, "--segment-seconds", self.segment_seconds, "more than 0, up to 3600"),
            (self.shard_bytes >= 1_000_000, "--shard-mb", self.shard_bytes / 1_000_000, "at least 1"),
            (_fits_timescale(self.fps), "--fps", self.fps, f"from 1/1000 to {MAX_FPS}, in terms below a million"),
            (self.fit in FITS, "--fit", self.fit, ", ".join(FITS)),
            (isinstance(self.upscale, bool), "--upscale", self.upscale, "yes or no"),
            (self.deinterlace in DEINTERLACE, "--deinterlace", self.deinterlace, " or ".join(DEINTERLACE)),
            (isinstance(self.fastdecode, bool), "--fastdecode", self.fastdecode, "yes or no"),
            (self.preset is None or self.preset.isalnum(), "--preset", self.preset, "a name such as medium or p4"),
        )
        for fits, option, value, wanted in checks:
            if not fits:
                raise UsageError(f"{option} is {value}; it takes {wanted}")
        if self.encoder != "auto" and ENCODERS[self.encoder] != self.codec:
            raise UsageError(f"--encoder {self.encoder} writes {ENCODERS[self.encoder]}, but --codec is {self.codec}")

    def to_json(self) -> dict[str, Any]:
        """The profile as stored in the dataset's root: plain JSON values; rates are exact fractions as text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"fps": "source" if self.fps is None else str(self.fps)}
        return values | {"size": str(self.size), "segment_seconds": str(self.segment_seconds)}

    def key(self) -> str:
        """The profile as one line of text, the same for equal profiles."""
        values = {name: value for name, value in self.to_json().items() if (name, value) not in _BEFORE.items()}
        return json.dumps(values, sort_keys=True)


PROFILES: dict[str, dict[str, Any]] = {
    "fast": {"codec": "h264", "gop_frames": 16, "b_frames": 3, "fastdecode": True},
    "balanced": {"codec": "h264", "gop_frames": 16, "b_frames": 3, "fastdecode": False},
    "small": {"codec": "hevc", "gop_frames": 32, "b_frames": 3, "fastdecode": False},
}
"""Named sets of options; docs/performance.md compares them. The first has the defaults of `Profile()`."""


def named_profile(name: str, codec: str | None = None) -> dict[str, Any]:
    """The options of the profile with this name, or of what it is with another codec: options that mean something else
    with that one have its own values. UsageError for an unknown name."""
    if name not in PROFILES:
        raise UsageError(f"--profile is {name!r}; it takes {', '.join(PROFILES)}")
    named = PROFILES[name]
    if codec is None:
        return named
    of_codec = values_of_codec(codec, named["codec"])
    return {option: of_codec.get(option, value) for option, value in named.items()} | {"codec": codec}


def changed_profile(base: Profile | None, given: dict[str, Any]) -> Profile:
    """The dataset's profile (None: the default one) with the options in `given` changed.

    UsageError for a value that is invalid by itself or together with the others.
    """
    before = base or Profile()
    profile = replace(before, **values_of_codec(given.get("codec", before.codec), before.codec) | given)
    if "fit" in given and profile.size.exact is None:
        raise UsageError(f"--fit {profile.fit} needs a --size WIDTHxHEIGHT; give one as well")
    if "preset" in given:
        _check_preset(profile)
    return profile


def _check_preset(profile: Profile) -> None:
    """UsageError for a preset that no encoder has that may be used. Datasets may have others, of other versions."""
    encoders = [
        name for name, codec in ENCODERS.items() if profile.encoder in (name, "auto") and codec == profile.codec
    ]
    if not any(profile.preset in PRESETS[name] for name in encoders):
        known = "; ".join(f"with {name} {presets_text(name)}" for name in encoders)
        raise UsageError(f"--preset is {profile.preset!r}; it takes, {known}")


def presets_text(encoder: str) -> str:
    """The presets of an encoder, in words."""
    presets = PRESETS[encoder]
    return f"{presets[0]} (slowest) to {presets[-1]}" if presets[0].isdigit() else ", ".join(presets)


def values_of_codec(codec: str, before: str = "h264") -> dict[str, Any]:
    """The options that a profile gets with this codec, where it had the codec `before` and they are not given."""
    values = _OF_CODEC.get(codec, {})
    return {} if values == _OF_CODEC[before] else values


def _fits_timescale(fps: Fraction | None) -> bool:
    """Whether an MP4, whose ticks per second and per frame have 32 bits, can have this rate."""
    if fps is None:
        return True
    return Fraction(1, 1000) <= fps <= MAX_FPS and max(fps.numerator, fps.denominator) < 1_000_000


def profile_from_json(values: dict[str, Any]) -> Profile:
    """The inverse of `Profile.to_json`. Options that the root of an older dataset lacks get the values from before they
    existed."""
    values = _BEFORE | values
    try:
        stored = {field.name: values[field.name] for field in fields(Profile)}
        parsed: dict[str, Any] = {"fps": parse_fps(stored["fps"]), "size": parse_size(stored["size"])}
        return Profile(**stored | parsed | {"segment_seconds": Fraction(stored["segment_seconds"])})
    except (KeyError, TypeError, ValueError) as error:
        raise FormatVersionError(
            f"the dataset's profile cannot be read ({error}): another version of shortgop wrote it; use that version"
        ) from error


def parse_fps(text: str) -> Fraction | None:
    """`source`, a number (29.97 means 30000/1001) or a fraction."""
    if text == "source":
        return None
    try:
        fps = spelled_rate(text)
    except ValueError:
        raise UsageError(f"--fps is {text!r}; it takes 'source', a number such as 30, or 30000/1001") from None
    return fps


def parse_size(text: str) -> Size:
    """`source`, a short side in pixels, or WIDTHxHEIGHT."""
    if text == "source":
        return Size()
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if match:
        sides = [int(side) for side in match.groups() if side is not None]
        if all(2 <= side <= MAX_SIDE and side % 2 == 0 for side in sides):
            return Size(short_side=sides[0]) if len(sides) == 1 else Size(exact=(sides[0], sides[1]))
    raise UsageError(
        f"--size is {text!r}; it takes 'source', a short side such as 256, or WIDTHxHEIGHT, in even numbers of pixels"
    )
