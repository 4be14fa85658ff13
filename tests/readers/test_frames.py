"""A frame is what it says it is: the number burnt into its pixels is that of the source frame its timeline names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import broken
import shortgop
from dataset_paths import shard_path
from datasets import current_manifest, make_dataset
from shortgop.prep.profile import Size, parse_fps
from shortgop.prep.running.ffmpeg import find_ffmpeg, running
from sweep import sample
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number, variable_rate_pts

FINE = Fraction(1, 90000)


def assert_frames_are_true(source: SyntheticVideo, dataset: Path) -> shortgop.Video:
    """Read every frame and compare its number with the frame of the source that has the pts the timeline says."""
    video = shortgop.open(dataset)[0]
    pts = video.source_pts(range(len(video))).tolist()
    numbers = [read_number(frame) - source.first_number for frame in video]
    assert [source.pts[number] * source.timebase for number in numbers] == [p * video.source_timebase for p in pts]
    return video


def prepare(source: SyntheticVideo, tmp_path: Path, **options: Any) -> shortgop.Video:
    report = make_dataset([source.path], tmp_path / "dataset", **options)
    assert report.failures == ()
    return assert_frames_are_true(source, tmp_path / "dataset")


RATES = [Fraction(24000, 1001), Fraction(25), Fraction(30000, 1001), Fraction(60)]
TO_RATES = ["source", "10", "24000/1001", "25", "30000/1001", "60"]
# Each rate to half of the others, and each to its own.
PAIRS = [(rate, fps) for i, rate in enumerate(RATES) for j, fps in enumerate(TO_RATES) if j == 0 or (i + j) % 2]


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("rate", "fps"),
    sample(PAIRS, more=[pair for pair in itertools.product(RATES, TO_RATES) if pair not in PAIRS]),
    ids=str,
)
def test_constant_rates(rate: Fraction, fps: str, tmp_path: Path) -> None:
    source = make_video(tmp_path / "x.mp4", pts=constant_rate_pts(rate, 45), timebase=1 / rate, b_frames=3)
    video = prepare(source, tmp_path, fps=parse_fps(fps))
    assert video.metadata.fps == (parse_fps(fps) or rate)
    assert len(video) == max(1, round(45 / rate * video.metadata.fps))


@pytest.mark.parametrize("suffix", ["mkv", "ts", "webm", "avi"])
def test_other_containers(suffix: str, tmp_path: Path) -> None:
    rate = Fraction(30000, 1001)
    codec, b_frames = {"webm": ("libvpx-vp9", 0), "avi": ("mpeg4", 2)}.get(suffix, ("libx264", 2))
    pts = constant_rate_pts(rate, 45)
    video = prepare(
        make_video(tmp_path / f"x.{suffix}", pts=pts, timebase=1 / rate, codec=codec, b_frames=b_frames), tmp_path
    )
    assert video.metadata.fps == rate
    assert [read_number(frame) for frame in video] == list(range(45))


@pytest.mark.first_case_short
@pytest.mark.parametrize("fps", ["source", "10", "30", "60"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_variable_rates(seed: int, fps: str, tmp_path: Path) -> None:
    source = make_video(tmp_path / "x.mp4", pts=variable_rate_pts(seed, 60, FINE), timebase=FINE)
    prepare(source, tmp_path, fps=parse_fps(fps))


@pytest.mark.parametrize("fps", ["source", "25"])
def test_a_picture_that_starts_late_while_the_sound_does_not(
    fps: str, late_video: SyntheticVideo, tmp_path: Path
) -> None:
    video = prepare(late_video, tmp_path, fps=parse_fps(fps))
    assert video[0].shape == (3, late_video.height, late_video.width)
    assert video.source_seconds([0]).tolist() == [float(late_video.pts[0] * late_video.timebase)]
    assert late_video.pts[0] * late_video.timebase > 3


def test_h264_in_avi_whose_packets_do_not_say_when_they_are_shown(tmp_path: Path) -> None:
    source = make_video(tmp_path / "x.avi", pts=constant_rate_pts(Fraction(30), 40), timebase=Fraction(1, 30))
    assert make_dataset([source.path], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert [read_number(frame) for frame in video] == list(range(40))


def test_a_video_trimmed_by_an_edit_list_starts_where_players_start_it(
    constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    trimmed = broken.trimmed_by_edit_list(constant_video.path, tmp_path / "trimmed.mp4", start_s=1.1)
    assert make_dataset([trimmed], tmp_path / "dataset").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]] == list(range(33, 100))


@pytest.mark.parametrize("rotation", [90, 180, 270])
@pytest.mark.parametrize("size", [Size(), Size(short_side=64)], ids=str)
def test_rotation_is_applied(rotation: Any, size: Size, tmp_path: Path) -> None:
    pts = constant_rate_pts(Fraction(30), 20)
    source = make_video(tmp_path / "x.mp4", pts=pts, timebase=Fraction(1, 30), size=(64, 96), rotation=rotation)
    video = prepare(source, tmp_path, size=size)
    assert (video.metadata.width, video.metadata.height) == (64, 96)


@pytest.mark.parametrize(
    ("source", "size", "expected"),
    [
        ({"size": (97, 65), "pix_fmt": "yuv444p"}, Size(), (96, 64)),
        ({"size": (96, 64), "sample_aspect_ratio": Fraction(4, 3)}, Size(), (128, 64)),
        ({"size": (192, 128)}, Size(short_side=64), (96, 64)),
        ({"size": (96, 64)}, Size(exact=(60, 60)), (60, 40)),
        ({"size": (96, 64), "pix_fmt": "yuv420p10le"}, Size(), (96, 64)),
        ({"size": (96, 64), "codec": "libx265"}, Size(), (96, 64)),
    ],
)
def test_sizes_pixels_and_depths(source: dict[str, Any], size: Size, expected: tuple[int, int], tmp_path: Path) -> None:
    pts = constant_rate_pts(Fraction(30), 20)
    video = prepare(make_video(tmp_path / "x.mkv", pts=pts, timebase=Fraction(1, 30), **source), tmp_path, size=size)
    assert (video.metadata.width, video.metadata.height) == expected


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    "options",
    [
        {"gop_frames": 1, "b_frames": 0},
        {"gop_frames": 7, "b_frames": 0},
        {"gop_frames": 250},
        {"gop_frames": 8, "b_frames": 5, "segment_seconds": Fraction(1)},
        {"codec": "hevc"},
        {"codec": "hevc", "gop_frames": 7, "b_frames": 5, "segment_seconds": Fraction(1)},
        {"codec": "av1", "segment_seconds": Fraction(1)},
        {"codec": "av1", "gop_frames": 7, "b_frames": 0, "fastdecode": False},
        {"codec": "av1", "gop_frames": 1},
    ],
    ids=str,
)
def test_every_kind_of_gop(options: dict[str, Any], constant_video: SyntheticVideo, tmp_path: Path) -> None:
    video = prepare(constant_video, tmp_path, **options)
    assert len(video) == 100


def test_a_single_frame(tmp_path: Path) -> None:
    assert len(prepare(make_video(tmp_path / "x.mp4", pts=[0], timebase=Fraction(1, 30)), tmp_path)) == 1


def test_segments_and_shards_are_cut_where_they_should_be(tmp_path: Path) -> None:
    source = make_video(
        tmp_path / "x.mp4", pts=constant_rate_pts(Fraction(30), 300), timebase=Fraction(1, 30), size=(320, 256),
        options={"qp": "1", "preset": "ultrafast"},
    )  # fmt: skip
    options = {"segment_seconds": Fraction(1), "shard_bytes": 1_000_000, "crf": 1, "preset": "ultrafast"}
    prepare(source, tmp_path, **options)
    manifest = current_manifest(tmp_path / "dataset")
    # 30 frames a second in GOPs of 16 make segments of two GOPs.
    assert len(manifest.segments) == 10
    lengths = manifest.shards.length.tolist()
    assert len(lengths) > 1
    assert all(length >= 1_000_000 for length in lengths[:-1])


def ffmpeg_says(arguments: Sequence[str]) -> str:
    with running(find_ffmpeg().path, ["-v", "warning", *arguments], "<none>") as run:
        run.stdout.read()
    assert run.returncode == 0
    return run.stderr


def test_each_segment_and_each_gop_is_a_video_of_its_own(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """Init + any one fragment, and any segment cut out of its shard: ffmpeg plays them without a warning."""
    dataset = tmp_path / "dataset"
    prepare(constant_video, tmp_path, segment_seconds=Fraction(1))
    manifest = current_manifest(dataset)
    data = shard_path(dataset, manifest.shards.name.text(0)).read_bytes()
    starts = [*manifest.segments.offset.tolist(), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(starts)]
    for gop in range(len(manifest.gops)):
        segment = gop // int(manifest.videos.segment_gops[0])
        init = data[starts[segment] : starts[segment] + int(manifest.segments.init_length[segment])]
        offset = int(manifest.gops.offset[gop])
        pieces.append(init + data[offset : offset + int(manifest.gops.length[gop])])
    for number, piece in enumerate(pieces):
        file = tmp_path / f"{number}.mp4"
        file.write_bytes(piece)
        assert ffmpeg_says(["-i", str(file), "-f", "null", "-"]) == ""


def test_colours_are_tagged_as_in_the_source_and_the_range_is_limited(tmp_path: Path) -> None:
    source = make_video(
        tmp_path / "x.mp4", pts=constant_rate_pts(Fraction(30), 5), timebase=Fraction(1, 30),
        colorspace=1, color_primaries=1, color_trc=1, color_range=2,
    )  # fmt: skip
    prepare(source, tmp_path)
    manifest = current_manifest(tmp_path / "dataset")
    config = manifest.config(0)
    assert (config.primaries, config.transfer, config.matrix, config.full_range) == (1, 1, 1, False)
