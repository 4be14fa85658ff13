"""Sources whose pictures change in mid-stream: every tick shows the right frame, at the size of the first one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shortgop
from datasets import current_manifest, make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, joined_h264, numbered, remuxed, two_sample_entries
from shortgop.prep.profile import Size
from synthetic import read_number

SIZES = [(range(20), (96, 64), ()), (range(20, 40), (128, 96), ()), (range(40, 60), (64, 48), ())]
RESOLUTION = "resolution changes: scaled to the first frame's"
PIXELS = "pixels change: converted to the first frame's"


def prepare(source: Path, tmp_path: Path, **options: Any) -> tuple[shortgop.Video, tuple[str, ...]]:
    report = make_dataset([source], tmp_path / "dataset", **options)
    assert report.failures == ()
    return shortgop.open(tmp_path / "dataset")[0], current_manifest(tmp_path / "dataset").changes(0).given_up


def numbers(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video]


def in_container(stream: Path, suffix: str) -> Path:
    return stream if suffix == "h264" else remuxed(stream, stream.with_name(f"x.{suffix}"))


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["h264", "ts", "mkv", "mp4"])
def test_a_change_of_resolution_loses_no_frame_and_is_told(suffix: str, tmp_path: Path) -> None:
    video, given_up = prepare(in_container(joined_h264(tmp_path, SIZES), suffix), tmp_path, fps=30)
    assert (video.metadata.width, video.metadata.height) == (96, 64)
    assert numbers(video) == list(range(60))
    assert RESOLUTION in given_up


def test_an_mp4_of_two_sample_entries_loses_no_frame(tmp_path: Path) -> None:
    gop = ("-pix_fmt", "yuv420p", "-g", "10", "-sc_threshold", "0")
    parts = []
    for folder, part in (("one", (range(20), (96, 64), gop)), ("two", (range(20, 40), (128, 96), gop))):
        (tmp_path / folder).mkdir()
        parts.append(joined_h264(tmp_path / folder, [part]))
    video, given_up = prepare(two_sample_entries(parts[0], parts[1], tmp_path / "x.mp4"), tmp_path)
    assert numbers(video) == list(range(40))
    assert RESOLUTION in given_up


CODECS = {
    "HEVC": ("ts", ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error:pools=none:crf=15")),
    "Motion JPEG": ("mkv", ("-c:v", "mjpeg", "-q:v", "2", "-pix_fmt", "yuvj420p")),
    "VP9": ("webm", ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-crf", "20")),
    "AV1": ("mkv", ("-c:v", "libsvtav1", "-preset", "8", "-crf", "15", "-svtav1-params", "lp=1")),
}


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", CODECS)
def test_other_codecs_may_change_their_resolution_as_well(codec: str, tmp_path: Path) -> None:
    suffix, options = CODECS[codec]
    names = []
    for index, (shown, size) in enumerate([(range(20), (96, 64)), (range(20, 40), (128, 96))]):
        file = tmp_path / f"part{index}.{suffix}"
        pixels = () if "-pix_fmt" in options else ("-pix_fmt", "yuv420p")
        encode_pictures(file, numbered(shown, size), *options, *pixels)
        names.append(f"file {file}\n")
    (tmp_path / "list").write_text("".join(names))
    ffmpeg("-f", "concat", "-safe", "0", "-i", tmp_path / "list", "-c", "copy", tmp_path / f"x.{suffix}")
    video, given_up = prepare(tmp_path / f"x.{suffix}", tmp_path)
    assert (video.metadata.width, video.metadata.height) == (96, 64)
    assert numbers(video) == list(range(40))
    assert RESOLUTION in given_up


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": Size(short_side=48)}, (72, 48)),
        ({"size": Size(exact=(80, 80)), "fit": "pad"}, (80, 80)),
        ({"size": Size(exact=(64, 64)), "fit": "crop"}, (64, 64)),
    ],
    ids=str,
)
def test_the_size_is_planned_from_the_first_frame(
    options: dict[str, Any], expected: tuple[int, int], tmp_path: Path
) -> None:
    video, _ = prepare(joined_h264(tmp_path, SIZES), tmp_path, **options)
    assert (video.metadata.width, video.metadata.height) == expected
    assert len(video) == 60
    if options.get("fit") is None:
        assert numbers(video) == list(range(60))


def part(numbers: range, *options: str) -> tuple[range, tuple[int, int], Sequence[str]]:
    return numbers, (96, 64), options


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    "second",
    [("-pix_fmt", "yuv444p"), ("-pix_fmt", "yuv420p10le"), ("-pix_fmt", "yuv422p"), ("-pix_fmt", "gray")],
    ids=lambda options: options[1],
)
def test_a_change_of_pixel_format_loses_no_frame_and_is_told(second: tuple[str, ...], tmp_path: Path) -> None:
    stream = joined_h264(tmp_path, [part(range(20)), part(range(20, 40), *second), part(range(40, 60))])
    video, given_up = prepare(stream, tmp_path)
    assert numbers(video) == list(range(60))
    assert PIXELS in given_up


CHANGES = {
    "range": ("-vf", "scale=out_range=pc,setparams=range=pc", "-pix_fmt", "yuv420p", "-color_range", "pc"),
    "matrix": ("-vf", "scale=out_color_matrix=bt709,setparams=colorspace=1", "-pix_fmt", "yuv420p"),
    "aspect": ("-vf", "setsar=4/3", "-pix_fmt", "yuv420p"),
    "fields": ("-vf", "setfield=tff", "-pix_fmt", "yuv420p", "-x264-params", "tff=1"),
}


@pytest.mark.first_case_short
@pytest.mark.parametrize("change", CHANGES)
def test_other_changes_of_the_picture_lose_no_frame(change: str, tmp_path: Path) -> None:
    stream = joined_h264(tmp_path, [part(range(20)), part(range(20, 40), *CHANGES[change]), part(range(40, 60))])
    video, _ = prepare(stream, tmp_path)
    assert (video.metadata.width, video.metadata.height) == (96, 64)
    assert numbers(video) == list(range(60))


def test_colours_stay_what_they_were_when_matrix_and_range_change(tmp_path: Path) -> None:
    """The same picture is encoded in three ways; what is read back must not tell them apart."""
    colour = np.full((64, 96, 3), (192, 64, 32), np.uint8)
    stream = tmp_path / "x.h264"
    for matrix, pixels in (("bt601", "tv"), ("bt709", "tv"), ("bt601", "pc")):
        filters = f"scale=out_color_matrix={matrix}:out_range={pixels},setparams=colorspace={matrix}:range={pixels}"
        filters = filters.replace("colorspace=bt601", "colorspace=smpte170m")
        way = (*X264, "-vf", filters, "-pix_fmt", "yuv420p")
        data = encode_pictures(tmp_path / "part.h264", [colour] * 3, *way).read_bytes()
        stream.write_bytes((stream.read_bytes() if stream.exists() else b"") + data)
    video, given_up = prepare(stream, tmp_path, crf=5)
    assert len(video) == 9
    for frame in video:
        assert np.abs(frame.numpy().mean(axis=(1, 2)) - (192, 64, 32)).max() < 4
    assert PIXELS in given_up


def test_a_source_that_does_not_change_is_not_said_to(tmp_path: Path) -> None:
    _, given_up = prepare(joined_h264(tmp_path, [part(range(20))]), tmp_path)
    assert given_up == ()


def test_a_rotated_source_that_changes_its_resolution_stays_upright(tmp_path: Path) -> None:
    sideways = [(range(20), (64, 96), ("-vf", "transpose=clock", "-pix_fmt", "yuv420p"))]
    sideways.append((range(20, 40), (48, 64), ("-vf", "transpose=clock", "-pix_fmt", "yuv420p")))
    plain = remuxed(joined_h264(tmp_path, sideways), tmp_path / "plain.mp4")
    ffmpeg("-display_rotation", "90", "-i", plain, "-c", "copy", tmp_path / "x.mp4")
    video, given_up = prepare(tmp_path / "x.mp4", tmp_path)
    assert (video.metadata.width, video.metadata.height) == (64, 96)
    assert numbers(video) == list(range(40))
    assert RESOLUTION in given_up
