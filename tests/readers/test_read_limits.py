"""Which gaps are read over: pure functions of what a store answered at first."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from shortgop.readers.read_limits import ON_DISK, limits_for, with_gap

KIB = 1 << 10


def test_a_request_costs_as_much_as_the_bytes_that_come_in_its_latency() -> None:
    """At 10 ms and 90 MB/s: 0.9 MB."""
    assert limits_for(0.01).max_gap_bytes == 900_000


def test_a_store_nearby_is_read_like_a_disk_and_a_far_one_with_bounded_gaps() -> None:
    assert limits_for(0.0002).max_gap_bytes == ON_DISK.max_gap_bytes == 64 * KIB
    assert limits_for(1.0).max_gap_bytes == limits_for(math.inf).max_gap_bytes == 4096 * KIB


@given(st.floats(0, math.inf))
def test_limits_are_bounded_whatever_was_measured(latency_seconds: float) -> None:
    limits = limits_for(latency_seconds)
    assert 64 * KIB <= limits.max_gap_bytes <= 4096 * KIB
    assert 4096 * KIB <= limits.max_read_bytes <= 16384 * KIB


@given(st.integers(0, 1 << 40))
def test_what_is_asked_for_is_the_gap(max_gap_bytes: int) -> None:
    limits = with_gap(max_gap_bytes)
    assert limits.max_gap_bytes == max_gap_bytes <= limits.max_read_bytes
