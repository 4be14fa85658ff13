"""Interlaced sources: one picture for each frame of two fields, at its own time, and without combs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import shortgop
from datasets import current_manifest, make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.prep.probing.picture_properties import Fields
from shortgop.prep.probing.probe import probe
from synthetic import read_number

# What a real interlaced camera gives: the rows of the first field show one time, those of the second a later one.
TOP_FIRST, BOTTOM_FIRST = "interlace=scan=tff:lowpass=off", "interlace=scan=bff:lowpass=off"
X264_FIELDS = {"tff": (*X264, "-x264-params", "tff=1"), "bff": (*X264, "-x264-params", "bff=1")}
MPEG2 = ("-c:v", "mpeg2video", "-q:v", "2", "-bf", "2", "-flags", "+ildct+ilme")

SOURCES: dict[str, tuple[str, tuple[int, int], Sequence[str]]] = {
    "H.264, top first": ("x.mp4", (96, 64), ("-vf", "setfield=tff,format=yuv420p", *X264_FIELDS["tff"])),
    "H.264, bottom first": ("x.mkv", (96, 64), ("-vf", "setfield=bff,format=yuv420p", *X264_FIELDS["bff"])),
    "H.264 in TS, B-frames": (
        "x.ts", (96, 64), ("-vf", "setfield=tff,format=yuv420p", *X264_FIELDS["tff"], "-bf", "3"),
    ),
    "MPEG-2, top first": ("x.ts", (96, 64), ("-vf", "setfield=tff,format=yuv420p", *MPEG2)),
    "MPEG-2, bottom first": ("x.mpg", (96, 64), ("-vf", "setfield=bff,format=yuv420p", *MPEG2)),
    "DV": ("x.avi", (720, 576), ("-c:v", "dvvideo", "-pix_fmt", "yuv420p", "-r", "25")),
    "MPEG-4": (
        "x.avi", (96, 64), ("-vf", "setfield=tff,format=yuv420p", "-c:v", "mpeg4", "-q:v", "2", "-flags", "+ildct"),
    ),
    "ProRes": ("x.mov", (96, 64), ("-vf", "setfield=tff,format=yuv422p10le", "-c:v", "prores_ks", "-flags", "+ildct")),
    "Motion JPEG, as the container says": (
        "x.mov", (96, 64), ("-vf", "setfield=tff,format=yuvj422p", "-c:v", "mjpeg", "-q:v", "2", "-field_order", "tt"),
    ),
    "HuffYUV, as the container says": (
        "x.mkv", (96, 64), ("-vf", "setfield=bff,format=yuv422p", "-c:v", "huffyuv", "-field_order", "bb"),
    ),
}  # fmt: skip


def prepare(source: Path, tmp_path: Path, **options: Any) -> tuple[shortgop.Video, tuple[str, ...]]:
    dataset = tmp_path / f"dataset-{len(list(tmp_path.iterdir()))}"
    assert make_dataset([source], dataset, **options).failures == ()
    return shortgop.open(dataset)[0], current_manifest(dataset).changes(0).given_up


def bar(time: float, size: tuple[int, int] = (96, 64)) -> NDArray[np.uint8]:
    """A white bar that moves by four pixels in each unit of time; nothing in it changes from row to row."""
    picture = np.full((size[1], size[0], 3), 64, np.uint8)
    left = int(8 + 4 * time)
    picture[:, left : left + 12] = 224
    return picture


def combing(frame: NDArray[Any]) -> float:
    """How much rows differ from the mean of those above and below."""
    rows = frame.mean(axis=0, dtype=float)
    return float(np.abs(rows[1:-1] - (rows[:-2] + rows[2:]) / 2).mean())


def bar_left(frame: NDArray[Any]) -> float:
    """Where the bar begins, from how much of the width is bright; it is 12 pixels wide."""
    columns = frame.mean(axis=(0, 1), dtype=float)
    weights = np.clip((columns - 64) / 160, 0, 1)
    return float((weights * np.arange(len(weights))).sum() / weights.sum() - 5.5)


@pytest.mark.first_case_short
@pytest.mark.parametrize("kind", SOURCES)
def test_every_interlaced_frame_becomes_one_frame_at_its_own_time(kind: str, tmp_path: Path) -> None:
    name, size, options = SOURCES[kind]
    rate = 25 if kind == "DV" else 30
    source = encode_pictures(tmp_path / name, numbered(range(20), size), *options, rate=rate)
    video, given_up = prepare(source, tmp_path)
    assert [read_number(frame) for frame in video] == list(range(20))
    assert "deinterlaced" in given_up


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    "encoder",
    [
        ("libsvtav1", "-preset", "10", "-crf", "15", "-svtav1-params", "lp=1"),
        ("libvpx", "-b:v", "1M"),
        ("libvpx-vp9", "-b:v", "1M"),
        ("libtheora", "-q:v", "9"),
        ("mpeg1video", "-q:v", "2"),
        ("huffyuv", "-pix_fmt", "yuv422p"),
        ("qtrle",),
        X264[1:],
        ("libx265", "-preset", "ultrafast", "-crf", "10", "-x265-params", "log-level=error"),
        ("mpeg4", "-q:v", "2"),
        ("prores_ks",),
    ],
    ids=lambda encoder: encoder[0],
)
@pytest.mark.parametrize(("filters", "fields"), [(TOP_FIRST, Fields.TOP_FIRST), (BOTTOM_FIRST, Fields.BOTTOM_FIRST)])
def test_fields_that_only_the_container_tells_of_are_deinterlaced(
    filters: str, fields: Fields, encoder: Sequence[str], tmp_path: Path
) -> None:
    """Frames of these codecs do not say whether they have fields, or say that they have none where their encoder was
    not told of them."""
    suffix = {"qtrle": "mov", "prores_ks": "mov", "libx265": "mp4"}.get(encoder[0], "mkv")
    pixels = {"qtrle": "rgb24", "prores_ks": "yuv422p10le"}.get(encoder[0], "yuv420p")
    coded = ("-vf", f"{filters},format={pixels}", "-c:v", *encoder)
    pictures = [bar(half / 2) for half in range(24)]
    source = encode_pictures(tmp_path / f"x.{suffix}", pictures, *coded, rate=60)
    assert probe(str(source)).picture.fields == fields
    combed, _ = prepare(source, tmp_path, deinterlace="never", crf=10)
    video, given_up = prepare(source, tmp_path, crf=10)
    assert "deinterlaced" in given_up
    for number in range(2, 10):
        assert combing(video[number].numpy()) < combing(combed[number].numpy()) / 3
        # As in the first field.
        assert bar_left(video[number].numpy()) == pytest.approx(8 + 4 * number, abs=1)


@pytest.mark.parametrize("suffix", ["ffconcat", "m3u8"])
def test_a_script_tells_of_fields_as_the_files_do_that_it_names(suffix: str, tmp_path: Path) -> None:
    options = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error", "-tag:v", "hvc1")
    fields = ("-vf", f"{BOTTOM_FIRST},format=yuv420p")
    part = encode_pictures(tmp_path / "part.mp4", [bar(half / 2) for half in range(24)], *fields, *options, rate=60)
    script = tmp_path / f"x.{suffix}"
    if suffix == "ffconcat":
        script.write_text("ffconcat version 1.0\nfile part.mp4\nfile part.mp4\n")
    else:
        ffmpeg("-i", part, "-c", "copy", "-hls_segment_type", "fmp4", "-hls_playlist_type", "vod", script)
    assert probe(str(script)).picture.fields == Fields.BOTTOM_FIRST
    assert "deinterlaced" in prepare(script, tmp_path)[1]


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    "encoder",
    [("-c:v", "mpeg2video", "-q:v", "2"), (*X264, "-x264-params", "fake-interlaced=1")],
    ids=lambda encoder: encoder[1],
)
def test_film_of_a_codec_of_discs_stays_as_it_is_whatever_the_container_says(
    encoder: Sequence[str], tmp_path: Path
) -> None:
    """Programs that copy discs call all of one interlaced, also what each frame says is not."""
    pictures = [bar(number) for number in range(12)]
    told = ("-vf", "setfield=tff,format=yuv420p", *encoder)
    source = encode_pictures(tmp_path / "x.mkv", pictures, *told)
    assert probe(str(source)).picture.fields == Fields.FLAGGED
    as_it_is, _ = prepare(source, tmp_path, deinterlace="never")
    video, _ = prepare(source, tmp_path)
    assert torch.equal(video[:], as_it_is[:])


@pytest.mark.first_case_short
@pytest.mark.parametrize("first", ["tff", "bff"])
@pytest.mark.parametrize("codec", ["h264", "mpeg2video"])
def test_combs_of_moving_things_are_gone_and_nothing_is_late(first: str, codec: str, tmp_path: Path) -> None:
    fields = {"tff": TOP_FIRST, "bff": BOTTOM_FIRST}[first]
    encoder = MPEG2 if codec == "mpeg2video" else X264_FIELDS[first]
    # Sixty pictures a second, of which each frame takes a half of two.
    source = encode_pictures(
        tmp_path / "x.mkv", [bar(half / 2) for half in range(32)], "-vf", f"{fields},format=yuv420p", *encoder, rate=60
    )
    woven, nothing = prepare(source, tmp_path, deinterlace="never", crf=10)
    video, given_up = prepare(source, tmp_path, crf=10)
    assert (len(woven), len(video)) == (16, 16)
    assert ("deinterlaced" in given_up, "deinterlaced" in nothing) == (True, False)
    before, after = ([combing(frame.numpy()) for frame in v] for v in (woven, video))
    # The first and the last frame have a neighbour on one side only.
    assert min(before[1:-1]) > 3
    assert max(after[1:-1]) < 0.25 * min(before[1:-1])
    for number, frame in enumerate(video):
        assert abs(bar_left(frame.numpy()) - bar_left(bar(number).transpose(2, 0, 1))) < 1


def test_progressive_frames_between_interlaced_ones_stay_as_they_are(tmp_path: Path) -> None:
    """Rows that alternate are what deinterlacing blurs first, and what a progressive frame may well have."""
    stripes = np.zeros((64, 96, 3), np.uint8)
    stripes[::2] = 200
    moving = [np.roll(stripes, number, axis=0) for number in range(12)]
    fields = encode_pictures(tmp_path / "a.h264", numbered(range(12)), "-pix_fmt", "yuv420p", *X264_FIELDS["tff"])
    frames = encode_pictures(tmp_path / "b.h264", moving, "-pix_fmt", "yuv420p", *X264)
    (tmp_path / "x.h264").write_bytes(fields.read_bytes() + frames.read_bytes())
    video, given_up = prepare(tmp_path / "x.h264", tmp_path, crf=10)
    assert "deinterlaced" in given_up
    assert [read_number(frame) for frame in list(video)[:12]] == list(range(12))
    for frame in list(video)[12:]:
        assert combing(frame.numpy()) > 150


def test_fields_that_begin_later_are_found(tmp_path: Path) -> None:
    """A broadcast that begins with film and goes on with video."""
    data = b""
    for index, options in enumerate([("-pix_fmt", "yuv420p"), ("-vf", "setfield=tff,format=yuv420p", *MPEG2[6:])]):
        part = tmp_path / f"part{index}.m2v"
        pictures = numbered(range(40 * index, 40 * (index + 1)))
        data += encode_pictures(part, pictures, "-c:v", "mpeg2video", "-q:v", "2", "-g", "10", *options).read_bytes()
    (tmp_path / "x.m2v").write_bytes(data)
    ffmpeg("-r", "30", "-i", tmp_path / "x.m2v", "-c", "copy", "-bsf:v", "setts=ts=N", tmp_path / "x.mkv")
    video, given_up = prepare(tmp_path / "x.mkv", tmp_path)
    assert [read_number(frame) for frame in video] == list(range(80))
    assert "deinterlaced" in given_up


def test_a_progressive_source_is_left_alone(tmp_path: Path) -> None:
    source = encode_pictures(tmp_path / "x.mp4", numbered(range(5)), "-pix_fmt", "yuv420p", *X264)
    assert prepare(source, tmp_path)[1] == ()


def telecined(stream: bytes) -> bytes:
    """A stream of MPEG-2 whose frames are to be shown for three fields and two in turn, as on DVDs and in broadcasts
    (ISO/IEC 13818-2, 6.2.2.3 and 6.2.3.1)."""
    data, first, latest = bytearray(stream), 0, -1
    at = -1
    while (at := data.find(b"\0\0\1", at + 1)) >= 0:
        kind, extension = data[at + 3], data[at + 4] >> 4
        if kind == 0xB8:
            # A group of pictures, in which they are counted anew.
            first, latest = first + latest + 1, -1
        elif kind == 0x00:
            number = data[at + 4] << 2 | data[at + 5] >> 6
            latest = max(latest, number)
        elif kind == 0xB5 and extension == 1:
            data[at + 5] &= ~0x08  # not all frames are shown for two fields
        elif kind == 0xB5 and extension == 8:
            top_first, repeats = ((1, 1), (0, 0), (0, 1), (1, 0))[(first + number) % 4]
            data[at + 7] = data[at + 7] & ~0x82 | top_first << 7 | repeats << 1
    return bytes(data)


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["m2v", "mpg", "vob", "ts", "mkv", "mp4"])
def test_film_on_video_keeps_its_frames(suffix: str, tmp_path: Path) -> None:
    """Soft telecine: of 24 progressive frames a second every other one is shown for three fields. At the rate of the
    video, one in four would be shown twice."""
    coded = ("-c:v", "mpeg2video", "-q:v", "2", "-bf", "2", "-pix_fmt", "yuv420p", "-r", "30000/1001")
    film = encode_pictures(tmp_path / "film.m2v", numbered(range(72)), *coded)
    source = tmp_path / "x.m2v"
    source.write_bytes(telecined(film.read_bytes()))
    if suffix != "m2v":
        ffmpeg("-fflags", "+genpts", "-i", source, "-c", "copy", tmp_path / f"x.{suffix}")
    video, given_up = prepare(tmp_path / f"x.{suffix}", tmp_path)
    assert [read_number(frame) for frame in video] == list(range(72))
    assert video.metadata.fps == Fraction(24000, 1001)
    assert "deinterlaced" not in given_up


@pytest.mark.parametrize("frames", [1, 2])
def test_the_shortest_interlaced_sources(frames: int, tmp_path: Path) -> None:
    _, size, options = SOURCES["MPEG-2, top first"]
    source = encode_pictures(tmp_path / "x.ts", numbered(range(frames), size), *options)
    video, _ = prepare(source, tmp_path)
    # How long the last frame lasts is the container's guess.
    assert sorted({read_number(frame) for frame in video}) == list(range(frames))


def field_packets(folder: Path, frames: int, *, top_first: bool) -> list[bytes]:
    """Motion JPEG as cards that captured video wrote it: two pictures in a packet, each with every second row."""
    fields = []
    for second in (False, True):
        rows = slice(int(second == top_first), None, 2)
        pictures = [bar(frame + second / 2)[rows].copy() for frame in range(frames)]
        path = encode_pictures(folder / "field.avi", pictures, "-c:v", "mjpeg", "-q:v", "2", "-pix_fmt", "yuvj422p")
        with av.open(path) as container:
            fields.append([bytes(packet) for packet in container.demux(video=0) if packet.size])
    return [first + other for first, other in zip(*fields, strict=True)]


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["avi", "mkv", "mov"])
@pytest.mark.parametrize("top_first", [True, False])
def test_motion_jpeg_with_two_pictures_in_a_packet_is_deinterlaced(
    top_first: bool, suffix: str, tmp_path: Path
) -> None:
    """FFmpeg puts them together without saying that they are fields: the first one into the lower rows in AVI, and into
    the upper ones elsewhere."""
    whole = encode_pictures(tmp_path / "whole.avi", [bar(0)], "-c:v", "mjpeg", "-q:v", "2", "-pix_fmt", "yuvj422p")
    packets = field_packets(tmp_path, 12, top_first=top_first)
    with av.open(whole) as container, av.open(tmp_path / "x.avi", "w") as out:
        stream = out.add_stream_from_template(container.streams.video[0])
        for number, data in enumerate(packets):
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 30), True
            packet.pts = packet.dts = number
            out.mux(packet)
    if suffix != "avi":
        ffmpeg("-i", tmp_path / "x.avi", "-c", "copy", tmp_path / f"x.{suffix}")
    combed, _ = prepare(tmp_path / f"x.{suffix}", tmp_path, deinterlace="never")
    video, told = prepare(tmp_path / f"x.{suffix}", tmp_path)
    assert "deinterlaced" in told
    assert len(video) == 12
    for number in range(2, 10):
        assert combing(video[number].numpy()) < combing(combed[number].numpy()) / 3
        # As in the first field.
        assert bar_left(video[number].numpy()) == pytest.approx(8 + 4 * number, abs=1)
