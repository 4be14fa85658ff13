"""The synthetic sources are what they claim to be: every other test builds on that."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from av.packet import Packet
from av.video.frame import PictureType
from av.video.stream import VideoStream
from hypothesis import given
from hypothesis import strategies as st

import broken
import synthetic
from synthetic import SyntheticVideo, burn, constant_rate_pts, make_video, read_number, variable_rate_pts

THIRTIETH = Fraction(1, 30)
numbers_16_bit = st.integers(0, 2**16 - 1)


def number_or_none(picture: synthetic.Picture) -> int | None:
    try:
        return read_number(picture)
    except AssertionError:
        return None


def numbers_in(pictures: list[synthetic.Picture]) -> list[int]:
    return [read_number(picture) for picture in pictures]


def packets_of(path: Path) -> "list[Packet[VideoStream]]":
    with av.open(path) as container:
        return [packet for packet in container.demux(container.streams.video[0]) if packet.size]


# Reading and refusing


@given(numbers_16_bit, st.integers(64, 200), st.integers(64, 200))
def test_every_number_reads_back_in_every_size(number: int, width: int, height: int) -> None:
    assert read_number(burn(number, width, height)) == number


@pytest.mark.parametrize("layout", ["HWC", "CHW", "HW"])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32, torch.uint8, torch.float32])
def test_all_kinds_of_pictures_are_read(layout: str, kind: Any) -> None:
    picture: Any = burn(4711, 96, 64)
    picture = {"HWC": picture, "CHW": picture.transpose(2, 0, 1), "HW": picture[:, :, 0]}[layout]
    if kind in {np.float32, torch.float32}:
        picture = picture.astype(np.float32) / 255
    if kind is np.uint16:
        picture = picture.astype(np.uint16) * 257
    if kind in {torch.uint8, torch.float32}:
        picture = torch.from_numpy(picture.copy())
    assert read_number(picture) == 4711


@given(numbers_16_bit, st.sampled_from([(16, 219), (0, 255), (-16, 292), (40, 150)]))
def test_levels_do_not_matter(number: int, black_and_scale: tuple[int, int]) -> None:
    black, scale = black_and_scale
    levels = black + burn(number, 96, 64).astype(np.float64) * scale / 255
    assert read_number(levels.clip(0, 255).astype(np.uint8)) == number


@given(numbers_16_bit, numbers_16_bit, st.floats(0, 1))
def test_a_blend_is_never_a_third_number(a: int, b: int, weight: float) -> None:
    blend = burn(a, 96, 64) * (1 - weight) + burn(b, 96, 64) * weight
    found = number_or_none(blend.astype(np.uint8))
    assert found in ({None} if a != b and 0.3 < weight < 0.7 else {a, b, None})


@given(numbers_16_bit, st.integers(1, 200), st.integers(0, 63), st.integers(0, 95))
def test_a_torn_picture_is_never_a_third_number(number: int, distance: int, row: int, column: int) -> None:
    other = (number + distance) % 2**16
    torn, below = burn(number, 96, 64), burn(other, 96, 64)
    torn[row, column:] = below[row, column:]
    torn[row + 1 :] = below[row + 1 :]
    assert number_or_none(torn) in {number, other, None}


@given(numbers_16_bit, st.integers(1, 3), st.booleans())
def test_a_rotated_or_mirrored_picture_is_refused(number: int, quarters: int, mirrored: bool) -> None:
    picture = np.rot90(burn(number, 96, 64), quarters)
    assert number_or_none(picture[:, ::-1] if mirrored else picture) is None
    assert number_or_none(burn(number, 96, 64)[:, ::-1]) is None


def test_pictures_without_a_number_are_refused() -> None:
    for picture in (synthetic.moving_background(1, 96, 64), np.zeros((64, 96, 3), np.uint8)):
        with pytest.raises(AssertionError, match="anchor"):
            read_number(picture)


# Encoding


@pytest.mark.parametrize(
    ("codec", "suffix", "pix_fmt", "size", "options"),
    [
        ("libx264", "mp4", "yuv420p", (96, 64), {}),
        ("libx264", "mp4", "yuv420p", (64, 96), {"crf": "30"}),
        ("libx264", "mkv", "yuvj420p", (320, 180), {"crf": "30"}),
        ("libx264", "ts", "yuv420p10le", (114, 64), {}),
        ("libx264", "mp4", "yuv444p", (97, 65), {}),
        ("libx265", "mp4", "yuv420p", (96, 64), {"crf": "30"}),
        ("mpeg4", "avi", "yuv420p", (97, 65), {}),
        ("libvpx-vp9", "webm", "yuv420p", (96, 64), {}),
    ],
)
def test_numbers_survive_encoding_and_rescaling(
    tmp_path: Path, codec: str, suffix: str, pix_fmt: str, size: tuple[int, int], options: dict[str, str]
) -> None:
    video = make_video(
        tmp_path / f"video.{suffix}",
        pts=range(40),
        timebase=THIRTIETH,
        size=size,
        codec=codec,
        pix_fmt=pix_fmt,
        options=options,
        first_number=65000,
    )
    assert video.numbers == range(65000, 65040)
    pictures = synthetic.decode_rgb(video.path)
    assert pictures[0].shape == (size[1], size[0], 3)
    assert numbers_in(pictures) == list(video.numbers)
    small = (64 * size[0] // min(size), 64 * size[1] // min(size))
    rescaled = synthetic.decode_rgb_with_ffmpeg(video.path, small, filters=f"scale={small[0]}:{small[1]}")
    assert numbers_in(rescaled) == list(video.numbers)


@pytest.mark.parametrize("colorspace", [1, 5, 6, 9, synthetic.UNSPECIFIED])
@pytest.mark.parametrize("color_range", [0, 1, 2])
def test_colours_are_as_tagged(tmp_path: Path, colorspace: int, color_range: int) -> None:
    path = tmp_path / "video.mp4"
    make_video(
        path,
        pts=range(5),
        timebase=THIRTIETH,
        pix_fmt="yuv444p",
        options={"crf": "2"},
        colorspace=colorspace,
        color_range=color_range,
        color_primaries=1,
        color_trc=1,
    )
    expected = burn(0, 96, 64).astype(int)
    for picture in (synthetic.decode_rgb(path)[0], synthetic.decode_rgb_with_ffmpeg(path, (96, 64))[0]):
        assert np.abs(picture - expected).mean() < 1
    with av.open(path) as container:
        context = container.streams.video[0].codec_context
        assert (context.colorspace, context.color_primaries, context.color_trc) == (colorspace, 1, 1)
        # H.264 cannot leave the range open next to other tags.
        assert context.color_range == (color_range or 1)


@pytest.mark.parametrize(
    ("codec", "suffix"), [("libx264", "mp4"), ("libx264", "avi"), ("libx265", "mkv"), ("mpeg4", "avi")]
)
def test_b_frames_and_keyframes_are_where_asked_for(tmp_path: Path, codec: str, suffix: str) -> None:
    path = tmp_path / f"video.{suffix}"
    for b_frames, at_least in ((2, 24), (0, 0)):
        make_video(path, pts=range(49), timebase=THIRTIETH, codec=codec, gop=12, b_frames=b_frames)
        with av.open(path) as container:
            frames = list(container.decode(video=0))
        assert [j for j, frame in enumerate(frames) if frame.key_frame] == [0, 12, 24, 36, 48]
        count = sum(frame.pict_type == PictureType.B for frame in frames)
        assert count >= at_least
        assert bool(count) == bool(b_frames)


def test_ffmpeg_and_pyav_decode_the_same_frames(
    constant_video: SyntheticVideo, variable_video: SyntheticVideo, late_video: SyntheticVideo
) -> None:
    for video in (constant_video, variable_video, late_video):
        with_ffmpeg = synthetic.decode_rgb_with_ffmpeg(video.path, (video.width, video.height))
        assert numbers_in(with_ffmpeg) == list(video.numbers)
        assert numbers_in(synthetic.decode_rgb(video.path)) == list(video.numbers)


# Timestamps


def test_mp4_and_mov_keep_pts_exactly(tmp_path: Path) -> None:
    timebase = Fraction(1, 90000)
    pts = variable_rate_pts(7, 50, timebase)
    for suffix in ("mp4", "mov"):
        video = make_video(tmp_path / f"video.{suffix}", pts=pts, timebase=timebase)
        assert (video.pts, video.timebase) == (pts, timebase)
        assert video.durations[-1] == pts[-1] - pts[-2]


def test_matroska_rounds_pts_to_milliseconds(tmp_path: Path) -> None:
    rate = Fraction(30000, 1001)
    video = make_video(tmp_path / "video.mkv", pts=constant_rate_pts(rate, 50), timebase=1 / rate)
    assert video.timebase == Fraction(1, 1000)
    assert video.pts == constant_rate_pts(rate, 50, video.timebase)


@pytest.mark.parametrize("codec", ["mpeg4", "libx264"])
@pytest.mark.parametrize("b_frames", [0, 2])
def test_avi_counts_frames_from_0_or_1(tmp_path: Path, codec: str, b_frames: int) -> None:
    path = tmp_path / "video.avi"
    video = make_video(path, pts=range(20), timebase=THIRTIETH, codec=codec, b_frames=b_frames)
    assert video.timebase == THIRTIETH
    assert video.pts in {tuple(range(20)), tuple(range(1, 21))}


def test_avi_has_no_true_pts_for_h264(tmp_path: Path) -> None:
    """AVI stores no pts, and the demuxer's guess is in decode order: frames come right, their pts do not."""
    path = tmp_path / "video.avi"
    make_video(path, pts=range(20), timebase=THIRTIETH)
    assert numbers_in(synthetic.decode_rgb(path)) == list(range(20))
    with av.open(path) as container:
        pts = [frame.pts or 0 for frame in container.decode(video=0)]
    assert pts != sorted(pts)
    assert sorted(pts) == list(range(1, 21))


