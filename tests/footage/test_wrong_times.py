"""Sources whose timestamps cannot be right: refused with what is wrong, and never a few frames in place of all."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np
import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import h264_packets, timed
from shortgop.errors import DamagedSourceError
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.packet_times import rising
from shortgop.prep.probing.probe import probe
from shortgop.prep.profile import Profile
from shortgop.prep.timing.mended_times import evened
from shortgop.prep.timing.rising_times import longest_rise, spaced
from shortgop.prep.timing.source_times import check_order
from shortgop.prep.timing.straight_times import rounded_straight_times, straightened
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

RATE, KHZ, MS = Fraction(30), Fraction(1, 90000), Fraction(1, 1000)


def ffmpeg(*arguments: str | Path) -> None:
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *map(str, arguments)], check=True)


def prepared(source: Path, out: Path, *, salvage: bool) -> Report:
    policy = SourcePolicy(salvage=salvage)
    return prepare([str(source)], DiskStorage(out), Profile(), policy=policy, where=Where("inline"))


def test_a_rate_that_no_video_has_is_refused(tmp_path: Path) -> None:
    """The header of a raw stream says 90,000 frames/s, the timebase of the file that it was taken from."""
    source = make_video(tmp_path / "v.mp4", pts=constant_rate_pts(RATE, 60, KHZ), timebase=KHZ)
    ffmpeg("-i", source.path, "-c", "copy", tmp_path / "v.h264")
    for fps in (None, Fraction(25)):
        (failure,) = make_dataset([tmp_path / "v.h264"], tmp_path / f"dataset {fps}", fps=fps).failures
        assert "frames/s by its timestamps, or by its header if it is a raw stream" in failure.reason
        assert "ffmpeg -r RATE" in failure.reason
    ffmpeg("-r", "30", "-i", tmp_path / "v.h264", tmp_path / "timed.mp4")
    assert make_dataset([tmp_path / "timed.mp4"], tmp_path / "timed").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "timed")[0]] == list(range(60))


@pytest.mark.parametrize(("codec", "b_frames"), [("libx264", 2), ("libx265", 0), ("mpeg4", 0)])
def test_frames_that_all_have_one_time_are_refused_with_the_command_that_gives_them_times(
    codec: str, b_frames: int, tmp_path: Path
) -> None:
    """An MP4 each of whose samples lasts 0. FFmpeg gives frames one time, or those of a far slower rate."""
    pts = constant_rate_pts(RATE, 20)
    video = make_video(tmp_path / "v.mp4", pts=pts, timebase=1 / RATE, codec=codec, b_frames=b_frames)
    data = bytearray(video.path.read_bytes())
    at = data.index(b"stts") + 8
    for entry in range(int.from_bytes(data[at : at + 4])):
        data[at + 8 * entry + 8 : at + 8 * entry + 12] = bytes(4)
    (tmp_path / "v.mp4").write_bytes(data)
    for salvage in (False, True):
        (failure,) = prepared(tmp_path / "v.mp4", tmp_path / "dataset", salvage=salvage).failures
        assert "gives all of its frames one time" in failure.reason
    (command,) = re.findall("`(.*?)`", failure.reason)
    command = command.replace("FILE", "v.mp4").replace("RATE", "30")
    command = command.replace("ffmpeg", f'"{imageio_ffmpeg.get_ffmpeg_exe()}" -v error')
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert prepared(tmp_path / "OUT.mp4", tmp_path / "right", salvage=False).failures == ()
    right = shortgop.open(tmp_path / "right")[0]
    assert [read_number(frame) for frame in right] == list(range(20))
    assert right.metadata.fps == RATE


def test_a_time_that_is_none_is_a_gap_and_no_other_error() -> None:
    """FFmpeg copies from Matroska, which may lack the first time of decoding, to NUT with the least number there is."""
    least = -(1 << 63)
    assert rising([least + 4288, 10048, 12160]) is None
    apart = rising([10048, -(1 << 62)])
    assert apart is not None
    assert apart.tolist() == [-(1 << 62), 10048]


@pytest.mark.first_case_short
@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("offset", ["-0.5", "-0.1", "-0.033"])
def test_frames_without_times_before_0_have_even_ones(offset: str, b_frames: int, tmp_path: Path) -> None:
    """FFmpeg gives them times from 0 on, and then the others from 0 on."""
    source = make_video(tmp_path / "v.mp4", pts=constant_rate_pts(RATE, 120), timebase=1 / RATE, b_frames=b_frames)
    options = ("-c", "copy", "-avoid_negative_ts", "disabled")
    ffmpeg("-itsoffset", offset, "-i", source.path, *options, tmp_path / "v.mkv")
    for salvage in (False, True):
        assert prepared(tmp_path / "v.mkv", tmp_path / f"{salvage}", salvage=salvage).failures == ()
        video = shortgop.open(tmp_path / f"{salvage}")[0]
        assert [read_number(frame) for frame in video] == list(range(120))
        assert video.metadata.fps == RATE
        assert video.source_seconds([0, 60]).tolist() == pytest.approx([float(offset), float(offset) + 2], abs=0.01)
        assert video.changes.given_up == ("times of some frames are not stated: estimated",)


@pytest.mark.parametrize(("together", "is_refused"), [(4, False), (5, True)])
def test_a_few_frames_in_the_wrong_order_are_left_out_and_no_more(
    together: int, is_refused: bool, tmp_path: Path
) -> None:
    source = probe(str(make_video(tmp_path / "v.mp4", pts=constant_rate_pts(RATE, 30), timebase=1 / RATE).path))
    interval = round(1 / (RATE * source.timebase))
    decoded = np.array([*range(together), *range(30)]) * interval
    if not is_refused:
        check_order(source, decoded, longest_rise(decoded))
        return
    with pytest.raises(DamagedSourceError, match=rf"jump back by 0\.133 s, .* at frame {together}"):
        check_order(source, decoded, longest_rise(decoded))


def shown_at(source: Path, out: Path) -> list[tuple[int, float]]:
    """The number of each frame, and the time that it is said to have, in frames after the first."""
    assert make_dataset([source], out).failures == ()
    video = shortgop.open(out)[0]
    with av.open(source) as container:
        unit = container.streams.video[0].time_base
    assert unit is not None
    first, *_ = pts = [int(each) for each in video.source_pts(range(len(video)))]
    return [
        (read_number(frame), round(float((each - first) * unit * RATE), 1))
        for frame, each in zip(video, pts, strict=True)
    ]


@pytest.mark.parametrize("suffix", ["mkv", "flv", "mp4"])
def test_where_times_overlap_only_the_frames_in_between_are_left_out(suffix: str, tmp_path: Path) -> None:
    """A stream with B-frames goes on without, at the time of its last frame. From there on FFmpeg takes the times of
    decoding, so that all frames were two late, and the last two were left out."""
    b_frames = h264_packets(tmp_path / "b.ts", range(30), "-bf", "2", "-b_strategy", "0")
    plain = h264_packets(tmp_path / "p.ts", range(30, 60), "-profile:v", "baseline")
    packets = [(number + 2, place, data) for place, (number, data) in enumerate(b_frames)]
    packets += [(number + 1, number + 1, data) for number, data in plain]
    source = timed(tmp_path / "b.ts", tmp_path / f"x.{suffix}", packets)
    frames = [*range(30), *range(31, 60)]
    assert shown_at(source, tmp_path / "dataset") == [(number, place) for place, number in enumerate(frames)]


@pytest.mark.parametrize("suffix", ["mkv", "ts", "flv"])
def test_a_time_that_comes_twice_is_put_right_where_one_is_missing(suffix: str, tmp_path: Path) -> None:
    packets = h264_packets(tmp_path / "b.ts", range(60), "-bf", "2", "-b_strategy", "0")
    times = [(number + 2 - (number == 25), place, data) for place, (number, data) in enumerate(packets)]
    source = timed(tmp_path / "b.ts", tmp_path / f"x.{suffix}", times)
    assert [number for number, _ in shown_at(source, tmp_path / "dataset")] == list(range(60))


def test_times_that_do_not_rise_are_spaced_where_there_is_room() -> None:
    for stated, found in (
        ([0, 10, 20, 20, 40, 50], [0, 10, 20, 30, 40, 50]),
        ([0, 10, 20, 20, 20, 50, 60], [0, 10, 20, 30, 40, 50, 60]),
        # No room, as where the decoder shows a frame too early.
        ([0, 10, 40, 20, 30, 50], [0, 10, 40, 20, 30, 50]),
        ([0, 10, 20, 30, 30], [0, 10, 20, 30, 30]),
        ([7, 7], [7, 7]),
    ):
        assert spaced(np.array(stated)).tolist() == found


def test_times_that_ffmpeg_made_up_are_on_the_line_of_those_that_are_right() -> None:
    """As in copies of program streams: they were refused."""
    rates, unit = (Fraction(15),), Fraction(1, 90000)
    for stated in (
        [6000, 1, 18000, 12001, 12003, 36000, 42000, 36001, 36003, 36004, 66000, 72000, 66001, 66003, 90000, 84001],
        [0, 1, 12000, 12001, 24000, 24001, 24003, 24004, 48000, 48001, 48003, 66000, 66001, 78000],
        # A frame has the time of the one behind it.
        [0, 6000, 12000, 24000, 24001, *range(30000, 120000, 6000)],
    ):
        found = straightened(np.array(stated), unit, rates)
        assert found is not None
        assert found.tolist() == [max(stated[0], 0) + 6000 * number for number in range(len(stated))]


def test_other_times_are_on_no_line() -> None:
    even = list(range(0, 40 * 60, 40))
    rng = np.random.default_rng(0)
    for stated in (
        even,
        [*even[:20], *even[:20]],
        [*even[:30], *even[28:]],
        [*even[:4], *even],
        [*even[:20], even[19] + 2, *even[20:]],
        [*even[:20], *(time + 500 for time in even[20:])],
        [*even[:20], *range(even[19] + 1, even[19] + 11), *even[20:]],
        np.cumsum(rng.choice([16, 17, 33, 50, 1, 300], 100)).tolist(),
        np.cumsum(np.maximum(1, rng.exponential(40, 100)).astype(np.int64)).tolist(),
    ):
        assert straightened(np.array(stated), Fraction(1, 1000), (Fraction(25), Fraction(30))) is None


def program_stream(folder: Path, pts: Sequence[int], timebase: Fraction, b_frames: int) -> Path:
    """H.264 in a program stream, several of whose frames share a PES packet, which states the time of the first."""
    timed_file = folder / "timed.mkv"
    make_video(timed_file, pts=pts, timebase=timebase, b_frames=b_frames, gop=25)
    source = folder / "x.mpg"
    ffmpeg("-v", "fatal", "-i", timed_file, "-c", "copy", "-bsf:v", "h264_mp4toannexb", source)
    with av.open(source) as container:
        stated = [packet.pts is not None for packet in container.demux(video=0) if packet.size]
    assert 10 < sum(stated) < len(stated) - 10
    return source


@pytest.mark.parametrize("b_frames", [0, 3])
def test_frames_whose_times_are_not_stated_lie_between_those_whose_times_are(b_frames: int, tmp_path: Path) -> None:
    """At a variable rate a parser counts them wrongly, one millisecond apart or behind the next one that is stated."""
    steps = np.random.default_rng(0).choice([33, 34, 50, 66, 100], 99)
    times = [0, *np.cumsum(steps).tolist()]
    source = program_stream(tmp_path, times, Fraction(1, 1000), b_frames)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert "times of some frames are not stated: estimated" in video.changes.given_up
    numbers = [read_number(frame) for frame in video]
    assert numbers == sorted(numbers)
    assert video.changes.dropped in (0, 1)
    apart = [abs(1000 * tick / video.metadata.fps - times[number]) for tick, number in enumerate(numbers)]
    assert max(apart) < 200
    assert float(np.median([float(each) for each in apart])) < 30


@pytest.mark.parametrize("b_frames", [0, 3])
def test_frames_whose_times_are_counted_right_are_not_called_estimated(b_frames: int, tmp_path: Path) -> None:
    source = program_stream(tmp_path, range(100), Fraction(1, 25), b_frames)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert [read_number(frame) for frame in video] == list(range(100))
    assert video.changes.given_up == ()


@pytest.mark.first_case_short
@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("rate", [24, 30, 60, 240])
def test_small_frames_of_a_rate_that_milliseconds_blur_are_at_even_times(
    rate: int, b_frames: int, tmp_path: Path
) -> None:
    """As copied from FLV. Those whose times are not stated were a millisecond apart, or one was left out."""
    source = program_stream(tmp_path, constant_rate_pts(Fraction(rate), 120, Fraction(1, 1000)), MS, b_frames)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert video.metadata.fps == rate
    assert [read_number(frame) for frame in video] == list(range(120))
    seconds = video.source_seconds(range(120)).numpy()
    assert seconds - seconds[0] == pytest.approx(np.arange(120) / rate, abs=0.0025)


def test_a_variable_rate_that_is_stated_now_and_then_is_on_no_line() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        shortest = rng.uniform(4, 100)
        times = np.cumsum(rng.uniform(shortest, shortest * rng.uniform(1.2, 3), 300))
        numbers = np.sort(rng.choice(300, int(rng.integers(8, 60)), replace=False))
        stated = np.round(times[numbers]).astype(np.int64) * 90
        assert rounded_straight_times(numbers, stated, 300, KHZ, (Fraction(25), Fraction(1000))) is None


def test_a_variable_rate_whose_times_are_stated_is_not_evened(tmp_path: Path) -> None:
    """HEVC with B-frames in a program stream became as even as a constant rate, up to 0.1 s off."""
    rng = np.random.default_rng(1)
    times = [0, *np.cumsum(rng.integers(17, 67, 79)).tolist()]
    large = {"size": (640, 360), "codec": "libx265", "gop": 25, "b_frames": 2}
    make_video(tmp_path / "v.mkv", pts=times, timebase=MS, **large)  # type: ignore[arg-type]
    copied = ("-c", "copy", "-bsf:v", "hevc_mp4toannexb", "-f", "mpeg")
    ffmpeg("-i", tmp_path / "v.mkv", *copied, tmp_path / "x.mpg")
    assert make_dataset([tmp_path / "x.mpg"], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    shown = [read_number(frame) for frame in video]
    seconds = video.source_seconds(range(len(video))).numpy()
    late = np.abs(seconds - seconds[0] - np.array([times[number] for number in shown]) / 1000)
    assert float(np.mean(late)) < 0.005
    for _ in range(100):
        stated = np.cumsum(rng.integers(1500, 6000, 100))
        assert (evened(stated) == stated).all()
