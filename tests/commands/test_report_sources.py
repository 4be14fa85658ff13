"""The page of a dataset shows the frames that its videos were made of, whatever the times of the sources' packets."""

from __future__ import annotations

import os
import subprocess
from fractions import Fraction
from pathlib import Path

import av
import imageio_ffmpeg
import pytest

import shortgop
from datasets import make_dataset
from shortgop.errors import SourceError
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


@pytest.mark.parametrize("suffix", [".mkv", ".avi"])
def test_frames_of_h264_that_begins_at_an_i_picture_without_a_mark_are_shown(suffix: str, tmp_path: Path) -> None:
    """FFmpeg takes them for corrupt."""
    options = {"x264-params": "open-gop=1:b-adapt=0:scenecut=0:ref=3"}
    mp4, cut = whole(tmp_path, "libx264", options), tmp_path / f"cut{suffix}"
    with av.open(mp4) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    keyframe = [number for number, packet in enumerate(packets) if packet.is_keyframe][1]
    headers = ",h264_mp4toannexb,dump_extra" if suffix == ".avi" else ""
    filters = f"noise=drop='lt(n,{keyframe})',filter_units=remove_types=6{headers}"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-copyts", "-i", str(mp4), "-c", "copy"]
    subprocess.run([*ffmpeg, "-bsf:v", filters, str(cut)], check=True)
    check(cut, tmp_path / "dataset")


def test_of_a_source_that_is_counted_the_first_800_frames_are_shown(tmp_path: Path) -> None:
    pts = constant_rate_pts(Fraction(25), 900)
    mp4 = make_video(tmp_path / "whole.mp4", pts=pts, timebase=Fraction(1, 25), gop=100, b_frames=2).path
    source = copied(mp4, tmp_path / "source.avi")
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    times = shortgop.open(tmp_path / "dataset")[0].source_pts([790, 850]).tolist()
    (picture,) = source_frames(str(source), times[:1]).pictures
    assert read_number(picture.rgb) == 790
    with pytest.raises(SourceError, match="this page shows the first 800"):
        source_frames(str(source), times)


def num_read() -> int:
    """How many bytes this process has read."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_only_a_part_is_read_of_a_source_whose_packets_state_when_frames_are_shown(suffix: str, tmp_path: Path) -> None:
    clip, source = tmp_path / "clip.mp4", tmp_path / f"source{suffix}"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error"]
    noise = ("-f", "lavfi", "-i", "nullsrc=s=640x352:d=1,geq=random(1)*255:128:128")
    encoder = ("-c:v", "libx264", "-preset", "ultrafast", "-qp", "4", "-bf", "2", "-b_strategy", "0", "-g", "10")
    subprocess.run([*ffmpeg, *noise, *encoder, "-pix_fmt", "yuv420p", str(clip)], check=True)
    headers = ("-bsf:v", "h264_mp4toannexb") if suffix == ".ts" else ()
    subprocess.run([*ffmpeg, "-stream_loop", "12", "-i", str(clip), "-c", "copy", *headers, str(source)], check=True)
    with av.open(source) as container:
        wanted = next(frame.pts for frame in container.decode(video=0))
    assert wanted is not None
    before = num_read()
    assert len(source_frames(str(source), [wanted]).pictures) == 1
    assert num_read() - before < source.stat().st_size / 2


def test_a_source_that_would_be_read_as_a_whole_must_not_be_too_large(tmp_path: Path) -> None:
    source = copied(whole(tmp_path, "libx264", None), tmp_path / "source.avi")
    os.truncate(source, 4_100_000_000)
    with pytest.raises(SourceError, match="too large to be read as a whole"):
        source_frames(str(source), [0])
