"""Keyed random numbers: their values, that all come equally often, and that permutations are permutations."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.training.which_clips.keyed import below, hashes, key, permuted

KEYS = st.integers(0, 2**64 - 1)


def chi_square_is_ordinary(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    """Whether counts of outcomes that should be equally likely are: chi-square within 4 deviations of what it expects.

    The chi-square of k degrees has mean k and variance 2k; a fair source fails this once in some ten thousand times,
    and the seeds are fixed.
    """
    expected = counts.sum() / len(counts)
    assert expected >= 5
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    return bool(abs(statistic - freedom) < 4 * math.sqrt(2 * freedom))


def test_the_values_never_change() -> None:
    """Orders of trainings that are under way depend on them: a change here is a new version of the sampler's state."""
    assert key(1, "x") == 8963517277132131811
    assert key("1", "x") != key(1, "x")
    assert key(cast(Any, np.int64(1)), "x") == key(1, "x")
    assert hashes(key(1, "x"), [0, 1, 2, 2**62]).tolist() == [
        8270123735862677493,
        970200832668167205,
        10502579937433651342,
        2237192604243718506,
    ]
    assert permuted(key(1, "x"), 10, range(10)).tolist() == [1, 5, 7, 8, 0, 2, 4, 3, 9, 6]
    assert permuted(key(1, "x"), 10**9, [0, 1, 2]).tolist() == [682084052, 106838598, 591752174]
    assert permuted(key(2, "x"), 2**40 + 1, [0, 2**40]).tolist() == [806232908847, 103242021335]


@given(KEYS, st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20), st.integers(1, 2**63 - 1))
def test_below_is_exact(hash_key: int, numbers: list[int], bound: int) -> None:
    bits = hashes(hash_key, numbers)
    assert below(bits, bound).tolist() == [int(each) * bound >> 64 for each in bits]


@given(KEYS, st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_a_hash_does_not_depend_on_its_neighbours(hash_key: int, numbers: list[int]) -> None:
    assert hashes(hash_key, numbers).tolist() == [int(hashes(hash_key, each)) for each in numbers]


@given(KEYS, st.one_of(st.integers(1, 300), st.integers(65_530, 70_000), st.sampled_from([131_072, 131_073])))
def test_a_permutation_gives_every_number_once(hash_key: int, count: int) -> None:
    assert np.array_equal(np.sort(permuted(hash_key, count, np.arange(count))), np.arange(count))


@given(KEYS, st.integers(1, 2**62 - 1), st.data())
def test_any_part_of_a_permutation_can_be_had_alone(hash_key: int, count: int, data: st.DataObject) -> None:
    count = count if count < 2**16 or count > 2**17 else 2**17
    places = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=30))
    together = permuted(hash_key, count, places)
    assert together.tolist() == [int(permuted(hash_key, count, place)) for place in places]
    assert len(set(together.tolist())) == len(set(places))


def test_all_orders_of_five_are_as_likely() -> None:
    """A Feistel network of 8 rounds fails this: chi-square 1,023 on 119 degrees."""
    orders = {order: number for number, order in enumerate(permutations(range(5)))}
    found = [orders[tuple(permuted(key(seed), 5, range(5)).tolist())] for seed in range(12_000)]
    assert chi_square_is_ordinary(np.bincount(found, minlength=120))


@pytest.mark.parametrize("count", [65_537, 100_003, 2**20])
def test_a_large_permutation_spreads_neighbours_over_everything(count: int) -> None:
    """Where the first positions land, the distance of neighbours, and the lowest bits: none shows a pattern."""
    places = np.concatenate([permuted(key(seed), count, np.arange(256)) for seed in range(200)])
    assert chi_square_is_ordinary(np.bincount(places * 64 // count, minlength=64))
    assert chi_square_is_ordinary(np.bincount(places[places < count // 16 * 16] % 16, minlength=16))
    steps = (places[1::2] - places[::2]) % count
    assert chi_square_is_ordinary(np.bincount(steps * 64 // count, minlength=64))


def test_one_place_sees_everything_equally_often() -> None:
    """Over many keys, as over many epochs: each number is as likely at each position."""
    count = 70_000
    seen = np.concatenate([permuted(key("epoch", epoch), count, [0, 1, count - 1]) for epoch in range(4000)])
    assert chi_square_is_ordinary(np.bincount(seen * 100 // count, minlength=100))


def test_hashes_of_one_number_under_neighbouring_seeds_are_independent() -> None:
    draws = below([int(hashes(key(seed, "start"), 7)) for seed in range(20_000)], 10)
    assert chi_square_is_ordinary(np.bincount(draws, minlength=10))
    assert chi_square_is_ordinary(np.bincount(draws[1:] * 10 + draws[:-1], minlength=100))
