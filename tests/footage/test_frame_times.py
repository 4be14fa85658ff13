"""When frames are shown: rates from 0.1 to 240, jitter, gaps, sources shorter than a tick. Numbers burnt into the
pixels say which frame of the source it is, and so when it was due."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from shortgop import DamagedSourceError
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.operations.summary import summarize
from shortgop.prep.options import DEFAULT_POLICY, SourcePolicy
from shortgop.prep.probing.probe import probe
from shortgop.prep.profile import Profile
from shortgop.prep.timing.rising_times import longest_rise
from shortgop.prep.timing.source_times import check_order, plan_times
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number

MS = Fraction(1, 1000)
RATES = [
    Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(3), Fraction(10), Fraction(24000, 1001), Fraction(30),
    Fraction(60), Fraction(240),
]  # fmt: skip


def prepared(
    source: SyntheticVideo, fps: Fraction | None = None, policy: SourcePolicy = DEFAULT_POLICY
) -> shortgop.Video:
    out = source.path.parent / "dataset"
    report = prepare([str(source.path)], DiskStorage(out), Profile(fps=fps), where=Where("inline"), policy=policy)
    assert report.failures == ()
    return shortgop.open(out)[0]


def numbers(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video]


@pytest.mark.first_case_short
@pytest.mark.parametrize("fps", RATES, ids=str)
def test_a_tick_shows_the_last_frame_up_to_half_an_interval_later(fps: Fraction, tmp_path: Path) -> None:
    source_fps = Fraction(25)
    source = make_video(
        tmp_path / "x.mkv", pts=constant_rate_pts(source_fps, 60, MS, start=3000), timebase=MS, b_frames=2
    )
    video = prepared(source, fps)
    tolerance = min(1 / fps, 1 / source_fps) / 2
    assert len(video) == max(1, round(60 / source_fps * fps))
    for k, number in enumerate(numbers(video)):
        assert number == max(j for j in range(60) if j == 0 or (k > 0 and j / source_fps <= k / fps + tolerance))


def test_once_a_second_is_at_the_full_second(tmp_path: Path) -> None:
    rate = Fraction(30)
    video = prepared(make_video(tmp_path / "x.mp4", pts=constant_rate_pts(rate, 100), timebase=1 / rate), Fraction(1))
    assert video.source_seconds(range(3)).tolist() == [0, 1, 2]
    assert numbers(video) == [0, 30, 60]


@pytest.mark.parametrize("fps", [Fraction(7), Fraction(50), Fraction(240)], ids=str)
def test_rates_beyond_the_timebase_of_the_container(fps: Fraction, tmp_path: Path) -> None:
    rate = Fraction(25)
    source = make_video(
        tmp_path / "x.avi", pts=constant_rate_pts(rate, 30), timebase=1 / rate, codec="mpeg4", b_frames=0
    )
    assert source.timebase == 1 / rate
    video = prepared(source, fps)
    tolerance = min(1 / fps, 1 / rate) / 2
    expected = [max(j for j in range(30) if j / rate <= k / fps + tolerance) for k in range(len(video))]
    assert numbers(video) == expected
    assert len(video) == round(30 / rate * fps)


def test_jitter_of_less_than_half_an_interval_loses_nothing(tmp_path: Path) -> None:
    strays = np.random.default_rng(1).integers(-19, 20, 60)
    pts = [0, *(40 * (number + 1) + int(stray) for number, stray in enumerate(strays))]
    video = prepared(make_video(tmp_path / "x.mkv", pts=pts, timebase=MS, b_frames=0), Fraction(25))
    assert numbers(video)[:61] == list(range(61))
    assert video.changes.dropped == 0


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi"])
@pytest.mark.parametrize("fps", [Fraction(10), Fraction(1, 10)], ids=str)
def test_a_source_shorter_than_half_a_tick_is_one_frame(fps: Fraction, suffix: str, tmp_path: Path) -> None:
    codec = "mpeg4" if suffix == "avi" else "libx264"
    count = 1 if fps == 10 else 90
    source = make_video(tmp_path / f"x.{suffix}", pts=range(count), timebase=Fraction(1, 30), codec=codec, b_frames=0)
    assert numbers(prepared(source, fps)) == [0]


@pytest.mark.parametrize("fast", [49, 50])
def test_a_source_that_slows_down_is_shown_whole(fast: int, tmp_path: Path) -> None:
    pts = np.cumsum([0, *[33] * fast, *[200] * 50]).tolist()
    video = prepared(make_video(tmp_path / "x.mkv", pts=pts, timebase=MS))
    assert sorted(set(numbers(video))) == list(range(fast + 51))
    assert video.metadata.fps == 30
    changes = video.changes
    assert changes.dropped == 0
    assert changes.repeated == 51


@pytest.mark.parametrize("pts", [[0, 1000, 11000], [0, 7], [5]], ids=str)
def test_a_few_frames_of_any_length_are_shown(pts: list[int], tmp_path: Path) -> None:
    source = make_video(tmp_path / "x.mp4", pts=pts, timebase=MS)
    assert sorted(set(numbers(prepared(source)))) == list(range(len(pts)))


def with_a_short_last_frame(folder: Path) -> Path:
    """28 frames at 30 frames/s, of which the last one lasts a tenth of the others by its header."""
    whole = make_video(folder / "whole.mp4", pts=range(0, 28000, 1000), timebase=Fraction(1, 30000), b_frames=0)
    with av.open(whole.path) as source, av.open(folder / "short.mp4", "w") as container:
        stream = container.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.size]
        packets[-1].duration = 100
        for packet in packets:
            packet.stream = stream
            container.mux(packet)
    return folder / "short.mp4"


def test_a_last_frame_that_lasts_less_than_half_a_tick_is_shown(tmp_path: Path) -> None:
    source = with_a_short_last_frame(tmp_path)
    report = prepare([str(source)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where("inline"))
    assert report.failures == ()
    assert numbers(shortgop.open(tmp_path / "dataset")[0]) == list(range(28))


def test_it_is_shown_in_a_stretch_that_ends_with_it_too(tmp_path: Path) -> None:
    with_a_short_last_frame(tmp_path)
    (tmp_path / "list.csv").write_text("path,start,end\nshort.mp4,0.2,0.4\nshort.mp4,0.8,0.93\n")
    place = DiskStorage(tmp_path / "dataset")
    cuts = Importing(cuts=("start", "end"))
    report = prepare([str(tmp_path / "list.csv")], place, Profile(), where=Where("inline"), importing=cuts)
    assert report.failures == ()
    assert [numbers(video) for video in shortgop.open(tmp_path / "dataset")] == [
        [6, 7, 8, 9, 10, 11], [24, 25, 26, 27],
    ]  # fmt: skip


def test_info_says_how_many_frames_are_never_shown_or_more_than_once(tmp_path: Path) -> None:
    rate = Fraction(30)
    prepared(make_video(tmp_path / "x.mp4", pts=constant_rate_pts(rate, 90), timebase=1 / rate), Fraction(10))
    (video,) = summarize(DiskStorage(tmp_path / "dataset")).videos
    assert (video.dropped, video.repeated) == (60, 0)


def with_a_gap(folder: Path) -> SyntheticVideo:
    """60 frames at 25 a second, of which the 31st comes after an hour."""
    pts = [40 * number if number < 30 else 3_600_000 + 40 * (number - 30) for number in range(60)]
    return make_video(folder / "gap.mkv", pts=pts, timebase=MS)


def test_a_gap_is_an_error_that_says_where(tmp_path: Path) -> None:
    source = with_a_gap(tmp_path)
    with pytest.raises(
        DamagedSourceError,
        match=r"gap\.mkv has 1 gap of more than 10 s .* one of 3598\.840 s, 1\.160 s after .* --gaps close",
    ):
        plan_times(probe(str(source.path)), None, SourcePolicy())
    report = prepare([str(source.path)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where("inline"))
    assert [failure.id for failure in report.failures] == ["gap.mkv"]


def test_a_gap_is_closed_on_request(tmp_path: Path) -> None:
    source = with_a_gap(tmp_path)
    video = prepared(source, policy=SourcePolicy(gaps="close"))
    assert numbers(video) == list(range(60))
    # Frames behind it still say when they were in the source.
    assert video.source_seconds([30]).tolist() == [3600]


def test_a_gap_is_kept_on_request(tmp_path: Path) -> None:
    source = with_a_gap(tmp_path)
    video = prepared(source, Fraction(1), SourcePolicy(gaps="keep"))
    assert [read_number(video[frame]) for frame in (0, 1, 2000, 3599, 3600)] == [0, 25, 29, 29, 30]
    assert len(video) == 3601
    assert len(plan_times(probe(str(source.path)), None, SourcePolicy(max_gap_seconds=Fraction(4000)))) == 90_030


def test_a_time_lapse_has_no_gaps(tmp_path: Path) -> None:
    source = make_video(tmp_path / "x.mp4", pts=[60_000 * number for number in range(10)], timebase=MS)
    assert numbers(prepared(source)) == list(range(10))


@pytest.mark.parametrize("suffix", ["mpg", "vob"])
def test_source_pts_are_in_the_sources_timebase_where_only_the_decoder_knows_them(suffix: str, tmp_path: Path) -> None:
    """In a program stream not every packet has a pts; the encoder's ticks must not stand in for them."""
    rate = Fraction(25)
    source = make_video(tmp_path / "x.mkv", pts=constant_rate_pts(rate, 30), timebase=1 / rate)
    path = tmp_path / f"x.{suffix}"
    codec = "mpeg1video" if suffix == "mpg" else "mpeg2video"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(source.path), "-c:v", codec, "-bf", "2"]
    subprocess.run([*command, "-q:v", "2", str(path)], check=True)
    prepare([str(path)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where("inline"))
    video = shortgop.open(tmp_path / "dataset")[0]
    assert numbers(video) == list(range(30))
    shown = video.source_seconds(range(30))
    # The stream starts at some time of its own, and goes on in steps of a frame to within its 90 kHz.
    assert (shown - shown[0]).numpy() == pytest.approx(np.arange(30) / 25, abs=2 / 90000)
    assert float(shown[0]) % float(1 / rate) != 0


def test_timestamps_that_jump_back_are_an_error_that_says_where(tmp_path: Path) -> None:
    source = probe(str(make_video(tmp_path / "x.mkv", pts=range(0, 4000, 40), timebase=MS).path))
    in_order = np.array([0, 40, 120, 80, 160])
    check_order(source, in_order, longest_rise(in_order))
    late = np.array([0, 40, 2000, 40, 80])
    with pytest.raises(DamagedSourceError, match=r"x\.mkv: .* jump back by 1\.960 s, 2\.000 s after .*, at frame 3"):
        check_order(source, late, longest_rise(late))


def test_a_wrong_time_costs_one_frame_wherever_it_is() -> None:
    times = np.arange(0, 4000, 40)
    for frame in (0, 30, 99):
        for wrong in (-1000, 10**9):
            changed = np.where(np.arange(100) == frame, wrong, times)
            rises = (frame, wrong) in ((0, -1000), (99, 10**9))
            assert np.flatnonzero(~longest_rise(changed)).tolist() == ([] if rises else [frame])


@given(st.lists(st.integers(0, 9), max_size=9))
def test_as_few_frames_as_possible_are_left_out_so_that_times_rise(times: list[int]) -> None:
    numbers = range(len(times))
    rising = (
        chosen
        for length in range(len(times), -1, -1)
        for chosen in combinations(numbers, length)
        if all(times[one] < times[other] for one, other in pairwise(chosen))
    )
    assert np.flatnonzero(longest_rise(np.array(times, dtype=np.int64))).tolist() == list(next(rising))


@pytest.mark.parametrize(("gaps", "frames"), [("fail", 0), ("close", 60)])
def test_a_gap_in_a_damaged_source_is_a_gap_all_the_same(gaps: Any, frames: int, tmp_path: Path) -> None:
    pts = [40 * number if number < 30 else 3_600_000 + 40 * (number - 30) for number in range(60)]
    source = make_video(tmp_path / "x.ts", pts=pts, timebase=MS, gop=10, b_frames=0)
    data = source.path.read_bytes()
    # Four packets of 188 bytes are missing, a fifth into it.
    lost = len(data) // 188 // 5 * 188
    source.path.write_bytes(data[:lost] + data[lost + 4 * 188 :])
    only_closed = SourcePolicy(gaps="close")
    damaged = prepare(
        [str(source.path)], DiskStorage(tmp_path / "strict"), Profile(), where=Where("inline"), policy=only_closed
    )
    assert "--salvage" in damaged.failures[0].reason
    report = prepare(
        [str(source.path)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where("inline"),
        policy=SourcePolicy(salvage=True, gaps=gaps),
    )  # fmt: skip
    if gaps == "fail":
        assert "1 gap of more than 10 s" in report.failures[0].reason
    else:
        assert report.frames_added == frames
