"""Which source frame is shown at each tick of a constant rate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop import EncodeError
from shortgop.prep.grid import STANDARD_RATES, constant_rate, nominal_rate, plan_grid, ticks_of

TIMEBASES = st.sampled_from([Fraction(1, 1000), Fraction(1, 90000), Fraction(1, 30), Fraction(1001, 30000)])
RATES = st.one_of(
    st.sampled_from(STANDARD_RATES), st.fractions(min_value=Fraction(1, 2), max_value=240, max_denominator=1001)
)
PTS = st.lists(st.integers(1, 5000), min_size=0, max_size=60).map(lambda steps: np.cumsum([0, *steps]))


def array(*pts: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(pts, dtype=np.int64)


def test_the_same_rate_shows_every_frame_once() -> None:
    grid = plan_grid(array(0, 1, 2, 3, 4), 5, Fraction(1, 30), Fraction(30))
    assert grid.source_pts.tolist() == [0, 1, 2, 3, 4]


def test_half_the_rate_shows_each_second_frame() -> None:
    # At 15 a second frame 1 is at tick 0.5, which rounds up to 1: there frame 2 has its turn already.
    grid = plan_grid(array(0, 1, 2, 3, 4, 5), 6, Fraction(1, 30), Fraction(15))
    assert grid.source_pts.tolist() == [0, 2, 4]


def test_twice_the_rate_shows_every_frame_twice() -> None:
    grid = plan_grid(array(0, 1, 2), 3, Fraction(1, 30), Fraction(60))
    assert grid.source_pts.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_gap_is_filled_with_the_frame_before_it() -> None:
    grid = plan_grid(array(0, 1, 5, 6), 7, Fraction(1, 30), Fraction(30))
    assert grid.source_pts.tolist() == [0, 1, 1, 1, 1, 5, 6]


def test_it_starts_at_the_first_frame_wherever_that_is() -> None:
    grid = plan_grid(array(1000, 1001, 1002), 1003, Fraction(1, 30), Fraction(30))
    assert grid.source_pts.tolist() == [1000, 1001, 1002]


def test_a_single_frame_however_short_is_one_frame() -> None:
    assert len(plan_grid(array(7), 7, Fraction(1, 1000), Fraction(30))) == 1


@pytest.mark.parametrize("pts", [[], [3, 3], [3, 2]])
def test_pts_that_do_not_rise_are_refused(pts: list[int]) -> None:
    with pytest.raises(ValueError, match="must rise"):
        plan_grid(array(*pts), 10, Fraction(1, 30), Fraction(30))


def test_a_gap_of_hours_is_not_filled_with_millions_of_repeats() -> None:
    day = 24 * 3600 * 1000
    with pytest.raises(EncodeError, match=r"31 frames spread over 86400 s .* its timestamps are damaged"):
        plan_grid(array(*range(0, 600, 20), day), day, Fraction(1, 1000), Fraction(50))
    # A slide show is none.
    assert len(plan_grid(array(*range(0, day, 60_000)), day, Fraction(1, 1000), Fraction(10))) == 864_000


@given(pts=PTS, last=st.integers(1, 5000), start=st.integers(-(10**12), 10**12), timebase=TIMEBASES, fps=RATES)
def test_it_is_the_formula_tick_by_tick(
    pts: np.ndarray[tuple[int], np.dtype[np.int64]], last: int, start: int, timebase: Fraction, fps: Fraction
) -> None:
    pts = pts + start
    end = int(pts[-1]) + last
    if (end - start) * timebase * fps > 2000:
        end = int(pts[-1])

    def turn(value: int) -> int:
        return ((value - start) * timebase * fps + Fraction(1, 2)).__floor__()

    num_frames = max(1, turn(end))
    if num_frames > 20000:
        return
    turns = [turn(int(value)) for value in pts]
    expected = []
    shown = 0
    for tick in range(num_frames):
        while shown + 1 < len(turns) and turns[shown + 1] <= tick:
            shown += 1
        expected.append(int(pts[shown]))
    assert plan_grid(pts, end, timebase, fps).source_pts.tolist() == expected


@given(st.integers(0, 2**62), st.integers(1, 10**9), RATES)
def test_ticks_are_exact_beyond_64_bits(span: int, denominator: int, fps: Fraction) -> None:
    timebase = Fraction(1, denominator)
    exact = (span * timebase * fps + Fraction(1, 2)).__floor__()
    if exact < 2**62:
        assert ticks_of(array(span), 0, timebase, fps).tolist() == [exact]


@pytest.mark.parametrize("rate", STANDARD_RATES, ids=str)
@pytest.mark.parametrize("start", [0, 33, 123_456])
def test_a_rate_that_milliseconds_blur_is_found_exactly(rate: Fraction, start: int) -> None:
    # Long enough for 29.97 and 30 to part: a blurred millisecond allows either for the first second.
    frames = np.arange(3000)
    pts = array(*(start + round(int(n) * 1000 / rate) for n in frames))
    assert constant_rate(pts, Fraction(1, 1000), ()) == rate


def test_the_containers_rate_comes_first_if_it_is_true() -> None:
    pts = array(*range(0, 90_000, 3600))
    assert constant_rate(pts, Fraction(1, 90000), (Fraction(25),)) == 25
    assert constant_rate(pts, Fraction(1, 90000), (Fraction(30),)) == 25


def test_an_unusual_rate_is_kept_as_it_is() -> None:
    assert constant_rate(array(*range(0, 700, 7)), Fraction(1, 100), ()) == Fraction(100, 7)


def test_a_missing_frame_makes_the_rate_variable_but_leaves_it_nominal() -> None:
    pts = np.delete(array(*(round(n * 1000 / 30) for n in range(90))), 40)
    assert constant_rate(pts, Fraction(1, 1000), (Fraction(30),)) is None
    assert nominal_rate(pts, Fraction(1, 1000)) == 30
