"""Streams that other programs write and players read, and those that nothing can read without something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

import shortgop
from datasets import make_dataset
from encodes import encode
from odd_pictures import X264, encode_pictures, ffmpeg, h264_packets, numbered, timed
from shortgop.prep.probing.headers.access_units import HeaderReader, has_alpha_layer
from synthetic import read_number

FRAMES = 20
PREFIX_SEI = b"\0\0\0\1\x4e\x01"


def video_of(source: Path) -> shortgop.Video:
    dataset = source.parent / "dataset"
    assert make_dataset([source], dataset).failures == ()
    return shortgop.open(dataset)[0]


def reason_against(source: Path) -> str:
    (failure,) = make_dataset([source], source.parent / "dataset").failures
    return failure.reason


def made(path: Path, *options: str) -> Path:
    return encode_pictures(path, numbered(range(FRAMES)), "-pix_fmt", "yuv420p", *options)


def test_hevc_with_a_message_that_ends_within_its_header_is_prepared(tmp_path: Path) -> None:
    """Reading beyond the end of it ended prep of that source with a trace."""
    message = b"\x05\x01\x40\xff\xff"
    data = made(tmp_path / "plain.hevc", "-c:v", "libx265", "-x265-params", "log-level=none").read_bytes()
    first_slice = re.search(rb"\x00\x00\x01[\x26\x28]\x01", data)
    assert first_slice is not None
    at = first_slice.start() - 1
    (tmp_path / "x.hevc").write_bytes(data[:at] + PREFIX_SEI + message + data[at:])
    assert [read_number(frame) for frame in video_of(tmp_path / "x.hevc")] == list(range(FRAMES))


@pytest.mark.parametrize("suffix", ["mp4", "ts"])
def test_h264_with_a_message_that_states_a_wrong_length_is_prepared(suffix: str, tmp_path: Path) -> None:
    """Cameras and servers that add captions write such. All frames up to the next keyframe were said to be lost."""
    data = made(tmp_path / f"plain.{suffix}", *X264).read_bytes()
    # x264 says in a message what it is: its kind, its length in several bytes, and an identifier.
    message = re.search(rb"\x06\x05\xff\xff([\x00-\xf0])\xdc\x45\xe9\xbd", data)
    assert message is not None
    at = message.start(1)
    (tmp_path / f"x.{suffix}").write_bytes(data[:at] + bytes([data[at] + 9]) + data[at + 1 :])
    video = video_of(tmp_path / f"x.{suffix}")
    assert [read_number(frame) for frame in video.get_all_frames().data] == list(range(FRAMES))
    assert video.changes.dropped == 0


def test_a_slice_that_damage_made_a_message_is_lost(tmp_path: Path) -> None:
    """FFmpeg says only that the length of the message is wrong, and the picture lacks a part."""
    pictures = [np.concatenate([picture] * 4) for picture in numbered(range(FRAMES))]
    slices = ("-bf", "0", "-x264-params", "slices=4", "-pix_fmt", "yuv420p")
    source = encode_pictures(tmp_path / "x.mp4", pictures, *X264, *slices)
    with av.open(source) as container:
        packet = next(packet for number, packet in enumerate(container.demux(video=0)) if number == 3)
    assert packet.pos is not None
    data, at = bytearray(source.read_bytes()), packet.pos
    # The last NAL unit of the packet: each begins with its length and its type.
    while at + 4 + int.from_bytes(data[at : at + 4]) < packet.pos + packet.size:
        at += 4 + int.from_bytes(data[at : at + 4])
    assert data[at + 4] & 0x1F == 1
    data[at + 4] = 6
    source.write_bytes(data)
    assert "refer to lost ones" in reason_against(source)


def test_an_alpha_layer_is_found_behind_a_message_whose_zeros_are_escaped() -> None:
    escaped = b"\x05\x06" + b"\0\0\3\0\0\3\1\1"
    assert has_alpha_layer(b"", PREFIX_SEI + escaped + b"\xa5\x01\x00\x80")


def test_only_the_lowest_layer_says_whether_decoding_may_start() -> None:
    """The second view of stereo need not have a keyframe of its own there."""
    keyframe, other_layer = b"\0\0\1\x26\1" + b"\x80" * 8, b"\0\0\1\2\x09" + b"\x80" * 8
    assert HeaderReader("hevc", b"").read(keyframe + other_layer).is_entry
    assert not HeaderReader("hevc", b"").read(other_layer).is_entry


def renumbered(data: bytes) -> Iterator[bytes]:
    """The NAL units of an H.264 stream with frame_num of 4 bits; frames that no other one refers to get the number of
    the reference frame before."""
    last = 0
    for nal in data.split(b"\0\0\1")[1:]:
        kind, is_referred_to = nal[0] & 31, bool(nal[0] & 0x60)
        bits = f"{int.from_bytes(nal[1:9]):064b}"
        at = 0
        if kind in (1, 5):
            for _ in range(3):  # first_mb_in_slice, slice_type, pic_parameter_set_id
                zeros = len(bits[at:]) - len(bits[at:].lstrip("0"))
                at += 2 * zeros + 1
            if is_referred_to:
                last = int(bits[at : at + 4], 2)
            else:
                bits = f"{bits[:at]}{last:04b}{bits[at + 4 :]}"
        yield b"\0\0\1" + nal[:1] + (int(bits, 2).to_bytes(8) if kind in (1, 5) else nal[1:9]) + nal[9:]


def test_frames_that_no_other_refers_to_may_have_the_number_of_the_frame_before(tmp_path: Path) -> None:
    """Some encoders number them so. Each was taken for a sign of a missing frame."""
    data = made(tmp_path / "plain.h264", *X264, "-bf", "2", "-x264-params", "ref=1:b-pyramid=none").read_bytes()
    other = b"".join(renumbered(data))
    assert other != data
    (tmp_path / "x.h264").write_bytes(other)
    assert [read_number(frame) for frame in video_of(tmp_path / "x.h264")] == list(range(FRAMES))


def without_restriction(sps: bytes) -> bytes:
    """The SPS of x264 without its last fields, which say how many frames a decoder has to hold back."""
    bits = "".join(f"{byte:08b}" for byte in sps.replace(b"\0\0\3", b"\0\0")).rstrip("0")[:-1]
    # bitstream_restriction_flag and three fields of one bit; the lengths of vectors, 2 to the 7th to the 14th; and how
    # many frames are held back, and kept.
    at = re.search(r"1111(?:0001...){2}(?:1|01.|001..)(?:1|01.|001..)$", bits)
    assert at is not None
    bits = bits[: at.start()] + "01"
    bits += "0" * (-len(bits) % 8)
    return re.sub(rb"(?s)\x00\x00(?=[\x00-\x03])", b"\0\0\3", int(bits, 2).to_bytes(len(bits) // 8))


@pytest.mark.parametrize("suffix", ["mkv", "ts"])
def test_b_frames_that_begin_late_are_all_there_where_the_stream_does_not_tell_of_them(
    suffix: str, tmp_path: Path
) -> None:
    """FFmpeg's decoder left out a frame each time that it had held back too few, and the source was called damaged."""
    parts = [
        h264_packets(tmp_path / f"{b_frames}.ts", range(first, first + FRAMES), "-bf", b_frames, "-b_strategy", "0")
        for first, b_frames in ((0, "0"), (FRAMES, "3"))
    ]
    sps = re.compile(rb"(?s)(?<=\x00\x00\x01)\x67.*?(?=\x00*\x00\x00\x01)")
    packets = [
        (number + 4, place, sps.sub(lambda match: without_restriction(match[0]), data))
        for place, (number, data) in enumerate([*parts[0], *parts[1]])
    ]
    source = timed(tmp_path / "0.ts", tmp_path / f"x.{suffix}", packets)
    assert [read_number(frame) for frame in video_of(source)] == list(range(2 * FRAMES))


