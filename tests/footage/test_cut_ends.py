"""Formats whose demuxers do not say that their last frame is incomplete, and what may lie behind the end of a file."""

from __future__ import annotations

import random
from pathlib import Path

import av
import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, numbered
from synthetic import read_number

FRAMES = 30
H264 = (*X264, "-g", "12", "-sc_threshold", "0", "-pix_fmt", "yuv420p")
# A frame of DV at 25 frames/s is 12 such sequences.
DV_SEQUENCE_BYTES, DV_FRAME_BYTES = 12_000, 144_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cut_ends")


@pytest.fixture(scope="module")
def flv(folder: Path) -> Path:
    return encode_pictures(folder / "x.flv", numbered(range(FRAMES)), *H264, rate=25)


@pytest.fixture(scope="module")
def asf(folder: Path) -> Path:
    return encode_pictures(folder / "x.asf", numbered(range(FRAMES)), "-c:v", "wmv2", "-q:v", "3", "-g", "12", rate=25)


@pytest.fixture(scope="module")
def dv(folder: Path) -> Path:
    dv = ("-c:v", "dvvideo", "-pix_fmt", "yuv420p")
    return encode_pictures(folder / "x.dv", numbered(range(8), (720, 576)), *dv, rate=25)


def shown(data: bytes, source: Path) -> list[int]:
    source.write_bytes(data)
    dataset = source.with_suffix(".dataset")
    assert make_dataset([source], dataset).failures == ()
    video = shortgop.open(dataset)[0]
    assert video.changes.salvaged == ()
    return [read_number(frame) for frame in video]


@pytest.mark.parametrize(
    "tail", [bytes(1000), b"<html></html>" * 9, random.Random(1).randbytes(5000)], ids=["zeros", "text", "noise"]
)
def test_what_lies_behind_the_last_tag_of_an_flv_is_no_damage(tail: bytes, flv: Path, tmp_path: Path) -> None:
    assert shown(flv.read_bytes() + tail, tmp_path / "x.flv") == list(range(FRAMES))


@pytest.mark.parametrize(("within_tag", "frames"), [(0, 20), (5, 19), (200, 19)])
def test_an_flv_that_ends_in_zeros_is_a_shorter_one(within_tag: int, frames: int, flv: Path, tmp_path: Path) -> None:
    """As a download leaves it whose space was reserved before. Nothing tells that the frame in which the zeros begin is
    damaged, but that its tag has no end."""
    with av.open(flv) as container:
        starts = [packet.pos for packet in container.demux(video=0) if packet.size]
    data = flv.read_bytes()
    end = (starts[20] or 0) + within_tag
    assert shown(data[:end] + bytes(len(data) - end), tmp_path / "x.flv") == list(range(frames))


def test_an_flv_with_tags_behind_a_hole_is_damaged(flv: Path, tmp_path: Path) -> None:
    data = flv.read_bytes()
    middle = len(data) // 2
    (tmp_path / "x.flv").write_bytes(data[:middle] + bytes(2000) + data[middle + 2000 :])
    (failure,) = make_dataset([tmp_path / "x.flv"], tmp_path / "dataset").failures
    assert "is damaged: 7 of its 26 frames are lost" in failure.reason


@pytest.mark.parametrize("part", [0.4, 0.5, 0.61, 0.72, 0.9])
def test_an_asf_cut_at_its_end_is_a_shorter_one(part: float, asf: Path, tmp_path: Path) -> None:
    data = asf.read_bytes()
    numbers = shown(data[: int(len(data) * part)], tmp_path / "x.asf")
    assert numbers == list(range(len(numbers)))
    # The incomplete frame, and the one before it where a decoder complains.
    assert part * FRAMES - 4 < len(numbers) < part * FRAMES + 1


def test_a_whole_asf_loses_no_frame(asf: Path, tmp_path: Path) -> None:
    assert shown(asf.read_bytes(), tmp_path / "x.asf") == list(range(FRAMES))


@pytest.mark.parametrize("sequences", [1, 6, 7.3])
def test_raw_dv_cut_within_a_frame_ends_before_it(sequences: float, dv: Path, tmp_path: Path) -> None:
    """FFmpeg fills it up with the end of the frame before, and where a whole sequence ends no decoder notices."""
    end = 5 * DV_FRAME_BYTES + int(sequences * DV_SEQUENCE_BYTES)
    numbers = shown(dv.read_bytes()[:end], tmp_path / "x.dv")
    assert numbers == list(range(len(numbers)))
    assert len(numbers) == (5 if sequences in (1, 6) else 4)


