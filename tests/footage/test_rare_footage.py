"""Footage that is seldom met: what docs/footage.md says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import numpy as np
import pytest

import shortgop
from datasets import current_manifest, make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered, remuxed
from shortgop.jobs.prepare import Where
from shortgop.jobs.prepare import prepare as job
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

MPEG2 = ("-c:v", "mpeg2video", "-q:v", "2")


def prepare(source: Path, tmp_path: Path, **options: Any) -> tuple[shortgop.Video, tuple[str, ...]]:
    assert make_dataset([source], tmp_path / "dataset", **options).failures == ()
    return shortgop.open(tmp_path / "dataset")[0], current_manifest(tmp_path / "dataset").changes(0).given_up


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["m2v", "mpg", "ts", "mkv"])
def test_mpeg2_that_changes_its_resolution_is_refused_and_its_lost_frame_marked_with_salvage(
    suffix: str, tmp_path: Path
) -> None:
    """FFmpeg's decoder does not put out the last frame before the change."""
    stream = tmp_path / "x.m2v"
    parts = [
        encode_pictures(tmp_path / f"part{size[0]}.m2v", numbered(shown, size), *MPEG2, "-g", "10", rate=25)
        for shown, size in ((range(20), (96, 64)), (range(20, 40), (128, 96)))
    ]
    stream.write_bytes(b"".join(part.read_bytes() for part in parts))
    source = stream
    if suffix != "m2v":
        source = tmp_path / f"x.{suffix}"
        ffmpeg("-r", "25", "-i", stream, "-c", "copy", "-bsf:v", "setts=ts=N", source)
    for salvage in (False, True):
        report = job(
            [str(source)],
            DiskStorage(tmp_path / f"{salvage}"),
            Profile(),
            policy=SourcePolicy(salvage),
            where=Where("inline"),
        )
        if not salvage:
            assert "a packet decodes to no frame" in report.failures[0].reason
            assert "--salvage prepares the others" in report.failures[0].reason
    video = shortgop.open(tmp_path / "True")[0]
    numbers = [read_number(frame) for frame in video]
    assert video.changes.dropped == 40 - len(set(numbers))
    salvaged = {frame for first, stop in video.changes.salvaged for frame in range(first, stop)}
    if suffix in {"ts", "mkv"}:
        assert len(numbers) == 40
    else:
        # Raw streams and program streams do not say when each frame is shown: what comes before the change is left.
        assert 8 <= len(numbers) < 20
    assert [number for frame, number in enumerate(numbers) if frame not in salvaged] == [
        frame for frame in range(len(numbers)) if frame not in salvaged
    ]


