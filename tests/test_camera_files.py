"""Files as cameras, recorders and phones write them."""

from __future__ import annotations

import re
import subprocess
from fractions import Fraction
from pathlib import Path

import av
import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.cli.job_reports import print_report
from shortgop.cli.printing import PlainConsole
from shortgop.jobs.outcome import Report
from shortgop.manifests.lacking import GUESSED_RATE
from shortgop.manifests.mp4 import boxes
from synthetic import read_number

FRAMES = 30
PLAIN_HEVC = ("-c:v", "libx265", "-x265-params", "log-level=error:keyint=10:bframes=0:repeat-headers=1:info=0")


def report_of(source: Path) -> Report:
    return make_dataset([source], source.parent / f"{source.name} dataset")


def video_of(source: Path) -> shortgop.Video:
    assert report_of(source).failures == ()
    return shortgop.open(source.parent / f"{source.name} dataset")[0]


def shown(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video]


def said_of(report: Report) -> str:
    console = PlainConsole(width=1000)
    with console.capture() as said:
        print_report(report, "dataset", console, console)
    return said.get()


def test_a_raw_stream_without_a_rate_is_told(tmp_path: Path) -> None:
    """Many cameras write raw H.264 that does not say how fast it is. FFmpeg takes all such streams for 25 frames/s."""
    source = encode_pictures(tmp_path / "x.h264", numbered(range(FRAMES)), "-c:v", "libopenh264", "-b:v", "1M", rate=15)
    report = report_of(source)
    assert report.guessed_rates == ("x.h264",)
    assert "may be too slow or too fast" in said_of(report)
    assert "`ffmpeg -r RATE -i FILE -c copy OUT.mp4`" in said_of(report)
    video = video_of(source)
    assert shown(video) == list(range(FRAMES))
    assert video.changes.given_up == (GUESSED_RATE,)
    ffmpeg("-r", "15", "-i", source, "-c", "copy", tmp_path / "OUT.mp4")
    right = video_of(tmp_path / "OUT.mp4")
    assert right.metadata.fps == 15
    assert shown(right) == list(range(FRAMES))
    assert right.changes.given_up == ()


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("name", "coded", "is_told"),
    [
        ("x.h264", X264, False),
        ("x.hevc", PLAIN_HEVC, False),
        ("x.m2v", ("-c:v", "mpeg2video"), False),
        ("x.mjpeg", ("-c:v", "mjpeg", "-q:v", "2"), True),
        ("x.obu", ("-c:v", "libaom-av1", "-cpu-used", "8"), True),
        ("x.ivf", ("-c:v", "libaom-av1", "-cpu-used", "8"), False),
    ],
)
def test_raw_streams_with_a_rate_are_not_told(name: str, coded: tuple[str, ...], is_told: bool, tmp_path: Path) -> None:
    source = encode_pictures(tmp_path / name, numbered(range(FRAMES)), *coded, "-pix_fmt", "yuv420p", rate=30)
    video = video_of(source)
    assert shown(video) == list(range(FRAMES))
    assert (GUESSED_RATE in video.changes.given_up) == is_told
    assert video.metadata.fps == (25 if is_told else 30)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_parameter_sets_in_samples_of_their_own_are_no_frames(codec: str, suffix: str, tmp_path: Path) -> None:
    """Recorders of cameras write what they receive, and parameter sets come in packets of their own."""
    coded = (*X264, "-g", "10") if codec == "h264" else PLAIN_HEVC
    stream = encode_pictures(tmp_path / "x.ts", numbered(range(FRAMES)), *coded, "-pix_fmt", "yuv420p")
    source = tmp_path / f"x.{suffix}"
    with av.open(stream) as container, av.open(source, "w") as out:
        copy = out.add_stream_from_template(container.streams.video[0])
        for number, packet in enumerate(packet for packet in container.demux(video=0) if packet.size):
            data = bytes(packet)
            picture = re.search(
                rb"\x00\x00\x00?\x01" + (rb"[\x65\x41]" if codec == "h264" else rb"[\x00\x02\x26\x28\x2a]"), data
            )
            assert picture is not None
            has_sets = (b"\0\0\1\x67" if codec == "h264" else b"\0\0\1\x42") in data
            parts = [data[: picture.start()], data[picture.start() :]] if has_sets else [data]
            for part in parts:
                sample = av.Packet(part)
                sample.stream, sample.time_base, sample.is_keyframe = copy, Fraction(1, 90000), packet.is_keyframe
                sample.pts = sample.dts = 3000 * number + (len(parts) > 1 and part is parts[1])
                out.mux(sample)
    video = video_of(source)
    assert shown(video) == list(range(FRAMES))
    assert video.changes.dropped == 0


def reason_against(source: Path) -> str:
    (failure,) = report_of(source).failures
    return failure.reason


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", ["MVIMG_1.jpg", "PXL_1.MP.jpg", "x.heic"])
def test_a_motion_photo_is_called_that_with_the_command_that_cuts_the_video_out(name: str, tmp_path: Path) -> None:
    """Phones write the picture first and a video of its own behind it."""
    suffix = "avif" if name.endswith("heic") else "jpg"
    coded = ("-c:v", "libaom-av1", "-still-picture", "1", "-cpu-used", "8") if suffix == "avif" else ("-q:v", "2")
    picture = encode_pictures(tmp_path / f"still.{suffix}", numbered([999]), *coded, "-frames:v", "1", "-update", "1")
    film = encode_pictures(tmp_path / "film.mp4", numbered(range(FRAMES)), *X264, "-pix_fmt", "yuv420p").read_bytes()
    behind = len(film).to_bytes(4) + b"mpvd" + film if suffix == "avif" else b"MotionPhoto_Data" + film + b"SEFT"
    source = tmp_path / name
    source.write_bytes(picture.read_bytes() + behind)
    reason = reason_against(source)
    assert "is a photo with a video behind it (a motion photo); give OUT.mp4 of `tail" in reason
    (command,) = re.findall("`(.*)`", reason)
    subprocess.run(command.replace("FILE", name), shell=True, check=True, cwd=tmp_path)
    assert shown(video_of(tmp_path / "OUT.mp4")) == list(range(FRAMES))
    assert "is a still picture" in reason_against(picture)


def test_a_recording_that_ends_within_its_index_is_called_that(tmp_path: Path) -> None:
    """Such as after a loss of power. Within its last tables FFmpeg found some of the frames, and said nothing."""
    picture = encode_pictures(tmp_path / "film.mp4", numbered(range(FRAMES)), *X264, "-pix_fmt", "yuv420p")
    sound = ("-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac")
    ffmpeg("-i", picture, *sound, "-c:v", "copy", tmp_path / "x.mp4")
    whole = (tmp_path / "x.mp4").read_bytes()
    moov = next(box for box in boxes(whole) if box.type == b"moov")
    _, film, tone, *_ = boxes(whole, moov.body, moov.stop)
    assert (film.type, tone.type) == (b"trak", b"trak")
    source = tmp_path / "cut.mp4"
    for length in (moov.body, moov.body + 40, film.start + 300, film.stop - 200, film.stop - 8, film.stop - 1):
        source.write_bytes(whole[:length])
        assert "its index is cut off (the MP4 ends within its moov box)" in reason_against(source), length
    for number, length in enumerate((film.stop, tone.start + 100, tone.stop)):
        source = tmp_path / f"whole{number}.mp4"
        source.write_bytes(whole[:length])
        assert shown(video_of(source)) == list(range(FRAMES))
