"""B-frames in containers that only say when packets are decoded: frames have these times, in the order shown."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import av
import imageio_ffmpeg
import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import h264_packets, timed
from shortgop.prep.probing.probe import probe
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
_FRAMES = 100
# Copies of AVI, whose packets have no other times, and MXF as FFmpeg writes it.
COPIES = [("mpeg4", ".mp4"), ("libx264", ".mp4"), ("libx264", ".mov"), ("libx264", ".mxf")]


def copied(codec: str, suffix: str, folder: Path) -> Path:
    avi, copy = folder / "v.avi", folder / f"v{suffix}"
    video = make_video(
        folder / ("v.avi" if codec == "mpeg4" else "v.mkv"),
        pts=constant_rate_pts(RATE, _FRAMES, 1 / RATE), timebase=1 / RATE, codec=codec, gop=24, b_frames=2,
    )  # fmt: skip
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet"]
    headers = ["-bsf:v", "h264_mp4toannexb"] if codec == "libx264" else []
    if codec == "libx264":
        # With the rate, as Matroska's milliseconds would make AVI have empty chunks.
        subprocess.run([*ffmpeg, "-r", "25", "-i", video.path, "-c", "copy", *headers, avi], check=True)
    subprocess.run([*ffmpeg, "-i", avi, "-c", "copy", *(headers if suffix == ".mxf" else []), copy], check=True)
    with av.open(copy) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        assert all(packet.pts == packet.dts for packet in packets)
    return copy


@pytest.mark.first_case_short
@pytest.mark.parametrize(("codec", "suffix"), COPIES)
def test_all_frames_are_there_and_stretches_begin_where_they_should(codec: str, suffix: str, tmp_path: Path) -> None:
    source = copied(codec, suffix, tmp_path)
    assert probe(str(source)).has_decode_times
    assert make_dataset([source], tmp_path / "whole").failures == ()
    (video,) = shortgop.open(tmp_path / "whole")
    assert [read_number(frame) for frame in video] == list(range(_FRAMES))
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)

    (tmp_path / "list.csv").write_text(
        "\n".join(["id,path,start,end", *(f"{start},{source.name},{start},{start + 1}" for start in (0, 1, 3)), ""])
    )
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    dataset = shortgop.open(tmp_path / "cuts")
    for start in (0, 1, 3):
        first = start * 25
        assert [read_number(frame) for frame in dataset[str(start)]] == list(range(first, first + 25))


def test_without_b_frames_each_packet_has_the_time_of_its_frame(tmp_path: Path) -> None:
    pts = constant_rate_pts(RATE, 20, 1 / RATE)
    video = make_video(tmp_path / "v.mp4", pts=pts, timebase=1 / RATE, gop=10, b_frames=0)
    assert not probe(str(video.path)).has_decode_times
    assert probe(str(video.path)).entries.tolist() != []


@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize("suffix", ["mkv", "mp4", "ts"])
def test_times_that_are_later_than_those_of_decoding_by_the_same_in_all_packets(
    suffix: str, late: int, tmp_path: Path
) -> None:
    """In Matroska, FFmpeg makes up the times of decoding. Where one frame was looked at, the source was refused."""
    packets = enumerate(h264_packets(tmp_path / "v.ts", range(40), "-bf", "2", "-b_strategy", "0"))
    times = [(place + late, place, data) for place, (_, data) in packets]
    source = timed(tmp_path / "v.ts", tmp_path / f"x.{suffix}", times)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]] == list(range(40))
