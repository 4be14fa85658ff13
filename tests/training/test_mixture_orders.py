"""Mixtures of datasets: quotas in every block, an order of its own for each dataset, seeds, and lengths."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import UsageError
from shortgop.training.sampling.bound_order import BoundOrder
from shortgop.training.sampling.orders import Mixture, Shuffled
from shortgop.training.which_clips.clips import Clips
from shortgop.training.which_clips.keyed import key
from shortgop.training.which_clips.mixing import MixedIndex
from shortgop.training.which_clips.policies import AllClips, RandomClips
from test_training_orders import draws
from video_tables import clips_of


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=3))
def test_a_mixture_has_its_quotas_in_every_block_and_each_dataset_goes_on_in_its_own_order(
    sizes: list[tuple[int, int]],
) -> None:
    parts = [clips_of(RandomClips(1), [20] * size) for size, _ in sizes]
    quotas = [quota for _, quota in sizes]
    mixed = MixedIndex(tuple(parts))
    block = sum(quotas)
    order = Mixture(quotas, num_blocks=5)
    found = [mixed.located(draws(order, mixed, epoch)) for epoch in range(3)]
    # One order stands for that of each dataset.
    assert draws(Mixture(quotas, orders=Shuffled(), num_blocks=5), mixed, 2) == draws(order, mixed, 2)
    for epoch in found:
        for first in range(0, len(epoch), block):
            assert Counter(part for part, _ in epoch[first : first + block]) == Counter(dict(enumerate(quotas)))
    for part, (size, quota) in enumerate(sizes):
        # Round r of a dataset is one of its own rounds, r * len(sizes) + part.
        drawn = [draw for epoch in found for which, draw in epoch if which == part]
        own = [(draw // size - part) // len(sizes) * size + draw % size for draw in drawn]
        epochs, seed = range(5 * 3 * quota // size + 1), key(0, "dataset of a mixture", part) >> 33
        endless = [draw for epoch in epochs for draw in draws(Shuffled(), parts[part], epoch, seed)]
        # In the order of blocks, and in any order within a block.
        for first in range(0, len(own), quota):
            assert sorted(own[first : first + quota]) == sorted(endless[first : first + quota])


@pytest.mark.parametrize(
    ("shares", "quotas"),
    [
        (np.array([0.75, 0.25]), ": 0.75 and 0.25 are [3, 1]"),
        ([0.333, 0.333, 0.334], ": [0.333, 0.333, 0.334] are [1, 1, 1]"),
        ([0.001, 0.999], ": 0.001 and 0.999 are [1, 999]"),
        ([0.5, 0.3, 0.2], ": [0.5, 0.3, 0.2] are [5, 3, 2]"),
        ([2.0, 4], ": 2.0 and 4 are [1, 2]"),
        ([0.335, 0.1, 0.565], ": [0.335, 0.1, 0.565] are [67, 20, 113]"),
        ([0.1, 0.45, 0.455], ": [0.1, 0.45, 0.455] are [20, 90, 91]"),
        ([0.7183, 0.2817], ""),
        ([0.5, -0.5], ""),
        (["a", 1], ""),
        ([True, 1], ""),
    ],
)
def test_a_mixture_of_shares_is_told_the_quotas_that_they_are(shares: Any, quotas: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"has to be an integer{quotas}") + "$"):
        Mixture(shares)


def test_datasets_of_the_same_videos_do_not_come_in_pairs() -> None:
    """As those of clips of two lengths: a batch would have each of its videos twice."""
    parts = (clips_of(AllClips(1), [1] * 400), clips_of(AllClips(2), [2] * 400))
    mixed = MixedIndex(parts)
    drawn = mixed.located(draws(Mixture([1, 1]), mixed, 0))
    videos = [draw % 400 for _, draw in drawn]
    pairs = sum(videos[place] == videos[place + 1] for place in range(0, len(drawn), 2))
    assert pairs < 10  # one of 400 by chance, in the mean


class OfAUser:
    """An order that is shuffled by numpy, whose RandomState takes seeds of 32 bits."""

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        def shuffled(epoch: int, positions: Any) -> Any:
            return epoch * len(clips) + np.random.RandomState(seed + epoch).permutation(len(clips))[positions]

        return BoundOrder(len(clips), shuffled, "OfAUser()")


def test_seeds_of_a_mixture_are_as_small_as_those_that_orders_get_alone() -> None:
    mixed = MixedIndex((clips_of(AllClips(1), [5]), clips_of(AllClips(1), [5])))
    assert sorted(draws(Mixture([1, 1], OfAUser()), mixed, 1)) == list(range(10, 20))


def test_a_mixture_lasts_until_each_dataset_was_seen() -> None:
    parts = (clips_of(AllClips(1), [10]), clips_of(AllClips(1), [4]))
    bound = Mixture([2, 1]).bound(MixedIndex(parts), 0)
    assert bound.length == 5 * 3
    assert Mixture([1, 1]).bound(MixedIndex(parts), 0).length == 10 * 2
