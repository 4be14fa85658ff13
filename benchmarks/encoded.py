"""Encodings of the same footage: how each is made, how many bytes it takes and how much of the picture it keeps."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import footage

from shortgop.prep.running.ffmpeg import find_ffmpeg

BETWEEN = Path(__file__).resolve().with_name("ffmpeg_between.py")
CRFS = {"h264": 23.0, "hevc": 23.0, "av1": 35.0}
_ENCODERS = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1"}
_HIGHEST_CRF = 51.0
# Bytes are equal where they differ by less than this, of the target.
_EQUAL_BYTES = 0.01
_MOST_TRIES = 5


@dataclass(frozen=True, order=True)
class Encoding:
    """How to encode. `fastdecode` is prep's option; `x264` are parameters of x264 in its own spelling,
    on top of prep's; `preset` is the encoder's own where it is empty, and `crf` that of `CRFS` where it is None."""

    codec: str = "h264"
    gop: int = 16
    b_frames: int = 3
    fastdecode: bool = False
    x264: str = ""
    preset: str = ""
    crf: float | None = None

    def __str__(self) -> str:
        between = "unreferenced" if self.codec == "av1" else "B"
        words = [self.codec, f"GOP {self.gop}", f"{self.b_frames} {between}"]
        words += [*(["fastdecode"] if self.fastdecode else []), *([self.x264] if self.x264 else [])]
        words += [
            *([f"preset {self.preset}"] if self.preset else []),
            *([] if self.crf is None else [f"CRF {self.crf:g}"]),
        ]
        return ", ".join(words)

    @property
    def level(self) -> float:
        """The quality level."""
        return CRFS[self.codec] if self.crf is None else self.crf

    @property
    def key(self) -> str:
        """The same in a file name."""
        return "-" + re.sub(r"[^A-Za-z0-9.]+", "-", str(self))


@dataclass(frozen=True)
class Made:
    """The dataset, and its videos as MP4s, which are what `bytes` counts."""

    dataset: Path
    paths: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)


@dataclass(frozen=True)
class Quality:
    """Means over the videos: PSNR of luma in dB, and VMAF by libvmaf's default model, NaN without libvmaf."""

    psnr: float
    vmaf: float


def make(encoding: Encoding, sources: Sequence[Path]) -> Made:
    """Encode the sources by prep."""
    crf = encoding.level
    options = ["--runner", "inline", "--codec", encoding.codec, "--gop", str(encoding.gop)]
    options += ["--b-frames", str(encoding.b_frames)]
    # On the CPU wherever it runs, so that results of several machines can be compared.
    options += ["--encoder", _ENCODERS[encoding.codec]]
    options += ["--fastdecode" if encoding.fastdecode else "--no-fastdecode", "--crf", str(round(crf))]
    options += ["--preset", encoding.preset] if encoding.preset else []
    # prep has whole levels only, and no options for a part of `fastdecode`.
    between = {
        "SHORTGOP_FFMPEG": str(BETWEEN),
        "BETWEEN_FFMPEG": find_ffmpeg().path,
        "BETWEEN_X264": encoding.x264,
        "BETWEEN_CRF": f"{crf:g}",
    }
    dataset = footage.make_dataset(sources, "source", *options, name=encoding.key, environment=between)
    return Made(dataset, tuple(footage.make_exported(dataset)))


def of_equal_bytes(
    encoding: Encoding, sources: Sequence[Path], target_bytes: int, note: Callable[[str], object]
) -> tuple[Encoding, Made]:
    """The encoding at the quality level at which it takes as many bytes as `target_bytes`, by one percent."""
    made = {encoding.level: make(encoding, sources)}
    for _ in range(_MOST_TRIES):
        crf = crf_for_bytes({crf: each.bytes for crf, each in made.items()}, target_bytes)
        if crf in made:
            break
        made[crf] = make(replace(encoding, crf=crf), sources)
        if abs(made[crf].bytes / target_bytes - 1) < _EQUAL_BYTES:
            break
    best = min(made, key=lambda crf: abs(made[crf].bytes - target_bytes))
    off = made[best].bytes / target_bytes - 1
    if abs(off) >= _EQUAL_BYTES:
        note(f"6. {encoding}: at CRF {best:g} it has {off:+.1%} of the bytes, which is as near as it comes")
    return encoding if best == encoding.level else replace(encoding, crf=best), made[best]


def crf_for_bytes(points: Mapping[float, int], target_bytes: int) -> float:
    """The CRF, in tenths, at which an encoding takes so many bytes: the logarithm of the bytes falls about evenly.

    `points` has the bytes at one CRF or more. x264 takes about 12 % fewer bytes for each whole step.
    """
    nearest = sorted(points, key=lambda crf: abs(math.log(points[crf] / target_bytes)))[:2]
    slope = -0.12
    if len(nearest) == 2:
        first, second = nearest
        found = math.log(points[first] / points[second]) / (first - second)
        slope = found if found < 0 else slope
    crf = nearest[0] + math.log(target_bytes / points[nearest[0]]) / slope
    return round(min(max(crf, 0.0), _HIGHEST_CRF), 1)


def quality(made: Made, sources: Sequence[Path]) -> Quality:
    """Against the sources, frame by frame; kept in a file beside the videos."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(partial(_quality_of, model=has_vmaf()), made.paths, sources))
    return Quality(*(sum(values) / len(found) for values in zip(*found, strict=True)))


def has_vmaf() -> bool:
    """Whether the ffmpeg that prep would use has libvmaf; imageio-ffmpeg's has."""
    return "libvmaf" in footage.ffmpeg_output("-v", "error", "-filters")


def _quality_of(path: Path, source: Path, *, model: bool) -> tuple[float, float]:
    kept = path.with_suffix(".quality.json")
    if kept.exists():
        psnr, vmaf = json.loads(kept.read_text())
        return psnr, vmaf
    graph = "[0:v]split[a][b];[1:v]split[c][d];[a][c]psnr[p];[b][d]libvmaf[v]" if model else "[0:v][1:v]psnr[p]"
    maps = ("-map", "[p]", *(("-map", "[v]") if model else ()))
    said = footage.ffmpeg("-i", str(path), "-i", str(source), "-lavfi", graph, *maps, "-f", "null", "-")
    psnr_match, vmaf_match = re.search(r"PSNR y:([\d.]+|inf)", said), re.search(r"VMAF score: ([\d.]+)", said)
    if psnr_match is None or (model and vmaf_match is None):
        sys.exit(f"bench: ffmpeg reports no quality for {path}")
    values = (float(psnr_match[1]), float(vmaf_match[1]) if vmaf_match else math.nan)
    kept.write_text(json.dumps(values))
    return values
