"""Which constant rate a source gets when none was asked for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import EncodeError
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.source_video import SourceVideo
from shortgop.prep.timing.grid import FrameGrid, TickRule, count_dropped, ordinary_interval
from shortgop.prep.timing.rates import MAX_RATE, MIN_RATE, STANDARD_RATES, constant_rate, variable_rate
from shortgop.prep.timing.source_times import plan_times

MS = Fraction(1, 1000)
KEEP = SourcePolicy(gaps="keep")


def array(*pts: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(pts, dtype=np.int64)


def steps(*intervals: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.cumsum([0, *intervals])


def planned(
    pts: np.ndarray[tuple[int], np.dtype[np.int64]],
    timebase: Fraction = MS,
    hints: tuple[Fraction, ...] = (),
    policy: SourcePolicy = KEEP,
) -> FrameGrid:
    """What becomes of a source with these timestamps when no rate is asked for."""
    last = int(pts[-1] - pts[-2]) if len(pts) > 1 else 1
    source = SourceVideo(
        path="x.mkv", stream_index=0, codec="h264", width=96, height=64, sample_aspect_ratio=Fraction(1), rotation=0,
        primaries=2, transfer=2, matrix=2, timebase=timebase, pts=pts, end_pts=int(pts[-1]) + last, rate_hints=hints,
    )  # fmt: skip
    return plan_times(source, None, policy)


@pytest.mark.parametrize("rate", STANDARD_RATES, ids=str)
@pytest.mark.parametrize("start", [0, 33, 123_456])
def test_a_rate_that_milliseconds_blur_is_found_exactly(rate: Fraction, start: int) -> None:
    # Long enough for 29.97 and 30 to part: a blurred millisecond allows either for the first second.
    frames = np.arange(3000)
    pts = array(*(start + round(int(n) * 1000 / rate) for n in frames))
    assert constant_rate(pts, MS, ()) == rate


def test_the_containers_rate_comes_first_if_it_is_true() -> None:
    pts = array(*range(0, 90_000, 3600))
    assert constant_rate(pts, Fraction(1, 90000), (Fraction(25),)) == 25
    assert constant_rate(pts, Fraction(1, 90000), (Fraction(30),)) == 25


def test_an_unusual_rate_is_kept_as_it_is() -> None:
    assert constant_rate(array(*range(0, 700, 7)), Fraction(1, 100), ()) == Fraction(100, 7)


def test_an_unusual_rate_does_not_drift_in_an_hour() -> None:
    pts = array(*(round(n * 33.37) for n in range(110_000)))
    grid = planned(pts)
    assert (grid.dropped, grid.repeated) == (0, 0)


@pytest.mark.parametrize(("rate", "frames"), [("27.1234", 25_000), ("29.9", 40_000), ("27.1234", 200_000)])
def test_an_unusual_rate_of_many_frames_is_one_that_an_mp4_can_have(rate: str, frames: int) -> None:
    """Of so many frames in a fine timebase the exact mean has terms that FFmpeg's option for the timescale of an MP4,
    of 31 bits, does not take: the encode failed, or a rate was chosen that repeats frames."""
    timebase = Fraction(1, 90_000)
    pts = array(*(int(number / (Fraction(rate) * timebase)) for number in range(frames)))
    grid = planned(pts, timebase)
    assert (grid.dropped, grid.repeated) == (0, 0)
    assert grid.rule.fps.numerator < 1 << 31


def test_a_rate_at_which_a_tick_has_no_frame_is_not_the_sources() -> None:
    # Within one unit of 40 ms of 20 frames/s each, and still a tick would be left without a frame of its own.
    pts = array(0, 1, 2, 4, 5, 7)
    assert constant_rate(pts, Fraction(1, 25), (Fraction(20),)) != 20


def test_a_missing_frame_makes_the_rate_variable_and_loses_nothing() -> None:
    pts = np.delete(array(*(round(n * 1000 / 30) for n in range(90))), 40)
    assert constant_rate(pts, MS, (Fraction(30),)) is None
    grid = planned(pts)
    assert grid.rule.fps == 30
    assert (grid.dropped, len(grid)) == (0, 90)


@pytest.mark.parametrize("frames", [24, 300, 3000])
def test_missing_frames_of_an_avi_leave_its_rate(frames: int) -> None:
    """A unit of its timebase is a frame. Web cameras leave some out, and 30 frames/s became 29.97."""
    pts = np.delete(np.arange(frames), [5, 6, 15])
    assert constant_rate(pts, Fraction(1, 30), (Fraction(30),)) is None
    grid = planned(pts, Fraction(1, 30), hints=(Fraction(30),))
    assert grid.rule.fps == 30
    assert (grid.dropped, len(grid)) == (0, frames)


@pytest.mark.parametrize("fast", [49, 50, 51, 10])
def test_a_source_that_slows_down_keeps_its_fast_part(fast: int) -> None:
    grid = planned(steps(*[33] * fast, *[200] * 50))
    assert 29 < grid.rule.fps < 31
    assert grid.dropped == 0


def test_slides_of_different_length_are_all_shown() -> None:
    grid = planned(steps(1000, 10_000))
    assert grid.rule.fps <= 1
    assert grid.dropped == 0


def test_a_single_frame_needs_no_rate() -> None:
    assert planned(array(5)).rule.fps == 25
    assert planned(array(5), hints=(Fraction(90_000), Fraction(12))).rule.fps == 12


def test_a_rate_that_milliseconds_cut_short_is_the_common_one_where_nothing_is_lost() -> None:
    """33 ms for 30 frames/s, and not 30.304."""
    for fast, slow, rate in ((33, 200, 30), (16, 200, 60), (41, 200, 24), (8, 100, 120)):
        grid = planned(steps(*[fast] * 12, *[slow] * 8))
        assert grid.rule.fps == rate
        assert grid.dropped == 0
    # Over many frames they part: 30 frames/s would leave out one of a hundred.
    grid = planned(steps(*[33] * 1000, *[200] * 20))
    assert grid.dropped == 0


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("units", [1000, 15360])
def test_a_recording_that_was_cut_keeps_its_rate(units: int, part: float) -> None:
    """Behind each cut the next frame comes sooner. It was 30.02 frames/s or so, and up to 32."""
    intervals = np.full(900, units / 30)
    intervals[[300, 650]] *= part
    pts = np.round(np.cumsum(intervals)).astype(np.int64)
    mean = Fraction(len(pts) * units, int(pts[-1]))
    grid = planned(pts, hints=(mean,), timebase=Fraction(1, units))
    assert grid.rule.fps == 30
    assert grid.dropped <= 2


@pytest.mark.parametrize(
    "rate", [Fraction(30), Fraction(30000, 1001), Fraction(24), Fraction(24000, 1001), Fraction(60)]
)
@pytest.mark.parametrize("units", [1000, 15360, 90000])
@pytest.mark.parametrize("part", [0.65, 1.2, 2.4])
def test_a_recording_that_was_joined_several_times_keeps_its_rate(rate: Fraction, units: int, part: float) -> None:
    """Longer intervals at the joins made 30 frames/s 29.97, and shorter ones 23.976 frames/s 24."""
    intervals = np.full(900, float(units / rate))
    intervals[[100, 190, 350, 480, 610, 777]] *= part
    pts = np.round(np.cumsum(intervals)).astype(np.int64)
    mean = Fraction(len(pts) * units, int(pts[-1]))
    assert planned(pts, hints=(mean,), timebase=Fraction(1, units)).rule.fps == rate


@pytest.mark.parametrize(("units", "step"), [(30, 2), (60, 4), (30, 1), (24, 1), (48, 2), (60, 1)])
@pytest.mark.parametrize("hint", [None, Fraction(2000, 133)])
def test_a_rate_that_a_coarse_timebase_has_exactly_is_no_other_one(
    units: int, step: int, hint: Fraction | None
) -> None:
    """15 frames/s became 14.985, which for half a minute lies within a unit."""
    pts = step * np.arange(90)
    assert planned(pts, Fraction(1, units), () if hint is None else (hint,)).rule.fps == Fraction(units, step)


@pytest.mark.parametrize(("microseconds", "rate"), [(33333, 30), (16667, 60), (41667, 24), (40000, 25)])
@pytest.mark.parametrize("frames", [60, 400])
def test_an_avi_whose_interval_is_in_whole_microseconds_has_the_rate_nearest_to_it(
    microseconds: int, rate: int, frames: int
) -> None:
    """In clips of some seconds 30 frames/s became 29.97, which lies within a unit of it as well."""
    timebase = Fraction(microseconds, 1_000_000)
    assert planned(np.arange(frames), timebase, (1 / timebase,)).rule.fps == rate


@pytest.mark.parametrize(
    ("units", "interval", "every"), [(30_000, 1001, 333), (90_000, 3003, 100), (90_000, 3003, -100)]
)
@pytest.mark.parametrize("frames", [1800, 18_000])
def test_a_rate_that_slips_by_a_unit_now_and_then_stays_a_standard_one(
    units: int, interval: int, every: int, frames: int
) -> None:
    """It became the exact mean, such as 30000000/1001003. No frame is lost or repeated at the standard rate."""
    intervals = np.full(frames - 1, interval)
    intervals[abs(every) - 1 :: abs(every)] += np.sign(every)
    pts = np.cumsum([0, *intervals])
    grid = planned(pts, Fraction(1, units), (Fraction(frames * units, int(pts[-1]) + interval),))
    assert (grid.rule.fps, grid.dropped, grid.repeated) == (Fraction(30_000, 1001), 0, 0)


@pytest.mark.parametrize("fast", [5e-5, 3e-4, -3e-4])
@pytest.mark.parametrize("units", [1000, 90_000, 1_000_000])
@pytest.mark.parametrize("jitter", [1e-4, 3e-4, 1e-3])
def test_a_phone_whose_clock_is_a_little_off_loses_no_frame(units: int, fast: float, jitter: float) -> None:
    """Frames jitter, too. In ten minutes 30 frames/s or 29.97 left out up to 145 of them, and repeated as many. At the
    rate of the median interval, where that is another one, thousands were repeated."""
    times = np.arange(18_000) / 30 * (1 - fast) + np.random.default_rng(2).normal(0, jitter, 18_000)
    pts = np.round(times * units).astype(np.int64)
    grid = planned(pts, Fraction(1, units), (Fraction(18_000 * units, int(pts[-1] - pts[0])),))
    assert (grid.dropped, grid.repeated) == (0, 0)
    assert float(grid.rule.fps) == pytest.approx(30 * (1 + fast), abs=1e-3)


@pytest.mark.parametrize(
    ("rate", "frames", "part"),
    [(Fraction(30_000, 1001), 600, 0.4), (Fraction(30), 1500, 0.4), (Fraction(25), 3000, 0.2)],
)
def test_one_join_in_the_middle_is_no_clock_that_is_a_little_off(rate: Fraction, frames: int, part: float) -> None:
    """The mean rate, such as 29.999 for 29.97, shows the frame that was left out, and no frame at its time."""
    intervals = np.full(frames - 1, float(1000 / rate))
    intervals[frames // 2] *= part
    grid = planned(np.round(np.cumsum([0, *intervals])).astype(np.int64), hints=(rate,))
    assert grid.rule.fps == rate
    assert grid.dropped <= 1


@pytest.mark.parametrize("places", [(3, 7), (2, 5, 8), (4, 12, 20, 28)])
def test_several_pairs_of_frames_that_nearly_coincide_do_not_multiply_a_short_clip(places: tuple[int, ...]) -> None:
    pts = steps(*[33, 33, 34] * (3 if places[-1] < 10 else 10))
    pts = np.sort(np.append(pts, pts[list(places)] + 2))
    grid = planned(pts)
    assert grid.rule.fps == 30
    assert grid.dropped == len(places)
    assert len(grid) == len(pts) - len(places)


@pytest.mark.parametrize("triples", [3, 30, 100])
def test_two_frames_that_nearly_coincide_do_not_multiply_the_whole_video(triples: int) -> None:
    pts = steps(*[33, 33, 34] * triples)
    grid = planned(np.sort(np.append(pts, pts[5] + 2)))
    assert 29 < grid.rule.fps < 31
    assert grid.dropped == 1


def test_recordings_of_a_screen_keep_their_bursts() -> None:
    # One picture in two seconds, then a second of motion, over and over.
    grid = planned(steps(*([2000] * 5 + [16, 17, 17] * 20) * 3))
    assert grid.rule.fps == 60
    assert grid.dropped == 0


def test_strong_jitter_loses_little() -> None:
    rng = np.random.default_rng(0)
    pts = np.cumsum(rng.integers(20, 47, 600))
    grid = planned(pts)
    assert grid.rule.fps <= 50
    assert grid.dropped <= 6


@given(
    intervals=st.lists(
        st.one_of(st.integers(1, 50), st.integers(1, 10**6), st.integers(1, 10**11)), min_size=0, max_size=80
    ),
    start=st.integers(-(10**12), 10**12),
    timebase=st.sampled_from([MS, Fraction(1, 90000), Fraction(1, 10**9), Fraction(1, 25), Fraction(1001, 24000)]),
    hints=st.lists(st.fractions(min_value=Fraction(1, 10**6), max_value=10**6), max_size=3),
)
def test_there_is_a_rate_for_any_timestamps(
    intervals: list[int], start: int, timebase: Fraction, hints: list[Fraction]
) -> None:
    pts = np.cumsum([start, *intervals])
    if sum(intervals) * timebase > 10**7:
        return
    if len(pts) > 3 and float(np.median(intervals)) * float(timebase) < 1 / MAX_RATE:
        with pytest.raises(EncodeError, match="frames/s by its timestamps"):
            planned(pts, timebase, tuple(hints), SourcePolicy(gaps="close"))
        return
    grid = planned(pts, timebase, tuple(hints), SourcePolicy(gaps="close"))
    rate = grid.rule.fps
    assert MIN_RATE <= rate <= MAX_RATE
    assert grid.source_pts[0] == start
    assert (np.diff(grid.source_pts) >= 0).all()
    assert grid.dropped == len(pts) - len(set(grid.source_pts.tolist()))
    # No lower standard rate would have shown nearly as many.
    end = int(pts[-1]) + (intervals[-1] if intervals else 1)
    for lower in STANDARD_RATES:
        if (
            max(intervals, default=0) * timebase <= 10
            and lower * Fraction(5, 4) < rate
            and grid.dropped > len(pts) // 100
        ):
            rule = TickRule.of(pts, timebase, lower, ordinary_interval(pts, timebase))
            assert count_dropped(rule, pts, end) >= grid.dropped


def test_pauses_that_are_kept_do_not_lower_the_rate() -> None:
    grid = planned(steps(*[40] * 29, 3_600_000, *[40] * 29))
    assert grid.rule.fps == 25
    assert grid.dropped == 0


@pytest.mark.parametrize("field", [Fraction(1001, 60000), Fraction(1, 60)])
@pytest.mark.parametrize("timebase", [Fraction(1, 1000), Fraction(1, 90000)])
@pytest.mark.parametrize("first", [2, 3])
def test_film_that_is_shown_for_two_fields_and_three_in_turn_has_its_own_rate(
    field: Fraction, timebase: Fraction, first: int
) -> None:
    counts = [first, 5 - first] * 200
    pts = np.round(np.cumsum([0, *counts]) * float(field / timebase)).astype(np.int64)
    end_pts = int(pts[-1]) + round(2 * field / timebase)
    assert variable_rate(pts, end_pts, timebase, (1 / (2 * field),)) == 1 / (field * Fraction(5, 2))
