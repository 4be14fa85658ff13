"""The page of a dataset shows the frames that its videos were made of, whatever the times of the sources' packets."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import imageio_ffmpeg
import pytest

import shortgop
from datasets import make_dataset
from shortgop.reporting.source_pictures import source_frames
from synthetic import constant_rate_pts, make_video, read_number

FRAMES = 60
OPEN_GOP = {"x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
# What encodes it, and the file that it is copied to.
SOURCES = [
    ("libx264", None, ".avi"), ("libx264", OPEN_GOP, ".avi"), ("mpeg2video", None, ".avi"), ("libx264", None, ".mxf"),
    ("libx264", None, ".ts"), ("mpeg2video", None, ".ts"), ("mpeg2video", None, ".mpg"), ("mpeg4", None, ".m4v"),
]  # fmt: skip


def copied(source: Path, target: Path, *before: str) -> Path:
    headers = ("-bsf:v", "h264_mp4toannexb") if source.suffix == ".mp4" and target.suffix != ".mp4" else ()
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *before, "-i", str(source), "-c", "copy", *headers]
    subprocess.run([*ffmpeg, str(target)], check=True)
    return target


def check(source: Path, dataset: Path) -> None:
    """Frames from the first to the last one are those of the dataset."""
    assert make_dataset([source], dataset).failures == ()
    (video,) = shortgop.open(dataset)
    frames = [0, 1, 2, 13, 25, len(video) - 2, len(video) - 1]
    stored = [read_number(video[frame]) for frame in frames]
    for some in (frames, frames[1:2], frames[3:5], frames[-2:]):
        found = source_frames(str(source), video.source_pts(some).tolist())
        assert [read_number(each.rgb) for each in found.pictures] == [stored[frames.index(frame)] for frame in some]


def whole(folder: Path, codec: str, options: dict[str, str] | None) -> Path:
    path = folder / ("whole.mp4" if codec == "libx264" else "whole.ts" if codec == "mpeg2video" else "whole.avi")
    pts = constant_rate_pts(Fraction(25), FRAMES)
    return make_video(
        path, pts=pts, timebase=Fraction(1, 25), codec=codec, gop=12, b_frames=2, options=options
    ).path  # fmt: skip


@pytest.mark.first_case_short
@pytest.mark.parametrize(("codec", "options", "suffix"), SOURCES)
def test_the_frames_that_a_video_was_made_of_are_shown(
    codec: str, options: dict[str, str] | None, suffix: str, tmp_path: Path
) -> None:
    source = copied(whole(tmp_path, codec, options), tmp_path / f"source{suffix}")
    check(source, tmp_path / "dataset")


def test_frames_of_a_cut_of_frames_with_the_times_of_decoding_are_shown(tmp_path: Path) -> None:
    avi = copied(whole(tmp_path, "libx264", None), tmp_path / "source.avi")
    check(copied(avi, tmp_path / "cut.mp4", "-ss", "0.5"), tmp_path / "dataset")


def test_frames_of_a_source_that_begins_in_mid_gop_are_shown(tmp_path: Path) -> None:
    """The decoder leaves out those that refer to frames before its start."""
    mp4, cut = whole(tmp_path, "libx264", OPEN_GOP), tmp_path / "cut.avi"
    filters = "noise=drop='lt(n,10)',h264_mp4toannexb,dump_extra"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(mp4), "-c", "copy"]
    subprocess.run([*ffmpeg, "-bsf:v", filters, str(cut)], check=True)
    check(cut, tmp_path / "dataset")