def test_hard_telecine_keeps_its_thirty_frames_a_second_and_is_deinterlaced(tmp_path: Path) -> None:
    """Four frames of film were made five of video, two of which mix fields: of these the first field is shown."""
    options = (
        "-vf",
        "telecine=first_field=top:pattern=23,setfield=tff,format=yuv420p",
        *MPEG2,
        "-flags",
        "+ildct+ilme",
    )
    source = encode_pictures(tmp_path / "x.ts", numbered(range(24)), *options, "-r", "30", rate=24)
    video, given_up = prepare(source, tmp_path)
    assert video.metadata.fps == 30
    assert [read_number(frame) for frame in video] == [4 * (k // 5) + (0, 1, 1, 2, 3)[k % 5] for k in range(30)]
    assert given_up == ("deinterlaced",)


def test_each_field_of_hevc_stays_a_frame_of_half_the_height(tmp_path: Path) -> None:
    """HEVC codes the two fields of a frame as pictures of their own."""
    fields = (
        "-c:v",
        "libx265",
        "-x265-params",
        "interlace=tff:log-level=none:pools=none:crf=15",
        "-pix_fmt",
        "yuv420p",
    )
    source = encode_pictures(tmp_path / "x.mkv", numbered(range(20)), *fields, rate=50)
    video, given_up = prepare(source, tmp_path)
    assert video.metadata.height == 64
    assert video.metadata.fps == 50
    assert [read_number(frame) for frame in video] == list(range(20))
    assert given_up == ()


def test_an_access_unit_that_decodes_to_something_else_is_wrong_up_to_the_next_keyframe_and_not_beyond(
    tmp_path: Path,
) -> None:
    """What no decoder can notice: the P frame of another recording, in the place of one that counts the same."""
    gop = ("-g", "10", "-keyint_min", "10", "-sc_threshold", "0", "-pix_fmt", "yuv420p")
    units = []
    for first in (0, 500):
        stream = encode_pictures(
            tmp_path / f"{first}.h264", numbered(range(first, first + 40)), *X264, *gop, "-aud", "1"
        )
        units.append(stream.read_bytes().split(b"\0\0\0\1\x09")[1:])
    assert [len(each) for each in units] == [40, 40]
    mixed = [*units[0][:13], units[1][13], *units[0][14:]]
    datasets = []
    for name, chosen in (("whole", units[0]), ("mixed", mixed)):
        (tmp_path / f"{name}.h264").write_bytes(b"".join(b"\0\0\0\1\x09" + unit for unit in chosen))
        (tmp_path / name).mkdir()
        source = remuxed(tmp_path / f"{name}.h264", tmp_path / f"{name}.mkv")
        datasets.append(prepare(source, tmp_path / name, gop_frames=2)[0])
    whole, wrong = datasets
    assert len(wrong) == 40
    assert wrong.changes.salvaged == ()
    right = [*range(13), *range(20, 40)]
    assert [read_number(wrong[frame]) for frame in right] == right
    apart = [np.abs(whole[k].numpy().astype(int) - wrong[k].numpy()).mean() for k in range(40)]
    assert min(apart[13:20]) > 4 * max(apart[:13] + apart[20:])


SUFFIXES = {"h264": "h264", "mpeg2video": "m2v", "mpeg1video": "m1v"}
ASPECT = "sample aspect ratio changes: one for all"


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", SUFFIXES)
@pytest.mark.parametrize("second", ["4/3", "1"])
def test_a_change_of_the_sample_aspect_ratio_is_told(codec: str, second: str, tmp_path: Path) -> None:
    encoder = X264 if codec == "h264" else ("-c:v", codec, "-q:v", "2")
    data = b""
    for index, aspect in enumerate(("1", second)):
        part = tmp_path / f"part{index}.{SUFFIXES[codec]}"
        shown = numbered(range(20 * index, 20 * index + 20))
        data += encode_pictures(part, shown, "-vf", f"setsar={aspect},format=yuv420p", *encoder, rate=25).read_bytes()
    (tmp_path / "x").write_bytes(data)
    container = "h264" if codec == "h264" else "mpegvideo"
    source = tmp_path / "x.mkv"
    ffmpeg("-f", container, "-r", "25", "-i", tmp_path / "x", "-c", "copy", "-bsf:v", "setts=ts=N", source)
    video, given_up = prepare(source, tmp_path)
    assert [read_number(frame) for frame in video] == list(range(40))
    assert given_up == ((ASPECT,) if second == "4/3" else ())


def test_an_ffmpeg_that_does_not_decode_the_alpha_of_hevc_is_not_used_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha = ("-c:v", "libx265", "-x265-params", "alpha=1:log-level=none:pools=none", "-pix_fmt", "yuva420p")
    source = encode_pictures(tmp_path / "x.mp4", numbered(range(3)), *alpha)
    # One that calls itself version 7, and is the same otherwise.
    older = tmp_path / "ffmpeg"
    real = imageio_ffmpeg.get_ffmpeg_exe()
    older.write_text(f'#!/bin/sh\n[ "$*" = -version ] && echo "ffmpeg version 7.1" && exit\nexec "{real}" "$@"\n')
    older.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(older))
    find_ffmpeg.cache_clear()
    try:
        (failure,) = make_dataset([source], tmp_path / "dataset").failures
    finally:
        find_ffmpeg.cache_clear()
    assert "x.mp4 is HEVC with alpha" in failure.reason
    assert "imageio-ffmpeg" in failure.reason


@pytest.mark.parametrize("is_default", [False, True])
def test_a_thumbnail_that_is_the_default_track_of_matroska_is_passed_over(is_default: bool, tmp_path: Path) -> None:
    thumbnail = encode_pictures(tmp_path / "t.mp4", numbered([999]), "-c:v", "mjpeg", "-pix_fmt", "yuvj420p")
    moving = encode_pictures(tmp_path / "v.mp4", numbered(range(20)), *X264, "-pix_fmt", "yuv420p")
    maps = ("-map", "0:v", "-map", "1:v", "-c", "copy")
    flags = ("-disposition:0", "default" if is_default else "0", "-disposition:1", "0" if is_default else "default")
    ffmpeg("-i", thumbnail, "-i", moving, *maps, *flags, tmp_path / "x.mkv")
    video, _ = prepare(tmp_path / "x.mkv", tmp_path)
    assert [read_number(frame) for frame in video] == list(range(20))


def test_the_highest_layer_of_av1_is_shown_that_is_there(tmp_path: Path) -> None:
    """Two layers as recorders of calls write them; from the 4th frame to the 6th the higher one is missing."""
    low, high = (av1_pictures(tmp_path / f"{first}.obu", range(first, first + 8)) for first in (0, 100))
    stream = b""
    for number, (lower, higher) in enumerate(zip(low, high, strict=True)):
        # A temporal delimiter, how to decode both layers, and a picture of each.
        stream += av1_unit(2, b"") + av1_unit(1, of_two_layers(lower[1])) + av1_unit(6, lower[6], layer=0)
        stream += b"" if number in (4, 5, 6) else av1_unit(6, higher[6], layer=1)
    (tmp_path / "x.obu").write_bytes(stream)
    ffmpeg("-i", tmp_path / "x.obu", "-c", "copy", tmp_path / "x.mkv")
    video, _ = prepare(tmp_path / "x.mkv", tmp_path)
    assert [read_number(frame) for frame in video] == [100, 101, 102, 103, 4, 5, 6, 107]


def av1_pictures(path: Path, numbers: range) -> list[dict[int, bytes]]:
    """Pictures that refer to no other: what each unit (OBU) of them holds, by its type."""
    options = ("-c:v", "libaom-av1", "-cpu-used", "8", "-crf", "10", "-g", "1", "-pix_fmt", "yuv420p")
    encode_pictures(path, numbered(numbers), *options)
    with av.open(path) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    return [dict(av1_units(packet)) for packet in packets]


def av1_units(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of the units in a packet (AV1 specification, 5.3), which state their lengths in 7-bit groups."""
    at = 0
    while at < len(data):
        kind, length, shift = data[at] >> 3 & 15, 0, 0
        while True:
            at += 1
            length |= (data[at] & 127) << shift
            shift += 7
            if data[at] < 128:
                break
        yield kind, data[at + 1 : at + 1 + length]
        at += 1 + length


def av1_unit(kind: int, content: bytes, *, layer: int | None = None) -> bytes:
    has_length, has_extension = 2, 4
    header = bytes([kind << 3 | has_length]) if layer is None else bytes([kind << 3 | has_length | has_extension])
    extension = b"" if layer is None else bytes([layer << 3])
    low, high = len(content) & 127, len(content) >> 7
    return header + extension + (bytes([low | 128, high]) if high else bytes([low])) + content


def of_two_layers(sequence_header: bytes) -> bytes:
    """The sequence header with an operating point of the spatial layers 0 and 1 and the temporal layer 0, in 12 bits
    behind the first 12."""
    bits = len(sequence_header) * 8 - 24
    return (int.from_bytes(sequence_header) & ~(0xFFF << bits) | 0b0011_0000_0001 << bits).to_bytes(
        len(sequence_header)
    )


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_stereo_that_headers_and_the_container_state_is_prepared(suffix: str, tmp_path: Path) -> None:
    """Two views side by side, marked by x264 and once more by who muxed it. FFmpeg 9 failed: "File exists"."""
    pictures = [np.hstack([picture, picture]) for picture in numbered(range(20))]
    headers = ("-x264-params", "frame-packing=3")
    marked = encode_pictures(tmp_path / "marked.mkv", pictures, "-pix_fmt", "yuv420p", *X264, *headers)
    source = tmp_path / f"x.{suffix}"
    ffmpeg("-i", marked, "-c", "copy", "-metadata:s:v", "stereo_mode=left_right", tmp_path / "twice.mkv")
    ffmpeg("-i", tmp_path / "twice.mkv", "-c", "copy", "-strict", "unofficial", source)
    video, given_up = prepare(source, tmp_path)
    assert given_up == ("stereo 3D tag dropped",)
    for view in (slice(0, 96), slice(96, 192)):
        assert [read_number(frame[..., view]) for frame in video] == list(range(20))


INTERLACED = ("-flags", "+ilme+ildct", "-x264-params", "frame-packing=3")


@pytest.mark.parametrize(
    ("options", "start", "reason"),
    [
        (
            ("-x264-params", "open-gop=1:b-adapt=0:frame-packing=3"),
            "0.9",
            "does not show all frames without the headers",
        ),
        (INTERLACED, "0", "its headers and its container probably both say how it is turned, or that it is stereo 3D"),
    ],
    ids=["a cut of open GOPs", "interlaced"],
)
def test_what_is_stated_twice_is_refused_with_the_command_that_helps_where_other_messages_are_needed(
    options: Sequence[str], start: str, reason: str, tmp_path: Path
) -> None:
    """Messages also tell where decoding may start, and of fields: ffmpeg left out some of the first frames of a cut."""
    coded = ("-pix_fmt", "yuv420p", "-c:v", "libx264", "-bf", "2", "-g", "10", *options)
    marked = encode_pictures(tmp_path / "marked.mkv", numbered(range(60), (192, 64)), *coded)
    ffmpeg("-i", marked, "-c", "copy", "-metadata:s:v", "stereo_mode=left_right", tmp_path / "twice.mkv")
    ffmpeg("-ss", start, "-i", tmp_path / "twice.mkv", "-c", "copy", tmp_path / "x.mkv")
    (failure,) = make_dataset([tmp_path / "x.mkv"], tmp_path / "refused").failures
    assert reason in failure.reason
    (command,) = re.findall("`ffmpeg (.*?)`", failure.reason)
    made = {"FILE": tmp_path / "x.mkv", "OUT.mp4": tmp_path / "OUT.mp4"}
    ffmpeg(*[made.get(word, word) for word in command.split()])
    video, _ = prepare(tmp_path / "OUT.mp4", tmp_path)
    shown = [read_number(frame) for frame in video]
    assert shown == list(range(shown[0], 60))
    assert shown[0] == (20 if start == "0.9" else 0)
