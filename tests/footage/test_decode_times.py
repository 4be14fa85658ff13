"""B-frames in containers that only say when packets are decoded: frames have these times, in the order shown."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np
import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, h264_packets, numbered, timed
from shortgop.prep.probing.probe import probe
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
_FRAMES = 100
# Copies of AVI, whose packets have no other times, and MXF as FFmpeg writes it.
COPIES = [("mpeg4", ".mp4"), ("libx264", ".mp4"), ("libx264", ".mov"), ("libx264", ".mxf")]


def copied(codec: str, suffix: str, folder: Path) -> Path:
    avi, copy = folder / "v.avi", folder / f"v{suffix}"
    video = make_video(
        folder / ("v.avi" if codec == "mpeg4" else "v.mkv"),
        pts=constant_rate_pts(RATE, _FRAMES, 1 / RATE), timebase=1 / RATE, codec=codec, gop=24, b_frames=2,
    )  # fmt: skip
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet"]
    headers = ["-bsf:v", "h264_mp4toannexb"] if codec == "libx264" else []
    if codec == "libx264":
        # With the rate, as Matroska's milliseconds would make AVI have empty chunks.
        subprocess.run([*program, "-r", "25", "-i", video.path, "-c", "copy", *headers, avi], check=True)
    subprocess.run([*program, "-i", avi, "-c", "copy", *(headers if suffix == ".mxf" else []), copy], check=True)
    with av.open(copy) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        assert all(packet.pts == packet.dts for packet in packets)
    return copy


@pytest.mark.first_case_short
@pytest.mark.parametrize(("codec", "suffix"), COPIES)
def test_all_frames_are_there_and_stretches_begin_where_they_should(codec: str, suffix: str, tmp_path: Path) -> None:
    source = copied(codec, suffix, tmp_path)
    assert probe(str(source)).has_decode_times
    assert make_dataset([source], tmp_path / "whole").failures == ()
    (video,) = shortgop.open(tmp_path / "whole")
    assert [read_number(frame) for frame in video] == list(range(_FRAMES))
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)

    (tmp_path / "list.csv").write_text(
        "\n".join(["id,path,start,end", *(f"{start},{source.name},{start},{start + 1}" for start in (0, 1, 3)), ""])
    )
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    dataset = shortgop.open(tmp_path / "cuts")
    for start in (0, 1, 3):
        first = start * 25
        assert [read_number(frame) for frame in dataset[str(start)]] == list(range(first, first + 25))


def test_without_b_frames_each_packet_has_the_time_of_its_frame(tmp_path: Path) -> None:
    pts = constant_rate_pts(RATE, 20, 1 / RATE)
    video = make_video(tmp_path / "v.mp4", pts=pts, timebase=1 / RATE, gop=10, b_frames=0)
    assert not probe(str(video.path)).has_decode_times
    assert probe(str(video.path)).entries.tolist() != []


@pytest.mark.first_case_short
@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize("suffix", ["mkv", "mp4", "ts"])
def test_times_that_are_later_than_those_of_decoding_by_the_same_in_all_packets(
    suffix: str, late: int, tmp_path: Path
) -> None:
    """In Matroska, FFmpeg makes up the times of decoding. Where one frame was looked at, the source was refused."""
    packets = enumerate(h264_packets(tmp_path / "v.ts", range(40), "-bf", "2", "-b_strategy", "0"))
    times = [(place + late, place, data) for place, (_, data) in packets]
    source = timed(tmp_path / "v.ts", tmp_path / f"x.{suffix}", times)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]] == list(range(40))


@pytest.mark.first_case_short
@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize("suffix", ["mkv", "mp4", "ts"])
def test_they_are_noticed_where_b_frames_begin_late(suffix: str, late: int, tmp_path: Path) -> None:
    """The first frames say nothing then. Those behind them were up to three frames late, and some were left out."""
    plain = h264_packets(tmp_path / "p.ts", range(30), "-bf", "2", "-x264-params", "b-adapt=1:b-bias=-100")
    assert [number for number, _ in plain] == list(range(30))
    packets = [*plain, *h264_packets(tmp_path / "b.ts", range(30, 90), "-bf", "2", "-g", "12", "-b_strategy", "0")]
    times = [(place + late, place, data) for place, (_, data) in enumerate(packets)]
    source = timed(tmp_path / "p.ts", tmp_path / f"x.{suffix}", times)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video] == list(range(90))
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)

    (tmp_path / "list.csv").write_text(f"path,start,end\n{source.name},1.5,2\n")
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cut", cuts="start,end", runner="inline")
    assert report.failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "cut")[0]] == list(range(45, 60))


X265 = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error:bframes=3:keyint=12:pools=none")
WITH_B_FRAMES = {
    "h264": (*X264[:-2], "-bf", "3", "-g", "12", "-pix_fmt", "yuv420p"),
    "hevc": (*X265, "-pix_fmt", "yuv420p"),
    "mpeg": ("-c:v", "mpeg2video", "-q:v", "2", "-bf", "2", "-g", "12"),
    "mpg": ("-c:v", "mpeg1video", "-q:v", "2", "-bf", "2", "-g", "12"),
    "mp4": (*X265, "-pix_fmt", "yuv420p"),
}


def in_even_steps(copy: Path, dataset: Path, frames: int) -> bool:
    """Whether a dataset of this video shows each frame once, at even times."""
    assert make_dataset([copy], dataset).failures == ()
    (video,) = shortgop.open(dataset)
    assert [read_number(frame) for frame in video] == list(range(frames))
    times = video.source_seconds(range(frames)).numpy()
    return bool(np.abs(np.diff(times) - 1 / 25).max() < 0.0011)


@pytest.mark.first_case_short
@pytest.mark.parametrize(("raw", "suffix"), [("h264", "mp4"), ("h264", "mov"), ("h264", "3gp"), ("hevc", "mp4")])
def test_no_edit_hides_frames_of_raw_streams_that_are_decoded_first(raw: str, suffix: str, tmp_path: Path) -> None:
    """FFmpeg copies a raw stream with the times of decoding, which begin before 0, and an edit that begins at 0."""
    stream = encode_pictures(tmp_path / f"x.{raw}", numbered(range(30)), *WITH_B_FRAMES[raw], rate=25)
    copy = tmp_path / f"x.{suffix}"
    ffmpeg("-r", "25", "-i", stream, "-c", "copy", copy)
    with av.open(copy) as container:
        assert any(packet.is_discard for packet in container.demux(video=0))
    assert in_even_steps(copy, tmp_path / "dataset", 30)


def test_an_edit_that_cuts_into_a_gop_is_followed(tmp_path: Path) -> None:
    """Packets that say when they are shown, and a track without B-frames, have edits that mean what they say."""
    for frames in ("0", "2"):
        full = tmp_path / f"full{frames}.mp4"
        encode_pictures(full, numbered(range(30)), *X264[:-1], frames, "-g", "12", "-pix_fmt", "yuv420p", rate=25)
        cut = tmp_path / f"cut{frames}.mp4"
        ffmpeg("-ss", "0.56", "-i", full, "-c", "copy", cut)
        assert make_dataset([cut], tmp_path / f"dataset{frames}").failures == ()
        (video,) = shortgop.open(tmp_path / f"dataset{frames}")
        assert [read_number(frame) for frame in video] == list(range(14, 30))


@pytest.mark.parametrize("coded", [("-bf", "0"), ("-g", "1"), ("-bf", "2")])
def test_the_first_frame_of_raw_mpeg1_lasts_as_long_as_others(coded: tuple[str, ...], tmp_path: Path) -> None:
    """FFmpeg puts all others an interval later where there are no B-frames. The first one was shown twice."""
    raw = ("-c:v", "mpeg1video", "-q:v", "2", *coded, "-f", "mpeg1video")
    source = encode_pictures(tmp_path / "x.mpg", numbered(range(20)), *raw, rate=25)
    assert in_even_steps(source, tmp_path / "dataset", 20)


@pytest.mark.parametrize(
    "coded",
    [
        ("-c:v", "libx264", "-bf", "2", "-x264-params", "b-adapt=1:b-bias=-100", "-pix_fmt", "yuv420p"),
        ("-c:v", "mpeg2video", "-q:v", "2", "-bf", "0"),
    ],
)
def test_an_edit_that_hides_nothing_counts_where_an_encoder_made_no_b_frames(
    coded: tuple[str, ...], tmp_path: Path
) -> None:
    """It takes the delay back that the encoder had for the B-frames that it might have made. `source_pts` were as much
    later than in players, and than the sound."""
    source = encode_pictures(tmp_path / "x.mp4", numbered(range(20)), *coded, rate=25)
    with av.open(source) as container:
        assert container.streams.video[0].codec_context.has_b_frames
        shown = [packet.pts for packet in container.demux(video=0) if packet.size]
    assert shown[0] == 0
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video] == list(range(20))
    assert video.source_pts(range(20)).tolist() == shown


@pytest.mark.parametrize(("start", "first"), [("0.06", 2), ("1.3", 33)])
def test_a_cut_of_a_video_whose_encoder_made_no_b_frames_begins_where_it_was_made(
    start: str, first: int, tmp_path: Path
) -> None:
    """The times of its packets are their own, all later by the same. The cut was not followed: the video began at the
    keyframe before it."""
    coded = ("-c:v", "libx264", "-bf", "2", "-g", "24", "-x264-params", "b-adapt=1:b-bias=-100", "-pix_fmt", "yuv420p")
    full = encode_pictures(tmp_path / "full.mp4", numbered(range(60)), *coded, rate=25)
    ffmpeg("-ss", start, "-i", full, "-c", "copy", tmp_path / "cut.mp4")
    assert make_dataset([tmp_path / "cut.mp4"], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video] == list(range(first, 60))
    assert video.source_seconds([0]).item() == 0

    # The first frames tell it too, where a stretch is made from a part of the file.
    with av.open(tmp_path / "cut.mp4") as container:
        sizes = [(packet.pos or 0, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray((tmp_path / "cut.mp4").read_bytes())
    begin, end = sizes[20][0], sum(sizes[-1])
    data[begin:end] = bytes(end - begin)
    (tmp_path / "part.mp4").write_bytes(data)
    whole, part = (probe(str(tmp_path / name), by_index=True) for name in ("cut.mp4", "part.mp4"))
    assert whole.pts is not None
    assert part.pts is not None
    assert part.pts.tolist() == whole.pts.tolist()
    assert not part.is_without_edits


@pytest.mark.first_case_short
@pytest.mark.parametrize(("native", "suffix"), [("mpeg", "wmv"), ("mpg", "wmv"), ("mpg", "avi"), ("mp4", "avi")])
def test_the_first_and_the_last_frame_last_as_long_as_others(native: str, suffix: str, tmp_path: Path) -> None:
    """AVI and ASF say when packets are decoded. When they are shown FFmpeg works out, but not for those at the ends."""
    source = encode_pictures(tmp_path / f"x.{native}", numbered(range(30)), *WITH_B_FRAMES[native], rate=25)
    copy = tmp_path / f"copy.{suffix}"
    ffmpeg("-i", source, "-c", "copy", copy)
    assert in_even_steps(copy, tmp_path / "dataset", 30)


@pytest.mark.first_case_short
@pytest.mark.parametrize("b_frames", ["0", "2"])
def test_the_last_frame_of_a_gxf_lasts_as_long_as_others(b_frames: str, tmp_path: Path) -> None:
    """GXF numbers fields in the order of decoding. With the last frame half as long, 25 frames/s became 25.9."""
    coded = ("-c:v", "mpeg2video", "-q:v", "2", "-bf", b_frames, "-g", "12", "-pix_fmt", "yuv420p")
    source = encode_pictures(tmp_path / "x.gxf", numbered(range(20), (720, 576)), *coded, rate=25)
    assert in_even_steps(source, tmp_path / "dataset", 20)
    assert shortgop.open(tmp_path / "dataset")[0].metadata.average_fps == 25


@pytest.mark.parametrize("suffix", ["avi", "wmv"])
def test_the_last_frame_of_h264_in_avi_is_an_interval_behind_the_one_before(suffix: str, tmp_path: Path) -> None:
    """FFmpeg puts it a unit of time behind that one, which was left out then."""
    coded = ("-c:v", "libx264", "-bf", "0", "-pix_fmt", "yuv420p")
    source = encode_pictures(tmp_path / "x.mp4", numbered(range(60)), *coded, rate=25)
    copy = tmp_path / f"copy.{suffix}"
    ffmpeg("-i", source, "-t", "1.2", "-c", "copy", copy)
    assert in_even_steps(copy, tmp_path / "dataset", 30)


@pytest.mark.parametrize("suffix", ["avi", "wmv"])
def test_h264_without_b_frames_in_avi_has_its_pauses_behind_the_frames_that_last(suffix: str, tmp_path: Path) -> None:
    """FFmpeg shows each frame at the time of the next one, so that each pause came a frame early."""
    shown = [0, 1, 2, 3, 7, 8, 9, 10, 11, 15, *range(16, 40), 42, 43, 44, 45]
    source = make_video(tmp_path / "x.mp4", pts=shown, timebase=Fraction(1, 25), codec="libx264", b_frames=0)
    ffmpeg("-i", source.path, "-c", "copy", tmp_path / f"copy.{suffix}")
    assert make_dataset([tmp_path / f"copy.{suffix}"], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert video.metadata.fps == 25
    assert [read_number(frame) for frame in video] == [sum(time <= tick for time in shown) - 1 for tick in range(46)]


@pytest.mark.parametrize("begins_late", [False, True])
def test_a_first_frame_that_lasts_is_told_from_a_video_that_begins_after_its_sound(
    begins_late: bool, tmp_path: Path
) -> None:
    """In an AVI both look alike, but for the sound in front. A first frame that lasted two seconds was shown for one
    interval."""
    later = [50 + frame for frame in range(30)]
    times = later if begins_late else [0, *later]
    source = make_video(tmp_path / "x.mp4", pts=times, timebase=1 / RATE, b_frames=0)
    tone = ("-f", "lavfi", "-i", "sine=r=8000:d=3.2", "-map", "0", "-map", "1", "-c:v", "copy", "-c:a", "pcm_s16le")
    ffmpeg("-copyts", "-i", source.path, *tone, tmp_path / "x.avi")
    assert make_dataset([tmp_path / "x.avi"], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    shown = [*range(30)] if begins_late else [*[0] * 50, *range(1, 31)]
    assert [read_number(frame) for frame in video] == shown
    assert video.source_seconds([0]).item() == (2 if begins_late else 0)


@pytest.mark.first_case_short
@pytest.mark.parametrize("offset", ["0", "0.1", "1.5"])
@pytest.mark.parametrize("codec", ["h264", "mp4"])
def test_the_last_frames_of_an_avi_with_b_frames_are_there_whenever_it_begins(
    codec: str, offset: str, tmp_path: Path
) -> None:
    """No packet behind the last frame says when it is shown. FFmpeg takes a moment after the one before, so that one of
    the two was left out."""
    source = encode_pictures(tmp_path / "x.mp4", numbered(range(30)), *WITH_B_FRAMES[codec], rate=25)
    ffmpeg("-itsoffset", offset, "-i", source, "-c", "copy", tmp_path / "copy.avi")
    assert in_even_steps(tmp_path / "copy.avi", tmp_path / "dataset", 30)


@pytest.mark.first_case_short
@pytest.mark.parametrize("b_frames", [0, 1, 2, 3])
def test_h264_in_avi_is_shown_with_its_sound(b_frames: int, tmp_path: Path) -> None:
    """FFmpeg gives each packet the time of the next one where it expects B-frames, and so did the dataset."""
    silence = np.zeros(48000 * 3, dtype=np.int16)
    silence[48000:48100] = 30000
    pcm = ("-f", "s16le", "-ar", "48000", "-ac", "1")
    (tmp_path / "click.pcm").write_bytes(silence.tobytes())
    pts = constant_rate_pts(RATE, 60, 1 / RATE)
    make_video(tmp_path / "v.mp4", pts=pts, timebase=1 / RATE, gop=24, b_frames=b_frames)
    source = tmp_path / "x.avi"
    copied = ("-map", "0:v", "-map", "1:a", "-c:v", "copy", "-bsf:v", "h264_mp4toannexb", "-c:a", "pcm_s16le")
    ffmpeg("-i", tmp_path / "v.mp4", *pcm, "-i", tmp_path / "click.pcm", *copied, source)
    sound = np.frombuffer(ffmpeg("-i", source, "-map", "0:a", *pcm, "-"), dtype=np.int16)
    click = float(np.argmax(sound != 0)) / 48000
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video] == list(range(60))
    assert video.source_seconds([25]).item() == pytest.approx(click, abs=0.001)
