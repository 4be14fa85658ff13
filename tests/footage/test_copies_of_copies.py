"""Files that FFmpeg copied twice without encoding them, as from a program stream to AVI and then to MP4: every frame
that plays is there, at even times."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop import DamagedSourceError
from shortgop.prep.probing.opening import open_source, packets_of
from shortgop.prep.probing.probe import probe
from shortgop.prep.timing.mended_times import mended_times
from shortgop.prep.timing.rising_times import longest_rise, spaced
from shortgop.prep.timing.source_times import check_order
from synthetic import frame_to_rgb, make_video, read_number

FRAMES = 60
_MPEG = ("-q:v", "2", "-bf", "2", "-g", "12", "-sc_threshold", "1000000000")
_H264 = (*X264[:-2], "-g", "12", "-sc_threshold", "0", "-b_strategy", "0", "-pix_fmt", "yuv420p")
_OPEN = ("-x264-params", "open-gop=1")
X265 = "log-level=none:pools=none:frame-threads=1:scenecut=0:b-adapt=0:bframes=3:keyint=12:open-gop=1"
ENCODINGS = {
    "mpeg1": ("-c:v", "mpeg1video", *_MPEG),
    "mpeg2": ("-c:v", "mpeg2video", *_MPEG),
    "interlaced": ("-c:v", "mpeg2video", *_MPEG, "-flags", "+ilme+ildct"),
    "mpeg4": ("-c:v", "mpeg4", *_MPEG),
    "h264": (*_H264, "-bf", "1"),
    "h264 interlaced": (*_H264, "-bf", "2", "-flags", "+ilme+ildct"),
    "h264 open": (*_H264, "-bf", "3", *_OPEN),
    "hevc open": ("-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-x265-params", X265),
}
CUT = ("-ss", "1.1")
GENPTS = ("-fflags", "+genpts")


def copied(encoding: str, names: str, cuts: tuple[int, ...], folder: Path) -> Path:
    """A video in the first of these containers, copied to the next one and so on; cut where it is copied to one of
    these numbers."""
    suffixes = names.split(" > ")
    path = encode_pictures(folder / f"0.{suffixes[0]}", numbered(range(FRAMES)), *ENCODINGS[encoding], rate=25)
    for number, suffix in enumerate(suffixes[1:], start=1):
        headers = ["-bsf:v", "h264_mp4toannexb"] if "h264" in encoding and suffix in ("avi", "mpg", "mxf") else []
        rate = ["-r", "25"] if path.suffix == ".m2v" else []
        copy = folder / f"{number}.{suffix}"
        cut = CUT if number in cuts else ()
        ffmpeg(*rate, "-i", path, "-c", "copy", *headers, *cut, copy)
        path = copy
    return path


def played(path: Path) -> list[int]:
    numbers = list[int]()
    with av.open(path) as container:
        for packet in container.demux(container.streams.video[0]):
            # FFmpeg calls headers without a frame invalid.
            with contextlib.suppress(av.error.InvalidDataError):
                numbers += [read_number(frame_to_rgb(frame)) for frame in packet.decode()]
    return numbers


COPIES = [
    # B-frames that refer to frames before the cut are in the file, and not shown.
    ("mpeg2", "mpg > wmv", (1,)),
    ("mpeg1", "avi > mp4 > mov", (2,)),
    ("interlaced", "mkv > avi > mp4", (2,)),
    ("mpeg4", "avi > mpg > mp4", (2,)),
    ("mpeg1", "mpg > avi > mov", (1,)),
    ("hevc open", "mp4 > wmv > mkv", (1,)),
    ("h264 open", "mp4 > wmv > mp4", (2,)),
    # Packets have the times of decoding, or some of them.
    ("h264", "mpg > mp4", ()),
    ("h264 interlaced", "avi > mp4 > nut", ()),
    ("interlaced", "m2v > mov > ts", ()),
    # The last frame has the time of the one before.
    ("h264", "mp4 > avi > wmv", ()),
    ("mpeg4", "mpg > mov > nut", ()),
    # FFmpeg splits headers from their frames.
    ("h264 open", "ts > flv > wmv", ()),
    ("h264 open", "mpg > mov > wmv", ()),
]


@pytest.mark.first_case_short
@pytest.mark.parametrize(("encoding", "names", "cuts"), COPIES)
def test_all_frames_that_play_are_there_at_even_times(
    encoding: str, names: str, cuts: tuple[int, ...], tmp_path: Path
) -> None:
    """Up to half of them were left out, later ones were shifted, or the file was refused as damaged."""
    source = copied(encoding, names, cuts, tmp_path)
    expected = played(source)
    assert expected == list(range(expected[0], FRAMES))
    assert len(expected) >= (24 if cuts else FRAMES)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert video.metadata.average_fps == pytest.approx(25)
    assert [read_number(frame) for frame in video] == expected


@pytest.mark.parametrize(("b_frames", "names"), [("0", "mpg > mov"), ("1", "mpg > mov > ts")])
def test_small_frames_copied_from_a_program_stream_are_at_even_times(b_frames: str, names: str, tmp_path: Path) -> None:
    """Several may share a packet of the program stream, which states the time of one. FFmpeg puts copies of the others
    directly behind the frame before, some before frames that are shown earlier."""
    encoding = (*_H264, "-bf", b_frames, "-x264-params", "b-pyramid=none")
    source = encode_pictures(tmp_path / "0.mpg", numbered(range(FRAMES)), *encoding, rate=15)
    for number, suffix in enumerate(names.split(" > ")[1:], start=1):
        ffmpeg("-i", source, "-c", "copy", tmp_path / f"{number}.{suffix}")
        source = tmp_path / f"{number}.{suffix}"
    expected = sorted(played(source))
    assert len(expected) >= FRAMES - 1
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert video.metadata.average_fps == pytest.approx(15)
    assert [read_number(frame) for frame in video] == expected


def test_stretches_of_frames_with_the_times_of_decoding_begin_where_they_should(tmp_path: Path) -> None:
    source = copied("h264", "mpg > mp4", (), tmp_path)
    (tmp_path / "list.csv").write_text(f"id,path,start,end\na,{source.name},1,2\n")
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "cuts")["a"]] == list(range(25, 50))


CUTS = [
    (*source, *cut, ())
    for source in (("mpeg4", "avi"), ("h264", "avi"), ("h264 open", "avi"), ("h264", "mkv > mxf"))
    for cut in (("0.7", 18), ("1.14", 29))
]


# With this option all times are a frame later.
@pytest.mark.first_case_short
@pytest.mark.parametrize(("encoding", "names", "start", "first", "more"), [*CUTS, ("h264", "avi", "0.62", 15, GENPTS)])
def test_a_cut_of_frames_with_the_times_of_decoding_begins_where_it_was_made(
    encoding: str, names: str, start: str, first: int, more: tuple[str, ...], tmp_path: Path
) -> None:
    """Copied to MP4, they are hidden up to there in the order of decoding: players show one frame before the cut, or
    lack one behind it."""
    path = copied(encoding, names, (), tmp_path)
    cut = tmp_path / "cut.mp4"
    ffmpeg("-ss", start, *more, "-i", path, "-c", "copy", cut)
    assert make_dataset([cut], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video] == list(range(first, FRAMES))
    # Players, and the sound, count from the cut, which may lie within an interval.
    assert abs(video.source_seconds([0]).item()) < 0.041

    (tmp_path / "list.csv").write_text("id,path,start,end\na,cut.mp4,0.4,0.8\n")
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    numbers = [read_number(frame) for frame in shortgop.open(tmp_path / "cuts")["a"]]
    assert numbers == list(range(first + 10, first + 20))


def test_pictures_that_hevc_skips_behind_a_cut_are_no_damage(tmp_path: Path) -> None:
    """FFmpeg reads a wrong time of the keyframe before them, so that they seem to be shown behind it."""
    path = copied("hevc open", "ts", (), tmp_path)
    cut = tmp_path / "cut.mp4"
    ffmpeg("-i", path, "-c", "copy", "-ss", "0.43", "-movflags", "+frag_keyframe+empty_moov", cut)
    expected = played(cut)
    assert len(expected) >= 36
    assert make_dataset([cut], tmp_path / "dataset").failures == ()
    assert sorted({read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]}) == expected


def test_headers_that_ffmpeg_split_from_their_frames_are_no_packets(tmp_path: Path) -> None:
    source = copied("h264", "ts > flv > wmv", (), tmp_path)
    with av.open(source) as container:
        assert sum(bool(packet.size) for packet in container.demux(video=0)) > FRAMES
    with open_source(str(source)) as container:
        assert sum(bool(packet.size) for packet in packets_of(container, container.streams.video[0])) == FRAMES


@pytest.mark.parametrize("times", [[0, 1, 2, 2, 4, 5], [0, 1, 3, 3, 4, 5]])
def test_a_time_that_comes_twice_is_put_where_one_is_missing_before_it_or_behind_it(times: list[int]) -> None:
    assert spaced(np.array(times) * 40).tolist() == [0, 40, 80, 120, 160, 200]


def test_times_that_ffmpeg_put_directly_behind_the_one_before_are_evened(tmp_path: Path) -> None:
    """So it does where times of decoding would not rise: datasets had 1000 frames/s."""
    video = encode_pictures(tmp_path / "x.mkv", numbered(range(30)), *ENCODINGS["h264"], rate=25)
    stated = [0, 40, 80, 81, 160, 161, 240, 280, 281, 320, 400]
    even = np.arange(len(stated)) * 40
    assert mended_times(probe(str(video)), np.array(stated)).tolist() == even.tolist()
    # Where there is no room they stay as they are.
    stated = [0, 40, 80, 81, 120, 160, 200]
    assert mended_times(probe(str(video)), np.array(stated)).tolist() == stated


@pytest.mark.parametrize("burst", [2, 3])
def test_frames_of_a_variable_rate_that_follow_one_another_at_once_stay_there(burst: int, tmp_path: Path) -> None:
    """As of a camera that records a few frames when something moves. They are evenly spaced in no other way."""
    pts = [2000 * event + 33 * frame for event in range(20) for frame in range(burst)]
    make_video(tmp_path / "x.mkv", pts=pts, timebase=Fraction(1, 1000))
    source = probe(str(tmp_path / "x.mkv"))
    assert len(source.decode_times) == len(pts), "it has B-frames"
    assert mended_times(source, np.array(pts)).tolist() == pts


def test_three_frames_whose_times_do_not_rise_are_left_out_and_no_error(tmp_path: Path) -> None:
    """Of exactly three there was a traceback."""
    source = encode_pictures(tmp_path / "x.mkv", numbered(range(30)), *X264, "-pix_fmt", "yuv420p")
    times = np.array([0, 1, 2, *range(30)]) * 33
    rising = longest_rise(times)
    assert int((~rising).sum()) == 3
    check_order(probe(str(source)), times, rising)


def test_of_times_that_are_all_out_of_order_no_few_frames_are_prepared(tmp_path: Path) -> None:
    """Each third frame was left out, and the others were shown in place of them."""
    source = encode_pictures(tmp_path / "x.mkv", numbered(range(30)), *X264, "-pix_fmt", "yuv420p")
    times = np.array([number + 2 * (number % 3 == 0) for number in range(30)]) * 33
    with pytest.raises(DamagedSourceError, match=r"at frame 1: cut or remux it"):
        check_order(probe(str(source)), times, longest_rise(times))
