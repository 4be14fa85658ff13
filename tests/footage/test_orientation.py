"""Pictures that are turned or mirrored when they are shown."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

import shortgop
from cut_sources import OPEN_GOP_HEVC, cut, write_list
from datasets import current_manifest, make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered, remuxed
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.operations.export import export
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number

_ORIENTATION = 0x112
# How to store a picture so that Exif's orientation turns it upright.
_STORED: dict[int, Callable[[Any], Any]] = {
    1: lambda picture: picture,
    2: np.fliplr,
    3: lambda picture: np.rot90(picture, 2),
    4: np.flipud,
    5: lambda picture: picture.transpose(1, 0, 2),
    6: np.rot90,
    7: lambda picture: np.rot90(picture, 2).transpose(1, 0, 2),
    8: lambda picture: np.rot90(picture, 3),
}


def rotated_clip(path: Path, num_frames: int = 20, **coded: Any) -> SyntheticVideo:
    """Frames of a phone that was held upright, with a keyframe in ten."""
    pts = constant_rate_pts(Fraction(30), num_frames)
    return make_video(path, pts=pts, timebase=Fraction(1, 30), size=(64, 96), rotation=90, gop=10, **coded)


def of_both(hevc: SyntheticVideo, folder: Path) -> Path:
    """HEVC whose headers say half a turn before each keyframe (ITU-T H.265, D.3.17), and its MP4 a quarter."""
    ffmpeg("-i", hevc.path, "-c", "copy", folder / "plain.hevc")
    half_a_turn = bytes.fromhex("00000001 4e01 2f03 100018 80")
    keyframes = re.compile(rb"(?=\x00\x00\x01[\x20-\x2a])")
    (folder / "both.hevc").write_bytes(keyframes.sub(half_a_turn, (folder / "plain.hevc").read_bytes()))
    ffmpeg("-r", "30", "-i", folder / "both.hevc", "-c", "copy", folder / "both.mp4")
    ffmpeg("-display_rotation", "90", "-i", folder / "both.mp4", "-c", "copy", folder / "x.mp4")
    return folder / "x.mp4"


def orientations(path: Path) -> list[Any]:
    """What FFmpeg says of how the first frame is turned."""
    with av.open(path) as container:
        stated: Any = next(container.decode(video=0)).side_data
        return [each for each in stated if each.type.name == "DISPLAYMATRIX"]


def shown_upright(sources: list[Path], dataset: Path) -> list[list[int]]:
    """The numbers that frames show, which cannot be read of ones that are turned wrongly."""
    assert make_dataset(sources, dataset).failures == ()
    videos = shortgop.open(dataset)
    assert {video[0].shape for video in videos} == {(3, 96, 64)}
    return [[read_number(frame) for frame in video] for video in videos]


def prepared(source: Path, dataset: Path, *, salvage: bool) -> Report:
    policy = SourcePolicy(salvage=salvage)
    return prepare([str(source)], DiskStorage(dataset), Profile(), where=Where("inline"), policy=policy)


@pytest.mark.parametrize("flip", ["hflip", "vflip"])
@pytest.mark.parametrize("rotation", [0, 90, 270])
def test_pictures_that_are_mirrored_when_shown_are_mirrored(rotation: int, flip: str, tmp_path: Path) -> None:
    """What the exported file shows is what ffmpeg itself shows of the source, and is not turned again."""
    plain = encode_pictures(tmp_path / "plain.h264", numbered(range(2), (64, 64)), "-pix_fmt", "yuv420p", *X264)
    source = tmp_path / "x.mp4"
    turn = ("-display_rotation", str(rotation), f"-display_{flip}")
    ffmpeg(*turn, "-i", remuxed(plain, tmp_path / "plain.mp4"), "-c", "copy", source)
    shown = ffmpeg("-i", source, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    assert make_dataset([source], tmp_path / "dataset", crf=5).failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    expected = np.frombuffer(shown, np.uint8).reshape(64, 64, 3).transpose(2, 0, 1).astype(int)
    assert np.abs(video[0].numpy() - expected).mean() < 6
    export(DiskStorage(tmp_path / "dataset"), current_manifest(tmp_path / "dataset"), 0, tmp_path / "out.mp4")
    with av.open(tmp_path / "out.mp4") as container:
        assert next(container.decode(video=0)).rotation == 0


@pytest.mark.parametrize("message", [0, 90, 180, 270])
def test_an_orientation_that_headers_state_as_well_is_not_applied(message: int, tmp_path: Path) -> None:
    """Players turn pictures as the MP4 says, and only once. FFmpeg 9 failed on both: "File exists"."""
    plain = rotated_clip(tmp_path / "plain.mp4")
    headers = f"h264_metadata=display_orientation=insert:rotate={message}"
    ffmpeg("-i", plain.path, "-c", "copy", "-bsf:v", headers, tmp_path / "x.mp4")
    assert shown_upright([tmp_path / "x.mp4"], tmp_path / "dataset") == [list(range(20))]
    stretches = write_list(tmp_path, "x.mp4,0.2,0.4", "x.mp4,0.4,0.6")
    assert cut(stretches, tmp_path / "stretches").failures == ()
    videos = shortgop.open(tmp_path / "stretches")
    assert [[read_number(frame) for frame in video] for video in videos] == [[*range(6, 12)], [*range(12, 18)]]


def test_an_orientation_is_not_applied_twice_where_only_the_container_tells_of_fields(tmp_path: Path) -> None:
    """No message that is left out is needed to deinterlace."""
    told = ("-vf", "setfield=tff,format=yuv420p")
    plain = encode_pictures(tmp_path / "plain.mkv", numbered(range(6)), *told, *X264)
    headers = "h264_metadata=display_orientation=insert:rotate=180"
    ffmpeg("-display_rotation", "90", "-i", plain, "-c", "copy", "-bsf:v", headers, tmp_path / "x.mkv")
    assert make_dataset([tmp_path / "x.mkv"], tmp_path / "dataset").failures == ()
    assert "deinterlaced" in current_manifest(tmp_path / "dataset").changes(0).given_up


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p", "gbrp"])
def test_an_orientation_that_headers_of_hevc_state_as_well_is_not_applied(pix_fmt: str, tmp_path: Path) -> None:
    source = of_both(rotated_clip(tmp_path / "plain.mp4", codec="libx265", pix_fmt=pix_fmt), tmp_path)
    assert len(orientations(source)) == 2
    assert shown_upright([source], tmp_path / "dataset") == [list(range(20))]


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_hevc_cut_out_of_open_gops_whose_headers_state_an_orientation_as_well_is_prepared(
    suffix: str, tmp_path: Path
) -> None:
    """Frames that lead to the first keyframe refer to earlier ones, and no decoder shows them: it was refused as if
    that came of the headers."""
    open_gops = {"preset": "ultrafast", **OPEN_GOP_HEVC}
    clip = rotated_clip(tmp_path / "plain.mp4", codec="libx265", num_frames=60, b_frames=3, options=open_gops)
    place = ("-avoid_negative_ts", "make_zero") if suffix == "mkv" else ()
    ffmpeg("-ss", "1.1", "-i", of_both(clip, tmp_path), "-c", "copy", *place, tmp_path / f"cut.{suffix}")
    ((first, *others),) = shown_upright([tmp_path / f"cut.{suffix}"], tmp_path / "dataset")
    assert [first, *others] == list(range(first, 60))
    assert first < 40


def test_a_damaged_packet_out_of_which_ffmpeg_takes_no_message_is_told_with_the_command_that_helps(
    tmp_path: Path,
) -> None:
    """It was said that --salvage prepares the other frames, and with that, that the encoder failed."""
    clip = rotated_clip(tmp_path / "plain.mp4", num_frames=60)
    headers = "h264_metadata=display_orientation=insert:rotate=180"
    ffmpeg("-i", clip.path, "-c", "copy", "-bsf:v", headers, tmp_path / "whole.mp4")
    with av.open(tmp_path / "whole.mp4") as container:
        packets = [(packet.pos or 0, packet.size) for packet in container.demux(video=0) if packet.size]
    begin, size = packets[35]
    data = (tmp_path / "whole.mp4").read_bytes()
    # The size of a unit, and what is in it, which the decoder alone reads.
    (tmp_path / "x.mp4").write_bytes(data[:begin] + b"\x7f" + data[begin + 1 :])
    (tmp_path / "y.mp4").write_bytes(data[: begin + size // 2] + bytes(size // 2) + data[begin + size // 2 * 2 :])
    for salvage in (False, True):
        (failure,) = prepared(tmp_path / "x.mp4", tmp_path / f"x-{salvage}", salvage=salvage).failures
        assert "x.mp4 is damaged (Invalid NAL unit size" in failure.reason
        assert "prepare that with --salvage" in failure.reason
    copy = ("-map", "0:v:0", "-c", "copy", "-bsf:v", "h264_metadata=display_orientation=remove")
    assert " ".join(copy) in failure.reason
    ffmpeg("-i", tmp_path / "x.mp4", *copy, tmp_path / "OUT.mp4")
    for damaged in ("OUT.mp4", "y.mp4"):
        dataset = tmp_path / f"{damaged}-dataset"
        assert prepared(tmp_path / damaged, dataset, salvage=True).failures == ()
        shown = {read_number(frame) for frame in shortgop.open(dataset)[0]}
        # Where a packet is missing, the frame before it may count as damaged too.
        assert shown | {34} == {*range(35), *range(40, 60)}, damaged


def test_what_is_stated_twice_is_told_also_where_packets_do_not_say_when_frames_are_shown(tmp_path: Path) -> None:
    """4:4:4 H.264 from a raw stream: it was said that not one frame decodes, with the advice to copy the file again."""
    plain = rotated_clip(tmp_path / "plain.mp4", pix_fmt="yuv444p")
    headers = "h264_metadata=display_orientation=insert:rotate=180"
    ffmpeg("-i", plain.path, "-c", "copy", "-bsf:v", headers, tmp_path / "headers.mp4")
    ffmpeg("-i", tmp_path / "headers.mp4", "-c", "copy", tmp_path / "both.h264")
    ffmpeg("-r", "30", "-i", tmp_path / "both.h264", "-c", "copy", tmp_path / "both.mp4")
    ffmpeg("-display_rotation", "90", "-i", tmp_path / "both.mp4", "-c", "copy", tmp_path / "x.mp4")
    (failure,) = make_dataset([tmp_path / "x.mp4"], tmp_path / "refused").failures
    assert "its headers and its container probably both say how it is turned" in failure.reason
    assert "copy or download" not in failure.reason
    copy = ("-map", "0:v:0", "-c", "copy", "-bsf:v", "h264_metadata=display_orientation=remove")
    assert " ".join(copy) in failure.reason
    ffmpeg("-i", tmp_path / "x.mp4", *copy, tmp_path / "OUT.mp4")
    assert shown_upright([tmp_path / "OUT.mp4"], tmp_path / "dataset") == [list(range(20))]


@pytest.mark.parametrize("orientation", _STORED)
def test_photographs_that_say_how_the_camera_was_held_are_turned_upright(orientation: int, tmp_path: Path) -> None:
    """Exif in Motion JPEG, which PyAV has no name for: it told nothing of the picture, and mirrors were passed over."""
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    data = io.BytesIO()
    for picture in numbered(range(5), (96, 64)):
        Image.fromarray(_STORED[orientation](picture)).save(data, "JPEG", exif=exif, quality=90)
    (tmp_path / "x.mjpeg").write_bytes(data.getvalue())
    assert make_dataset([tmp_path / "x.mjpeg"], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert video[0].shape == (3, 64, 96)
    assert [read_number(frame) for frame in video] == list(range(5))
