"""What containers cut off of pictures: the clean aperture of MP4 and QuickTime, PixelCrop of Matroska."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from datasets import current_manifest, make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered, remuxed, with_clean_aperture, with_pixel_crop
from shortgop.prep.probing.containers.container_crop import ContainerCrop, container_crop
from synthetic import Picture, read_number

# Of unknown size, and without its size.
SEGMENT, TRACKS = b"\x18\x53\x80\x67\x01\xff\xff\xff\xff\xff\xff\xff", b"\x16\x54\xae\x6b"


def prepare(source: Path, tmp_path: Path) -> tuple[shortgop.Video, tuple[str, ...]]:
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    return shortgop.open(tmp_path / "dataset")[0], current_manifest(tmp_path / "dataset").changes(0).given_up


def framed_in_white(left: int, right: int, top: int, bottom: int) -> list[Picture]:
    sides = ((top, bottom), (left, right), (0, 0))
    return [np.pad(picture, sides, constant_values=255) for picture in numbered(range(3))]


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv"])
def test_what_the_container_cuts_off_is_cut_off(suffix: str, tmp_path: Path) -> None:
    """A clean aperture (ISO/IEC 14496-12) or PixelCrop (RFC 9559): cameras code more than is to be seen."""
    stream = encode_pictures(tmp_path / "x.h264", framed_in_white(16, 16, 8, 8), "-pix_fmt", "yuv420p", *X264)
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(with_clean_aperture(remuxed(stream, tmp_path / "plain.mp4").read_bytes(), 96, 64))
    source = tmp_path / f"x.{suffix}"
    if suffix == "mkv":
        ffmpeg("-i", cut, "-c", "copy", source)
    else:
        cut.rename(source)
    video, given_up = prepare(source, tmp_path)
    assert video[0].shape == (3, 64, 96)
    assert [read_number(frame) for frame in video] == [0, 1, 2]
    assert given_up == ()


@pytest.mark.parametrize(("aspect", "width"), [("1", 96), ("4/3", 128)])
def test_a_matroska_crop_may_be_on_one_side_and_have_pixels_of_any_shape(
    aspect: str, width: int, tmp_path: Path
) -> None:
    options = ("-vf", f"setsar={aspect}", "-pix_fmt", "yuv420p", *X264)
    stream = encode_pictures(tmp_path / "x.h264", framed_in_white(5, 27, 3, 13), *options)
    centred = tmp_path / "centred.mp4"
    centred.write_bytes(with_clean_aperture(remuxed(stream, tmp_path / "plain.mp4").read_bytes(), 96, 64))
    source = tmp_path / "x.mkv"
    ffmpeg("-i", centred, "-c", "copy", source)
    source.write_bytes(with_pixel_crop(source.read_bytes(), 5, 27, 3, 13))
    video, _ = prepare(source, tmp_path)
    assert video[0].shape == (3, 64, width)
    assert [read_number(frame) for frame in video] == [0, 1, 2]
    if width == 96:
        # Right to the pixel: every other place would differ more.
        frame, picture = video[1].numpy().transpose(1, 2, 0).astype(int), numbered([1])[0].astype(int)
        places = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
        apart = [np.abs(frame - np.roll(picture, place, axis=(0, 1)))[1:-1, 1:-1].mean() for place in places]
        assert places[int(np.argmin(apart))] == (0, 0)


def test_a_crop_is_of_the_first_size_where_the_resolution_changes(tmp_path: Path) -> None:
    """The picture of 96x64 in 128x80, followed by one of twice that in twice that: the same part of it is shown."""
    data = b""
    for index, times in enumerate((1, 2)):
        part = tmp_path / f"part{index}.h264"
        framed = [picture.repeat(times, axis=0).repeat(times, axis=1) for picture in framed_in_white(16, 16, 8, 8)]
        data += encode_pictures(part, framed, "-pix_fmt", "yuv420p", *X264).read_bytes()
    (tmp_path / "x.h264").write_bytes(data)
    source = tmp_path / "x.mp4"
    source.write_bytes(with_clean_aperture(remuxed(tmp_path / "x.h264", tmp_path / "plain.mp4").read_bytes(), 96, 64))
    video, given_up = prepare(source, tmp_path)
    assert video[0].shape == (3, 64, 96)
    assert [read_number(frame) for frame in video] == [0, 1, 2, 0, 1, 2]
    assert given_up == ("resolution changes: scaled to the first frame's",)


def test_the_crop_of_another_track_does_not_count(tmp_path: Path) -> None:
    plain = encode_pictures(tmp_path / "x.mkv", numbered(range(3)), "-pix_fmt", "yuv420p", *X264)
    stream = encode_pictures(tmp_path / "x.h264", framed_in_white(16, 16, 8, 8), "-pix_fmt", "yuv420p", *X264)
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(with_clean_aperture(remuxed(stream, tmp_path / "plain.mp4").read_bytes(), 96, 64))
    both = tmp_path / "both.mkv"
    ffmpeg("-i", plain, "-i", cut, "-map", "0:v", "-map", "1:v", "-c", "copy", both)
    found = [container_crop(str(both), "matroska,webm", number, number + 1, (128, 80)) for number in range(3)]
    assert found == [None, ContainerCrop(128, 80, 16, 8, 96, 64), None]


@given(st.binary(max_size=200), st.integers(0, 2))
def test_what_is_no_matroska_has_no_crop(data: bytes, stream_index: int) -> None:
    with tempfile.NamedTemporaryFile(suffix=".mkv") as file:
        file.write(SEGMENT + TRACKS + (0x4000 | len(data)).to_bytes(2) + data)
        file.flush()
        container_crop(file.name, "matroska,webm", stream_index, 1, (128, 80))