@pytest.mark.parametrize("b_frames", ["0", "2"])
def test_raw_mpeg1_that_is_cut_is_a_shorter_one(b_frames: str, tmp_path: Path) -> None:
    """It has no times. Those that FFmpeg counts have a hole behind the first frame, so that none counted as certain."""
    coded = ("-c:v", "mpeg1video", "-q:v", "2", "-bf", b_frames, "-g", "10")
    data = encode_pictures(tmp_path / "x.m1v", numbered(range(60)), *coded, rate=25).read_bytes()
    begun = shown(data[: len(data) * 2 // 3], tmp_path / "begun.m1v")
    assert begun == list(range(len(begun)))
    assert len(begun) >= 35
    ended = shown(data[len(data) // 5 :], tmp_path / "ended.m1v")
    assert ended == list(range(60 - len(ended), 60))
    assert len(ended) >= 35


@pytest.mark.parametrize("part", [0.4, 0.5, 0.61, 0.72, 0.9, 0.999])
def test_a_gif_that_is_cut_off_is_a_shorter_one(part: float, tmp_path: Path) -> None:
    """FFmpeg does not say that its last picture is cut off. A picture that lasts longer hides none behind it."""
    whole = encode_pictures(tmp_path / "whole.gif", numbered(range(FRAMES)), rate=25).read_bytes()
    mark = b"\x21\xf9\x04"
    first, *others = whole.split(mark)
    delays = [20 if number == 3 else 4 for number in range(FRAMES)]
    data = mark.join(
        [first, *(each[:1] + bytes([delay]) + each[2:] for delay, each in zip(delays, others, strict=True))]
    )
    cut = data[: int(len(data) * part)]
    numbers = shown(cut, tmp_path / "x.gif")
    assert numbers == [number for number in range(max(numbers) + 1) for _ in range(delays[number] // 4)]
    assert FRAMES * part - 3 <= max(numbers) + 1 < FRAMES * part + 3


CONTROL = b"\x21\xf9\x04\0\0\0\0"
COMMENT = b"\0\x21\xfe\x0cmade by hand\x05, all\0"


@pytest.mark.parametrize(
    "behind",
    [
        *(b"\0;", b"\0", b"", b";", b"\0" + CONTROL + b"\0;"),
        *(COMMENT + b";", COMMENT, COMMENT[:-1], COMMENT[:9], COMMENT[:2]),
    ],
)
def test_a_gif_that_has_all_data_of_its_last_picture_loses_none(behind: bytes, tmp_path: Path) -> None:
    """It may lack the marks behind them, or end in a comment, or in an extension that announces a picture. Even a whole
    GIF was refused that has more than a few words there, and one that ends within them was said to lack a frame."""
    whole = encode_pictures(tmp_path / "whole.gif", numbered(range(FRAMES)), rate=25).read_bytes()
    data = whole.removesuffix(b"\0;")
    assert len(data) == len(whole) - 2
    source = tmp_path / "x.gif"
    source.write_bytes(data + behind)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video] == list(range(FRAMES))
    assert video.changes.dropped == 0


def test_a_gif_that_lacks_data_of_its_last_picture_ends_before_it(tmp_path: Path) -> None:
    whole = encode_pictures(tmp_path / "whole.gif", numbered(range(FRAMES)), rate=25).read_bytes()
    assert shown(whole.removesuffix(b"\0;")[:-1], tmp_path / "x.gif") == list(range(FRAMES - 1))


def test_a_gif_that_is_cut_off_at_a_byte_like_the_mark_of_its_end_is_a_shorter_one(tmp_path: Path) -> None:
    """It was taken for a whole one, and refused as damaged."""
    whole = encode_pictures(tmp_path / "whole.gif", numbered(range(FRAMES)), rate=25).read_bytes()
    pictures = whole.split(b"\x21\xf9\x04")
    end = len(pictures[-1]) - pictures[-1].index(b";", len(pictures[-1]) // 3) - 1
    assert shown(whole[: len(whole) - end], tmp_path / "x.gif") == list(range(FRAMES - 1))


@pytest.mark.parametrize("picture", [4, 6, 9, 15, 20, 29])
def test_a_gif_that_is_damaged_in_the_middle_is_not_taken_for_one_that_is_cut_off(picture: int, tmp_path: Path) -> None:
    """One wrong byte, the length of an extension, hid the pictures behind it: they were left out without a word."""
    source = tmp_path / "x.gif"
    parts = encode_pictures(source, numbered(range(FRAMES)), rate=25).read_bytes().split(CONTROL[:3])
    source.write_bytes(CONTROL[:3].join(parts[:picture]) + CONTROL[:2] + b"\xee" + CONTROL[:3].join(parts[picture:]))
    (failure,) = make_dataset([source], tmp_path / "dataset").failures
    assert "--salvage" in failure.reason