def test_pts_have_the_rate_that_was_asked_for() -> None:
    assert constant_rate_pts(Fraction(25), 3) == (0, 1, 2)
    assert constant_rate_pts(Fraction(25), 3, Fraction(1, 1000), start=7) == (7, 47, 87)
    timebase = Fraction(1, 1000)
    pts = variable_rate_pts(0, 500, timebase, Fraction(25), start=5)
    assert pts[0] == 5
    assert len(set(np.diff(pts).tolist())) > 20
    assert min(np.diff(pts)) > 0
    assert 25 <= np.diff(pts).mean() <= 80


def test_a_late_video_begins_after_its_sound(late_video: SyntheticVideo) -> None:
    assert late_video.pts[0] * late_video.timebase == Fraction(7, 2)
    with av.open(late_video.path) as container:
        assert abs((container.start_time or 0) / av.time_base) < 0.05
        sound = next(container.decode(audio=0))
        assert sound.time is not None
        assert abs(sound.time) < 0.05


@pytest.mark.parametrize(("suffix", "codec"), [("mp4", "libx264"), ("webm", "libvpx-vp9"), ("ts", "libx264")])
def test_sound_may_begin_after_the_video(tmp_path: Path, suffix: str, codec: str) -> None:
    path = tmp_path / f"video.{suffix}"
    video = make_video(path, pts=range(60), timebase=THIRTIETH, codec=codec, audio_start=Fraction(3, 2))
    with av.open(path) as container:
        sound = next(container.decode(audio=0))
        assert sound.time is not None
        assert abs(sound.time - float(video.pts[0] * video.timebase) - 1.5) < 0.05


