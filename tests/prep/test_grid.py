"""Which source frame is shown at each tick of a constant rate."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop import EncodeError
from shortgop.prep.timing.grid import FrameGrid, Gap, TickRule, find_gaps, ordinary_interval, plan_grid
from shortgop.prep.timing.rates import STANDARD_RATES

Pts = np.ndarray[tuple[int], np.dtype[np.int64]]

TIMEBASES = st.sampled_from([Fraction(1, 1000), Fraction(1, 90000), Fraction(1, 30), Fraction(1001, 30000)])
RATES = st.one_of(
    st.sampled_from(STANDARD_RATES), st.fractions(min_value=Fraction(1, 2), max_value=240, max_denominator=1001)
)
STEPS = st.lists(st.integers(1, 5000), min_size=0, max_size=60)


def array(*pts: int) -> Pts:
    return np.array(pts, dtype=np.int64)


def plan(pts: Pts, end_pts: int, timebase: Fraction, fps: Fraction, closed: tuple[Gap, ...] = ()) -> FrameGrid:
    return plan_grid(pts, end_pts, TickRule.of(pts, timebase, fps, ordinary_interval(pts, timebase), closed))


def shown(pts: Pts, end_pts: int, timebase: Fraction, fps: Fraction) -> list[int]:
    found: list[int] = plan(pts, end_pts, timebase, fps).source_pts.tolist()
    return found


def test_the_same_rate_shows_every_frame_once() -> None:
    grid = plan(array(0, 1, 2, 3, 4), 5, Fraction(1, 30), Fraction(30))
    assert grid.source_pts.tolist() == [0, 1, 2, 3, 4]
    assert (grid.dropped, grid.repeated) == (0, 0)


def test_half_the_rate_shows_each_second_frame() -> None:
    grid = plan(array(0, 1, 2, 3, 4, 5), 6, Fraction(1, 30), Fraction(15))
    assert grid.source_pts.tolist() == [0, 2, 4]
    assert (grid.dropped, grid.repeated) == (3, 0)


def test_a_lower_rate_takes_the_nearest_frame() -> None:
    # Once a second, of 30: the frames at 0, 1 and 2 s, not those half a second later.
    assert shown(array(*range(100)), 100, Fraction(1, 30), Fraction(1)) == [0, 30, 60]
    # Ticks at 0, 41.7, 83.3, 125 ms; frames every 33.3 ms.
    assert shown(array(*range(8)), 8, Fraction(1, 30), Fraction(24)) == [0, 1, 3, 4, 5, 6]


def test_twice_the_rate_shows_every_frame_twice() -> None:
    grid = plan(array(0, 1, 2), 3, Fraction(1, 30), Fraction(60))
    assert grid.source_pts.tolist() == [0, 0, 1, 1, 2, 2]
    assert (grid.dropped, grid.repeated) == (0, 3)


def test_a_slide_is_never_shown_more_than_half_a_tick_early() -> None:
    # The second slide comes after 10.6 s: nearer to second 11, and within half a tick of it.
    assert shown(array(0, 10_600, 20_000), 30_000, Fraction(1, 1000), Fraction(1))[9:12] == [0, 0, 10_600]
    assert shown(array(0, 10_400, 20_000), 30_000, Fraction(1, 1000), Fraction(1))[9:12] == [0, 10_400, 10_400]


def test_a_pause_is_filled_with_the_frame_before_it() -> None:
    assert shown(array(0, 1, 5, 6), 7, Fraction(1, 30), Fraction(30)) == [0, 1, 1, 1, 1, 5, 6]


def test_it_starts_at_the_first_frame_wherever_that_is() -> None:
    assert shown(array(1000, 1001, 1002), 1003, Fraction(1, 30), Fraction(30)) == [1000, 1001, 1002]


def test_the_first_frame_is_shown_however_soon_the_second_comes() -> None:
    assert shown(array(0, 3, 33, 66), 100, Fraction(1, 1000), Fraction(30))[0] == 0


@pytest.mark.parametrize("fps", [Fraction(30), Fraction(10), Fraction(1, 10)], ids=str)
def test_a_single_frame_however_short_is_one_frame(fps: Fraction) -> None:
    assert shown(array(7), 7, Fraction(1, 1000), fps) == [7]


def test_a_video_shorter_than_half_a_tick_is_one_frame() -> None:
    assert shown(array(*range(90)), 90, Fraction(1, 30), Fraction(1, 10)) == [0]


def test_the_last_frame_is_shown_even_if_it_lasts_no_time() -> None:
    assert shown(array(0, 33, 67, 100), 100, Fraction(1, 1000), Fraction(30)) == [0, 33, 67, 100]


@pytest.mark.parametrize("pts", [[], [3, 3], [3, 2]])
def test_pts_that_do_not_rise_are_refused(pts: list[int]) -> None:
    rule = TickRule(Fraction(1, 30), Fraction(30), 3, Fraction(1, 60))
    with pytest.raises(ValueError, match="must rise"):
        plan_grid(array(*pts), 10, rule)


def test_a_gap_of_hours_is_not_filled_with_millions_of_repeats() -> None:
    day = 24 * 3600 * 1000
    with pytest.raises(EncodeError, match=r"31 frames spread over 86400 s .* a lower --fps"):
        plan(array(*range(0, 600, 20), day), day, Fraction(1, 1000), Fraction(50))
    # A slide show is none.
    assert len(plan(array(*range(0, day, 60_000)), day, Fraction(1, 1000), Fraction(10))) == 864_000


def test_a_gap_is_longer_than_allowed_and_than_what_is_ordinary() -> None:
    ms, limit = Fraction(1, 1000), Fraction(10)
    assert find_gaps(array(0, 40, 80, 10_080), 10_120, ms, limit) == ()
    assert find_gaps(array(0, 40, 80, 10_081), 10_121, ms, limit) == (Gap(10_081, 10_001 - 40),)
    # Half a minute between frames is what a time-lapse is; an hour in it is a gap.
    assert find_gaps(array(0, 30_000, 60_000, 90_000), 120_000, ms, limit) == ()
    assert find_gaps(array(0, 30_000, 60_000, 3_660_000), 3_690_000, ms, limit) == (Gap(3_660_000, 3_570_000),)


def test_two_or_three_frames_far_apart_have_a_gap() -> None:
    ms, limit = Fraction(1, 1000), Fraction(10)
    assert find_gaps(array(0, 3_600_000), 3_600_040, ms, limit) == (Gap(3_600_000, 3_590_000),)
    assert find_gaps(array(0, 20_000, 40_000), 50_000, ms, limit) == (Gap(20_000, 10_000), Gap(40_000, 10_000))


def test_a_last_frame_that_lasts_an_hour_is_a_gap_too() -> None:
    ms, limit = Fraction(1, 1000), Fraction(10)
    assert find_gaps(array(0, 40, 80), 3_600_000, ms, limit) == (Gap(3_600_000, 3_600_000 - 80 - 40),)
    assert find_gaps(array(0), 3_600_000, ms, limit) == (Gap(3_600_000, 3_600_000),)


def test_a_closed_gap_takes_as_long_as_any_interval() -> None:
    pts, end = array(0, 40, 80, 3_600_000, 3_600_040), 3_600_080
    grid = plan(pts, end, Fraction(1, 1000), Fraction(25), find_gaps(pts, end, Fraction(1, 1000), Fraction(10)))
    assert grid.source_pts.tolist() == pts.tolist()


@given(
    steps=STEPS,
    last=st.integers(1, 5000),
    start=st.integers(-(10**12), 10**12),
    timebase=TIMEBASES,
    fps=RATES,
    close=st.booleans(),
)
def test_it_is_the_rule_tick_by_tick(
    steps: list[int], last: int, start: int, timebase: Fraction, fps: Fraction, close: bool
) -> None:
    pts = np.cumsum([start, *steps])
    end = int(pts[-1]) + last
    closed = find_gaps(pts, end, timebase, Fraction(1, 10)) if close else ()
    ordinary = sorted(steps)[(len(steps) - 1) // 2] if steps else None

    def seconds(value: int) -> Fraction:
        return (value - start - sum(gap.units for gap in closed if gap.pts <= value)) * timebase

    if seconds(end) * fps > 2000:
        end = int(pts[-1])
    if seconds(end) * fps > 2000:
        return
    tick = 1 / fps
    tolerance = min(tick, ordinary * timebase if ordinary else tick) / 2
    grid = plan(pts, end, timebase, fps, closed)
    assert grid.source_pts[0] == start
    for k in range(1, len(grid)):
        # The first frame has the first tick to itself.
        expected = [int(value) for value in pts[:1] if k > 0] + [
            int(value) for value in pts[1:] if seconds(int(value)) <= k * tick + tolerance
        ]
        assert grid.source_pts[k] == expected[-1]
    nearest = math.floor(seconds(end) * fps + Fraction(1, 2))
    assert len(grid) >= max(1, nearest)
    assert len(grid) <= max(1, nearest, grid.rule.ticks(pts[-1:])[0] + 1)
    visible = set(grid.source_pts.tolist())
    assert grid.dropped == len(pts) - len(visible)
    assert grid.repeated == sum(int((grid.source_pts == value).sum()) > 1 for value in visible)


@given(jitter=st.lists(st.integers(-49, 49), min_size=1, max_size=80))
def test_jitter_of_less_than_half_an_interval_loses_nothing(jitter: list[int]) -> None:
    pts = np.array([0, *(100 * (number + 1) + stray for number, stray in enumerate(jitter))])
    rule = TickRule.of(pts, Fraction(1, 1000), Fraction(10), Fraction(1, 10))
    assert plan_grid(pts, int(pts[-1]) + 100, rule).dropped == 0


@given(st.integers(1, 2**62), st.integers(1, 10**9), RATES)
def test_ticks_are_exact_beyond_64_bits(span: int, denominator: int, fps: Fraction) -> None:
    timebase = Fraction(1, denominator)
    rule = TickRule(timebase, fps, 0, Fraction(1, 2) / fps)
    exact = math.ceil(span * timebase * fps - Fraction(1, 2))
    if exact < 2**62:
        assert rule.ticks(array(span)).tolist() == [max(1, exact)]
        assert rule.rounded(span) == math.floor(span * timebase * fps + Fraction(1, 2))
