"""MPEG-4 as DivX and Xvid write it into AVI: B-frames packed with another frame, or denied by the header."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.video.stream import VideoStream

import shortgop
from datasets import make_dataset
from odd_pictures import encode_pictures, ffmpeg, numbered
from synthetic import frame_to_rgb, read_number

FRAMES = 30
PICTURE, LAYER = b"\0\0\1\xb6", b"\0\0\1\x20"
# A picture of which nothing is coded: the one before is shown again.
NOTHING_CODED = PICTURE + b"\x51\x80\x7f"
DIVX = b"\0\0\1\xb2DivX503b1393p"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The packets of a stream with one B-frame between others, in the order of decoding."""
    path = tmp_path_factory.mktemp("mpeg4") / "x.avi"
    options = ("-c:v", "mpeg4", "-q:v", "3", "-g", "10", "-bf", "1", "-sc_threshold", "1000000000")
    encode_pictures(path, numbered(range(FRAMES)), *options)
    with av.open(path) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


def kind(picture: bytes) -> str:
    return "IPBS"[picture[picture.index(PICTURE) + len(PICTURE)] >> 6]


def written(path: Path, chunks: list[bytes], times: Sequence[int] | None = None) -> Path:
    """Write packets with the times at which they are decoded, by default one in each thirtieth of a second."""
    head = chunks[0][: chunks[0].index(PICTURE)]
    with av.open(path, "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.codec_context.extradata = head
        for number, chunk in zip(times or range(len(chunks)), chunks, strict=True):
            packet = av.Packet(chunk)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 30), kind(chunk) == "I"
            packet.pts = packet.dts = number
            container.mux(packet)
    return path


@pytest.mark.parametrize("suffix", ["avi", "mp4", "mkv"])
def test_b_frames_that_are_packed_with_the_frame_before_are_all_there(
    suffix: str, pictures: list[bytes], tmp_path: Path
) -> None:
    source = written(tmp_path / f"x.{suffix}", packed(pictures))
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    assert numbers_in(tmp_path / "dataset") == list(range(FRAMES))


def packed(pictures: list[bytes]) -> list[bytes]:
    """Packets of which each B-frame is behind the frame before, and a picture that is not coded stands for it."""
    chunks: list[bytes] = []
    for picture in pictures:
        if kind(picture) == "B":
            chunks[-1:] = [chunks[-1] + picture, NOTHING_CODED]
        else:
            chunks.append(picture)
    assert sum(chunk == NOTHING_CODED for chunk in chunks) > 10
    chunks[0] = chunks[0].replace(PICTURE, DIVX + PICTURE, 1)
    return chunks


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "nut"])
def test_packed_b_frames_are_all_there_where_ffmpeg_made_up_their_times(suffix: str, tmp_path: Path) -> None:
    """Copied from AVI with `-fflags +genpts`, as Matroska asks for: each packet has the time of its first frame, and
    the one that stands for a B-frame a time of its own."""
    options = ("-c:v", "libxvid", "-q:v", "2", "-bf", "2", "-g", "12")
    source = encode_pictures(tmp_path / "x.avi", numbered(range(20)), *options)
    copy = tmp_path / f"x.{suffix}"
    ffmpeg("-fflags", "+genpts", "-i", source, "-c", "copy", copy)
    with av.open(copy) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        times = [packet.pts for packet in packets if packet.pts is not None]
    assert sum(bytes(packet).count(PICTURE) == 2 for packet in packets) > 3
    assert len(times) == len(packets)
    assert times != sorted(times)
    assert make_dataset([copy], tmp_path / "dataset").failures == ()
    # The encoder leaves some of the last frames out.
    with av.open(source) as container:
        played = [read_number(frame_to_rgb(frame)) for frame in container.decode(video=0)]
    assert played[:15] == list(range(15))
    assert numbers_in(tmp_path / "dataset") == played


@pytest.mark.parametrize("made_up", [(), ("-fflags", "+genpts")], ids=["times of decoding", "genpts"])
def test_unpacked_b_frames_are_all_there_and_the_first_is_shown_once(made_up: tuple[str, ...], tmp_path: Path) -> None:
    """The encoder left the first chunks of the AVI empty, while it waited for frames: that is no pause."""
    options = ("-c:v", "libxvid", "-q:v", "2", "-bf", "2", "-g", "12")
    source = encode_pictures(tmp_path / "x.avi", numbered(range(20)), *options)
    copy = tmp_path / "x.mp4"
    ffmpeg(*made_up, "-i", source, "-c", "copy", "-bsf:v", "mpeg4_unpack_bframes", copy)
    assert make_dataset([copy], tmp_path / "dataset").failures == ()
    with av.open(source) as container:
        played = [read_number(frame_to_rgb(frame)) for frame in container.decode(video=0)]
    # The encoder leaves some of the last frames out.
    assert played[:15] == list(range(15))
    assert numbers_in(tmp_path / "dataset") == played


