"""Formats other than the common ones: folders are searched for them, and every frame of them is there."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pytest
from av.video.stream import VideoStream
from PIL import Image, ImageCms

import shortgop
from datasets import make_dataset
from odd_pictures import ffmpeg
from shortgop.jobs.finding.video_names import VIDEO_SUFFIXES
from source_arguments import find_sources
from synthetic import burn, read_number

NUM_FRAMES = 20
RATE = Fraction(25)


class Kind(NamedTuple):
    """How to write a file of a format: FFmpeg's muxer and encoder, the pixel format and the size."""

    muxer: str
    codec: str
    pixels: str = "yuv420p"
    size: tuple[int, int] = (96, 64)


KINDS = {
    ".360": Kind("mp4", "libx265", size=(192, 128)),
    ".3gp2": Kind("3g2", "libx264"),
    ".apng": Kind("apng", "apng", "rgb24"),
    ".evo": Kind("vob", "mpeg2video"),
    ".gif": Kind("gif", "gif", "rgb8"),
    ".h261": Kind("h261", "h261", size=(176, 144)),
    ".h263": Kind("h263", "h263", size=(176, 144)),
    ".insv": Kind("mp4", "libx264"),
    ".ismv": Kind("ismv", "libx264"),
    ".m2p": Kind("mpeg", "mpeg2video"),
    ".m2t": Kind("mpegts", "libx264"),
    ".mj2": Kind("mov", "jpeg2000"),
    ".mjpeg": Kind("mjpeg", "mjpeg", "yuvj420p"),
    ".mjpg": Kind("mjpeg", "mjpeg", "yuvj420p"),
    ".mk3d": Kind("matroska", "libx264"),
    ".mpv": Kind("mpeg2video", "mpeg2video"),
    ".roq": Kind("roq", "roqvideo", "yuvj444p", (128, 128)),
    ".vro": Kind("vob", "mpeg2video"),
    ".wtv": Kind("wtv", "mpeg2video"),
}


def write(file: Path, kind: Kind) -> None:
    with av.open(file, "w", format=kind.muxer) as container:
        stream = container.add_stream(kind.codec, rate=RATE)
        assert isinstance(stream, VideoStream)
        (stream.width, stream.height), stream.pix_fmt = kind.size, kind.pixels
        stream.codec_context.gop_size = 12
        for number in range(NUM_FRAMES):
            frame = av.VideoFrame.from_ndarray(burn(number, *kind.size)).reformat(format=kind.pixels)
            frame.pts, frame.time_base = number, 1 / RATE
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", KINDS)
def test_a_folder_is_searched_for_this_format_and_every_frame_is_there(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write(folder / f"a{suffix}", KINDS[suffix])
    report = make_dataset([folder], tmp_path / "dataset")
    assert (report.videos_added, report.failures) == (1, ())
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video.get_all_frames().data] == list(range(NUM_FRAMES))


def test_a_voice_that_a_phone_recorded_as_3gpp_is_no_failure_of_its_folder(tmp_path: Path) -> None:
    """Every one was. A video of that name is prepared where it is named."""
    folder = tmp_path / "phone"
    folder.mkdir()
    write(folder / "a.mp4", Kind("mp4", "libx264"))
    with av.open(folder / "voice.3gpp", "w", format="3gp") as container:
        stream = container.add_stream("aac", rate=16000, layout="mono")
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        silence.sample_rate = 16000
        container.mux(stream.encode(silence))
        container.mux(stream.encode())
    report = make_dataset([folder], tmp_path / "dataset")
    assert (report.videos_added, report.failures) == (1, ())
    write(tmp_path / "b.3gpp", Kind("3gp", "mpeg4"))
    assert make_dataset([tmp_path / "b.3gpp"], tmp_path / "named").videos_added == 1


def pictures(count: int) -> list[Image.Image]:
    return [Image.fromarray(burn(number, 96, 64)) for number in range(count)]


def save(file: Path, images: list[Image.Image], **options: Any) -> None:
    images[0].save(file, save_all=len(images) > 1, append_images=images[1:], **options)


