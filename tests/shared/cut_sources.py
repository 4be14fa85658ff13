"""Sources for tests that cut stretches, and the lists that say where."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import shortgop
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import DEFAULT_POLICY, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number

RATE = Fraction(30)
KHZ = Fraction(1, 90000)
TIMEBASES = {".mkv": Fraction(1, 1000), ".webm": Fraction(1, 1000), ".flv": Fraction(1, 1000), ".ts": KHZ}
CUTS = Importing(cuts=("start", "end"))
OPEN_GOP = {"x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
OPEN_GOP_HEVC = {"x265-params": "log-level=error:open-gop=1:b-adapt=0:scenecut=0:pools=none:frame-threads=1"}
SOURCES: dict[str, dict[str, Any]] = {
    "long.mp4": {},
    "short.mp4": {"gop": 20, "b_frames": 3},
    "open.mp4": {"gop": 20, "b_frames": 3, "options": OPEN_GOP},
    "late.mkv": {"gop": 20},
    "open.mkv": {"gop": 20, "b_frames": 3, "codec": "libx265", "options": OPEN_GOP_HEVC},
    "vp9.webm": {"gop": 20, "codec": "libvpx-vp9", "b_frames": 0},
    "stream.ts": {"gop": 20},
    "mpeg4.avi": {"gop": 20, "codec": "mpeg4", "b_frames": 0},
    "h264.avi": {"gop": 20, "b_frames": 2},
    "sound.mp4": {"gop": 20, "audio_start": Fraction(0)},
    "sound.mkv": {"gop": 20, "audio_start": Fraction(1)},
    "fragments.mp4": {"gop": 20, "container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "flash.flv": {"gop": 20},
}


def write_list(folder: Path, *lines: str, header: str = "path,start,end") -> Path:
    path = folder / "list.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def cut(
    sources: Path,
    out: Path,
    profile: Profile | None = None,
    policy: SourcePolicy = DEFAULT_POLICY,
    importing: Importing = CUTS,
) -> Report:
    return prepare(
        [str(sources)],
        DiskStorage(out),
        profile or Profile(),
        where=Where("inline"),
        policy=policy,
        importing=importing,
    )


def numbers(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video]


def make(path: Path, **options: Any) -> SyntheticVideo:
    """300 frames at 30 a second, from 2 s on where the container can begin there."""
    timebase = TIMEBASES.get(path.suffix, 1 / RATE)
    pts = constant_rate_pts(RATE, 300, timebase, start=0 if path.suffix == ".avi" else round(2 / timebase))
    return make_video(path, pts=pts, timebase=timebase, **options)
