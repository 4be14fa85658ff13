"""Seconds and frames: no frame may be missed or taken for its neighbour because a float was rounded."""

import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from shortgop.arguments import number
from shortgop.readers.times import first_frame_from, frame_played_at, is_range, resampled, resampled_count, seconds_of

NTSC = Fraction(30000, 1001)
RATES = st.sampled_from(
    [NTSC, Fraction(24000, 1001), Fraction(60000, 1001), Fraction(25), Fraction(24), Fraction(30), Fraction(50, 3)]
) | st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 10**4)).filter(lambda fps: fps <= 1000)
FRAMES = st.integers(0, 10**8)
MANY = 10**9


@given(FRAMES, RATES)
@example(1, NTSC)
def test_the_time_of_a_frame_leads_to_that_frame(frame: int, fps: Fraction) -> None:
    assert frame_played_at(seconds_of(frame, fps), fps, MANY) == frame
    assert frame_played_at(frame / fps, fps, MANY) == frame
    assert first_frame_from(seconds_of(frame, fps), fps, MANY) == frame
    assert first_frame_from(frame / fps, fps, MANY) == frame


@given(FRAMES, RATES)
def test_just_before_its_time_the_frame_before_is_shown(frame: int, fps: Fraction) -> None:
    before = math.nextafter(seconds_of(frame + 1, fps), 0)
    # Where the float lies behind the exact time, the exact time counts as well.
    if Fraction(before) < (frame + 1) / fps:
        assert frame_played_at(before, fps, MANY) == frame


def test_some_rounded_times_lie_before_the_frame() -> None:
    """Without care, about a third of all NTSC times would lead to the frame before."""
    times = [Fraction(seconds_of(frame, NTSC)) for frame in range(1000)]
    early = sum(time < frame / NTSC for frame, time in enumerate(times))
    assert 100 < early < 900


@given(st.floats(0, 10**5), RATES)
def test_what_is_shown_started_and_has_not_ended(seconds: float, fps: Fraction) -> None:
    frame = frame_played_at(seconds, fps, MANY)
    assert frame is not None
    assert min(Fraction(seconds_of(frame, fps)), frame / fps) <= Fraction(seconds)
    assert seconds < seconds_of(frame + 1, fps)
    assert Fraction(seconds) < (frame + 1) / fps


@given(st.floats(0, 10**5), RATES)
def test_the_first_frame_from_a_time(seconds: float, fps: Fraction) -> None:
    frame = first_frame_from(seconds, fps, MANY)
    assert seconds_of(frame, fps) >= seconds or frame / fps >= Fraction(seconds)
    assert frame == 0 or seconds_of(frame - 1, fps) < seconds


@pytest.mark.parametrize(
    ("start", "stop", "fps", "expected"),
    [
        (0.0, 1.0, 4.0, [0.0, 0.25, 0.5, 0.75]),
        (0.5, 1.0, 4.0, [0.5, 0.75]),
        (0.0, 1.0, 1.4, [0.0]),
        (0.0, 1.0, 1.5, [0.0, 1 / 1.5]),
        (0.0, 0.1, 1.0, []),
    ],
)
def test_resampled(start: float, stop: float, fps: float, expected: list[float]) -> None:
    assert resampled(start, stop, fps) == expected


@given(st.floats(0, 100), st.floats(0.01, 100), st.floats(0.1, 240))
def test_resampled_times_stay_in_the_range(start: float, length: float, fps: float) -> None:
    stop = start + length
    times = resampled(start, stop, fps)
    assert all(start <= time < stop for time in times)
    assert abs(len(times) - (stop - start) * fps) <= 0.5


def near_the_end(end: Fraction) -> st.SearchStrategy[Any]:
    """Times about the end of a video, exact and inexact, in every type that callers have them in."""
    nearest = float(end)
    exact = st.fractions(-1, 1, max_denominator=10**30).map(lambda part: end + part / 10**16)
    steps = st.integers(-3, 3).map(lambda ulps: nearest + ulps * math.ulp(nearest))
    floats = st.floats(0, 2 * nearest + 1) | steps | st.just(nearest)
    return st.one_of(
        exact,
        st.just(end),
        floats,
        floats.map(np.float32),
        floats.map(lambda value: torch.tensor(value, dtype=torch.float32)),
        floats.map(lambda value: torch.tensor(value, dtype=torch.float64)),
        exact.map(lambda value: Decimal(value.numerator) / Decimal(value.denominator)),
        exact.map(lambda value: np.longdouble(value.numerator) / np.longdouble(value.denominator)),
    )


@given(st.data(), RATES, st.integers(1, 10**6))
def test_no_time_leads_to_a_frame_that_the_video_does_not_have(data: Any, fps: Fraction, num_frames: int) -> None:
    """float(1.6) is more than 8/5: a comparison with the one let the other pass, and read the next video."""
    end = num_frames / fps
    time = number(data.draw(near_the_end(end)), "a time")
    frame = frame_played_at(time, fps, num_frames)
    assert frame is None or 0 <= frame < num_frames
    inside = 0 <= time < min(end, Fraction(seconds_of(num_frames, fps)))
    assert (frame is not None) == inside
    if time >= 0:
        assert 0 <= first_frame_from(time, fps, num_frames) <= num_frames


@pytest.mark.parametrize(
    "end", [1.6, Fraction(16, 10), Decimal("1.6"), np.longdouble("1.6"), np.float64(1.6)], ids=repr
)
def test_the_end_of_a_video_is_no_time_of_it(end: Any) -> None:
    assert frame_played_at(number(end, "a time"), Fraction(10), 16) is None


@given(RATES, st.integers(1, 10**6))
def test_a_range_may_end_at_the_exact_end_and_at_the_float(fps: Fraction, num_frames: int) -> None:
    for end in (num_frames / fps, seconds_of(num_frames, fps)):
        assert is_range(0.0, end, fps, num_frames)
        assert first_frame_from(end, fps, num_frames) == num_frames
        assert not is_range(end, end, fps, num_frames)
    assert not is_range(0.0, num_frames / fps + Fraction(1, 10), fps, num_frames)


@pytest.mark.parametrize("time", [float("nan"), float("inf"), float("-inf"), -1e-300, 1e308, Fraction(10**400)])
def test_times_that_no_video_has(time: float | Fraction) -> None:
    assert frame_played_at(time, NTSC, 10**6) is None
    assert not is_range(time, 1.0, NTSC, 10**6)


def test_rates_beyond_what_can_be_counted() -> None:
    assert resampled_count(0.0, 2.0, 1.7e308) == sys.maxsize
    assert resampled_count(0.0, 1.0, 1e12) == 10**12
    assert resampled_count(0.0, 1.0, 5e-324) == 0