def test_a_gif_of_variable_delays_shows_each_picture_as_long_as_it_says(tmp_path: Path) -> None:
    delays_ms = [40, 100, 40, 250, 70, 40, 500, 40]
    save(tmp_path / "a.gif", pictures(len(delays_ms)), duration=delays_ms, loop=0)
    report = make_dataset([tmp_path / "a.gif"], tmp_path / "dataset")
    assert report.failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    shown = [read_number(frame) for frame in video.get_all_frames().data]
    assert sorted(set(shown)) == list(range(len(delays_ms)))
    # From its start to the start of the next picture, up to half a tick at either end.
    starts = np.cumsum([0, *delays_ms[:-1]]) / 1000
    tick = float(1 / Fraction(video.metadata.average_fps_from_header or 1).limit_denominator(1000))
    for number, start in enumerate(starts.tolist()):
        assert abs(shown.index(number) * tick - start) <= tick / 2 + 1e-9
    assert len(shown) * tick == pytest.approx(sum(delays_ms) / 1000, abs=tick)


@pytest.mark.parametrize("suffix", [".gif", ".apng", ".avif", ".webp"])
def test_one_picture_alone_is_no_video(suffix: str, tmp_path: Path) -> None:
    written = tmp_path / ("a.png" if suffix == ".apng" else f"a{suffix}")
    save(written, pictures(1))
    written.rename(tmp_path / f"a{suffix}")
    report = make_dataset([tmp_path / f"a{suffix}"], tmp_path / "dataset")
    assert "is a still picture, not a video; with --image-fps" in report.failures[0].reason


@pytest.mark.parametrize("suffix", [".avif", ".png"])
def test_an_animation_in_a_format_of_stills_is_prepared_where_it_is_named(suffix: str, tmp_path: Path) -> None:
    save(tmp_path / f"a{suffix}", pictures(5), duration=100)
    make_dataset([tmp_path / f"a{suffix}"], tmp_path / "dataset")
    (video,) = shortgop.open(tmp_path / "dataset")
    shown = [read_number(frame) for frame in video.get_all_frames().data]
    assert [number for number, _ in itertools.groupby(shown)] == list(range(5))


@pytest.mark.parametrize("kind", ["WebP", "JPEG XL"])
def test_an_animation_that_is_not_read_is_refused_with_the_command_that_converts_it(kind: str, tmp_path: Path) -> None:
    """Of JPEG XL it was said that FFmpeg does not know its codec."""
    delays_ms = [100, 200, 100, 100, 300]
    save(tmp_path / "a", pictures(5), format="WebP", duration=delays_ms, lossless=True)
    if kind == "JPEG XL":
        ffmpeg("-i", tmp_path / "a", "-c:v", "libjxl_anim", "-f", "image2pipe", tmp_path / "b")
        (tmp_path / "b").rename(tmp_path / "a")
    (failure,) = make_dataset([tmp_path / "a"], tmp_path / "dataset").failures
    assert f"is an animated {kind}" in failure.reason
    (command,) = re.findall("`ffmpeg (.*?)`", failure.reason)
    made = {"FILE": tmp_path / "a", "OUT.mkv": tmp_path / "OUT.mkv"}
    ffmpeg(*[made.get(word, word) for word in command.split()])
    assert make_dataset([tmp_path / "OUT.mkv"], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")["OUT.mkv"]
    assert [read_number(frame) for frame in video] == [0, 1, 1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize("kind", ["folder", "a.apng", "a.mov"])
def test_pictures_with_a_named_icc_profile_are_prepared(kind: str, tmp_path: Path) -> None:
    """PNGs of macOS and of photographs have one. The process died where PyAV freed its name a second time."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    (tmp_path / "folder").mkdir()
    for number, image in enumerate(pictures(5)):
        image.save(tmp_path / "folder" / f"{number}.png", icc_profile=profile)
    save(tmp_path / "a.apng", pictures(5), format="PNG", duration=100, icc_profile=profile)
    ffmpeg("-framerate", "10", "-i", tmp_path / "folder" / "%d.png", "-c", "copy", tmp_path / "a.mov")
    options = {"image_fps": 10} if kind == "folder" else {}
    job = f"import shortgop; shortgop.prepare({kind!r}, 'dataset', runner='inline', **{options})"
    subprocess.run([sys.executable, "-c", job], check=True, cwd=tmp_path)
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video] == list(range(5))


def test_folders_are_not_searched_for_formats_of_stills(tmp_path: Path) -> None:
    for name in ("a.webp", "b.avif", "c.png", "d.jpg", "e.heic", "f.wav", "g.mp3", "h.gif"):
        (tmp_path / name).touch()
    assert [source.id for source in find_sources([str(tmp_path)])] == ["h.gif"]


def test_suffixes_are_in_order_and_none_comes_twice() -> None:
    suffixes = VIDEO_SUFFIXES.split()
    assert suffixes == sorted(set(suffixes))
