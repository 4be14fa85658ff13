"""Which videos go into a cache that is too small for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.readers.cache_filling import fitting_into


@pytest.mark.parametrize(
    ("room", "fitting"),
    [(10, [0, 1, 2, 3]), (9, [0, 1, 2]), (7, [0, 1, 3]), (4, [0, 3]), (2, [3]), (0, [])],
)
def test_what_does_not_fit_leaves_room_for_what_comes_after_it(room: int, fitting: list[int]) -> None:
    assert fitting_into(room, np.array([3, 3, 3, 1])).tolist() == fitting


def test_a_dataset_without_videos_fills_nothing() -> None:
    assert fitting_into(10, np.zeros(0, dtype=np.int64)).tolist() == []


@given(st.integers(0, 200), st.lists(st.integers(1, 50), max_size=40))
def test_it_is_what_taking_one_after_the_other_gives(room: int, sizes: list[int]) -> None:
    taken, left = [], room
    for number, size in enumerate(sizes):
        if size <= left:
            taken.append(number)
            left -= size
    assert fitting_into(room, np.array(sizes, dtype=np.int64)).tolist() == taken
