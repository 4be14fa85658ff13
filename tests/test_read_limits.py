"""Which gaps are read over: pure functions of what a store answered at first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shortgop.readers.read_limits import ON_DISK, limits_for, with_gap

KIB = 1 << 10


def test_a_request_costs_as_much_as_the_bytes_that_come_in_its_latency() -> None:
    """At 10 ms and 90 MB/s: 0.9 MB."""
    assert limits_for(3, 30_000, 0.03).max_gap_bytes == 890_000
    # Three requests for 9 MB took 30 ms, besides the 100 ms in which the bytes came.
    assert limits_for(3, 9_000_000, 0.13).max_gap_bytes == 900_000


def test_a_store_nearby_is_read_like_a_disk_and_a_far_one_with_bounded_gaps() -> None:
    assert limits_for(3, 0, 0.0006).max_gap_bytes == 64 * KIB
    assert limits_for(3, 0, 3.0).max_gap_bytes == 4096 * KIB
    assert limits_for(0, 0, 0.0) == ON_DISK


@given(st.integers(0, 10), st.integers(0, 1 << 30), st.floats(0, 100))
def test_limits_are_bounded_whatever_was_measured(requests: int, num_bytes: int, seconds: float) -> None:
    limits = limits_for(requests, num_bytes, seconds)
    assert 64 * KIB <= limits.max_gap_bytes <= 4096 * KIB
    assert 4096 * KIB <= limits.max_read_bytes <= 16384 * KIB


@given(st.integers(0, 1 << 40))
def test_what_is_asked_for_is_the_gap(max_gap_bytes: int) -> None:
    limits = with_gap(max_gap_bytes)
    assert limits.max_gap_bytes == max_gap_bytes <= limits.max_read_bytes