# Geometry


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_rotation_is_in_the_container_and_not_in_the_pixels(
    tmp_path: Path, suffix: str, rotation: synthetic.Rotation
) -> None:
    path = tmp_path / f"video.{suffix}"
    video = make_video(path, pts=range(3), timebase=THIRTIETH, size=(64, 96), rotation=rotation)
    with av.open(path) as container:
        assert next(container.decode(video=0)).rotation % 360 == rotation
    coded = synthetic.decode_rgb(path)
    assert numbers_in([np.rot90(picture, rotation // 90) for picture in coded]) == [0, 1, 2]
    if rotation:
        with pytest.raises(AssertionError):
            read_number(coded[0])
    assert numbers_in(synthetic.decode_rgb_with_ffmpeg(path, (video.width, video.height))) == [0, 1, 2]


def test_the_sample_aspect_ratio_is_written(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    make_video(path, pts=range(3), timebase=THIRTIETH, sample_aspect_ratio=Fraction(4, 3))
    with av.open(path) as container:
        assert container.streams.video[0].sample_aspect_ratio == Fraction(4, 3)


# Broken sources


def test_what_is_no_video_cannot_be_opened_as_one(tmp_path: Path, constant_video: SyntheticVideo) -> None:
    for path in (
        broken.empty_file(tmp_path / "empty.mp4"),
        broken.text_file(tmp_path / "text.mp4"),
        broken.cut_in_the_middle(constant_video.path, tmp_path / "cut.mp4"),
    ):
        with pytest.raises(av.InvalidDataError):
            av.open(path)
    with av.open(broken.audio_only(tmp_path / "audio.mp4")) as container:
        assert not container.streams.video
        assert len(container.streams.audio) == 1


def test_a_cut_faststart_mp4_promises_too_much(tmp_path: Path) -> None:
    options = {"movflags": "+faststart"}
    video = make_video(tmp_path / "a.mp4", pts=range(50), timebase=THIRTIETH, container_options=options)
    path = broken.cut_in_the_middle(video.path, tmp_path / "cut.mp4")
    with av.open(path) as container:
        stream = container.streams.video[0]
        assert stream.frames == 50
        assert max(entry.pos + entry.size for entry in stream.index_entries) > path.stat().st_size
    packets = packets_of(path)
    assert 10 < len(packets) < 40
    assert [packet.is_corrupt for packet in packets[-2:]] == [False, True]


def test_a_cut_mkv_has_fewer_frames(tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mkv", pts=range(50), timebase=THIRTIETH)
    path = broken.cut_in_the_middle(video.path, tmp_path / "cut.mkv")
    pictures = synthetic.decode_rgb(path)
    assert 10 < len(pictures) < 40
    assert numbers_in(pictures) == list(range(len(pictures)))
    with av.open(path) as container:
        assert container.duration is not None
        assert container.duration / av.time_base > 1.5


def test_corrupted_payload_leaves_all_packets_in_place(tmp_path: Path) -> None:
    for codec, suffix in (("libx264", "mp4"), ("libx264", "mkv"), ("libx265", "mp4"), ("mpeg4", "avi")):
        path = tmp_path / f"sound.{suffix}"
        make_video(path, pts=range(50), timebase=THIRTIETH, codec=codec)
        damaged = broken.corrupted_payload(path, tmp_path / f"damaged.{suffix}")
        before, after = packets_of(path), packets_of(damaged)
        assert [(packet.pts, packet.size) for packet in before] == [(packet.pts, packet.size) for packet in after]
        assert not any(packet.is_corrupt for packet in after)
        assert sum(bytes(a) != bytes(b) for a, b in zip(before, after, strict=True)) == 1


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_decoders_show_torn_pictures_without_an_error(tmp_path: Path, codec: str) -> None:
    video = make_video(tmp_path / "sound.mp4", pts=range(50), timebase=THIRTIETH, codec=codec, b_frames=0)
    pictures = synthetic.decode_rgb(broken.corrupted_payload(video.path, tmp_path / "damaged.mp4"))
    found = [number_or_none(picture) for picture in pictures]
    assert len(found) == 50
    assert all(number in {j, None} for j, number in enumerate(found))
    assert None in found


def test_longer_corruption_makes_decoders_fail(tmp_path: Path, constant_video: SyntheticVideo) -> None:
    path = broken.corrupted_payload(constant_video.path, tmp_path / "damaged.mp4", n_bytes=1000)
    assert not any(packet.is_corrupt for packet in packets_of(path))
    with pytest.raises(av.InvalidDataError):
        synthetic.decode_rgb(path)


def test_an_edit_list_hides_frames(tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mp4", pts=range(60), timebase=THIRTIETH, gop=30)
    path = broken.trimmed_by_edit_list(video.path, tmp_path / "trimmed.mp4", start_s=1.5)
    packets = packets_of(path)
    hidden = [packet for packet in packets if packet.is_discard]
    assert (len(packets), len(hidden)) == (30, 15)
    assert max(packet.pts or 0 for packet in hidden) < 0
    assert numbers_in(synthetic.decode_rgb(path)) == list(range(45, 60))
    assert numbers_in(synthetic.decode_rgb_with_ffmpeg(path, (96, 64))) == list(range(45, 60))
