"""Seconds and frames: no frame may be missed or taken for its neighbour because a float was rounded."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shortgop.readers.times import first_frame_from, frame_played_at, resampled, seconds_of

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