def test_a_first_frame_that_is_shown_for_long_stays_so_where_nothing_was_packed(
    pictures: list[bytes], tmp_path: Path
) -> None:
    """As in a recording of a screen that began with a pause."""
    source = written(tmp_path / "x.mp4", pictures, [0, *range(3, 2 + len(pictures))])
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    assert numbers_in(tmp_path / "dataset") == [0, 0, 0, *range(1, FRAMES)]


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["wmv", "mpg", "ts"])
def test_packed_b_frames_that_are_split_are_refused_with_the_command_that_copies_them_right(
    suffix: str, tmp_path: Path
) -> None:
    """Up to three frames were at the times of others, without a word."""
    options = ("-c:v", "libxvid", "-q:v", "2", "-bf", "2", "-g", "12")
    source = encode_pictures(tmp_path / "FILE.avi", numbered(range(20)), *options)
    ffmpeg("-fflags", "+genpts", "-i", source, "-c", "copy", tmp_path / f"x.{suffix}")
    (failure,) = make_dataset([tmp_path / f"x.{suffix}"], tmp_path / "refused").failures
    assert "packed B-frames" in failure.reason
    (command,) = re.findall("`(.*)`", failure.reason)
    ffmpeg(*command.replace("FILE.avi", str(source)).replace("OUT.wmv", str(tmp_path / "OUT.wmv")).split()[1:])
    for right in (source, tmp_path / "OUT.wmv"):
        assert make_dataset([right], tmp_path / f"{right.name} dataset").failures == ()
        assert numbers_in(tmp_path / f"{right.name} dataset")[:15] == list(range(15))


def numbers_in(dataset: Path) -> list[int]:
    return [read_number(frame) for frame in shortgop.open(dataset)[0]]


@pytest.mark.parametrize("suffix", ["avi", "mp4", "mkv"])
def test_the_frame_before_a_picture_that_is_not_coded_is_shown_again(
    suffix: str, pictures: list[bytes], tmp_path: Path
) -> None:
    """FFmpeg shows nothing of it, and later frames came too late where packets have the times of decoding."""
    chunks, expected = list[bytes](), list[int]()
    for number, picture in enumerate(pictures):
        chunks.append(picture)
        expected.append(number)
        # B-frames have even numbers in the order of decoding.
        if number in (4, 12, 20):
            chunks.append(not_coded(pictures[number - 1]))
            expected.append(number)
    assert make_dataset([written(tmp_path / f"x.{suffix}", chunks)], tmp_path / "dataset").failures == ()
    assert numbers_in(tmp_path / "dataset") == expected


def not_coded(before: bytes) -> bytes:
    """A picture of which nothing is coded, at the time of the one `before`, in 5 bits for 30 frames/s."""
    start = before.index(PICTURE) + len(PICTURE)
    bits = f"{int.from_bytes(before[start : start + 4]):032b}"
    # Behind the type (2 bits): the seconds, each 1, a 0, a marker, and the time.
    time = bits.index("0", 2) + 2
    # The time, a marker, a 0, and what fills the byte.
    return PICTURE + int(f"0101{bits[time : time + 5]}1001111", 2).to_bytes(2)


def without_b_frames(picture: bytes) -> bytes:
    """The packet with a header, if it has one, which says that there are no B-frames (low_delay)."""
    at = picture.find(LAYER) + len(LAYER)
    if at < len(LAYER):
        return picture
    # 1 + 8 bits, an identifier of the layer (1 + 7), the aspect (4), the parameters of control (1), chroma (2).
    has_identifier = picture[at + 1] & 0x40
    bit = 9 + (8 if has_identifier else 1) + 4 + 1 + 2
    out = bytearray(picture)
    out[at + bit // 8] |= 0x80 >> bit % 8
    return bytes(out)


@pytest.mark.parametrize("suffix", ["avi", "mkv", "m4v"])
def test_b_frames_that_the_header_denies_are_not_shown_in_the_wrong_order(
    suffix: str, pictures: list[bytes], tmp_path: Path
) -> None:
    """FFmpeg believes the header, without a word."""
    denied = [without_b_frames(picture) for picture in pictures]
    assert denied[0] != pictures[0]
    source = tmp_path / f"x.{suffix}"
    if suffix == "m4v":
        source.write_bytes(b"".join(denied))
    else:
        written(source, denied)
    (failure,) = make_dataset([source], tmp_path / "dataset").failures
    assert "its frames in the wrong order; convert it" in failure.reason


def test_a_header_that_denies_b_frames_is_right_where_there_are_none(tmp_path: Path) -> None:
    options = ("-c:v", "mpeg4", "-q:v", "3", "-bf", "0")
    source = encode_pictures(tmp_path / "x.avi", numbered(range(FRAMES)), *options)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