def test_an_encrypted_video_is_called_that(tmp_path: Path) -> None:
    """Its frames may decode to noise, and it was called damaged, or copied badly."""
    key = "00112233445566778899aabbccddeeff"
    source = made(tmp_path / "plain.mp4", *X264)
    ffmpeg(
        *("-i", source, "-c", "copy", "-encryption_scheme", "cenc-aes-ctr", "-encryption_key", key),
        *("-encryption_kid", key, tmp_path / "x.mp4"),
    )
    assert reason_against(tmp_path / "x.mp4").endswith("x.mp4 is encrypted; decrypt it first, with its key")
    # Of some such files FFmpeg does not take apart what says which bytes are encrypted, and does not open them.
    data = (tmp_path / "x.mp4").read_bytes()
    senc = data.index(b"senc") + 8
    too_many = (1 << 24).to_bytes(4)
    (tmp_path / "y.mp4").write_bytes(data[:senc] + too_many + data[senc + 4 :])
    said = "does not open as a video (Invalid data found when processing input): it is encrypted; decrypt it first"
    assert said in reason_against(tmp_path / "y.mp4")


def test_segments_of_a_stream_and_their_beginning_say_that_they_belong_together(tmp_path: Path) -> None:
    init, fragments = encode(frames=16)
    for name, data in (("init.mp4", init), ("segment.m4s", fragments[1]), ("one.mp4", init + b"".join(fragments))):
        (tmp_path / name).write_bytes(data)
    remedy = r"join the segments with it \(`cat INIT SEGMENT... > one.mp4`\) and give that$"
    assert re.search(
        f"init.mp4 is only the initialization segment of a stream; {remedy}", reason_against(tmp_path / "init.mp4")
    )
    said = f"it is a segment of a stream .* without the initialization segment, .*; {remedy}"
    assert re.search(said, reason_against(tmp_path / "segment.m4s"))
    assert len(video_of(tmp_path / "one.mp4")) == 16
