"""Which batches an epoch of buckets has, and which clips each rank has of them: pure functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import UsageError
from shortgop.training.sampling.buckets import BatchOrder, BucketBatches
from shortgop.training.sampling.orders import Chunked, Sequential, Shuffled, Systematic
from shortgop.training.which_clips.mixing import MixedIndex
from shortgop.training.which_clips.policies import AllClips
from test_training_keyed import chi_square_is_ordinary
from video_tables import clips_of

# Clips of each dataset, and how many of them a batch has.
BUCKETS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 6)).filter(lambda each: each[0] >= each[1]), min_size=1, max_size=4
)


def made_of(
    buckets: list[tuple[int, int]], order: Any = None, *, drop_last: bool = True
) -> tuple[MixedIndex, BatchOrder]:
    clips = MixedIndex(tuple(clips_of(AllClips(1), [count]) for count, _ in buckets))
    orders = (order or Shuffled(),) * len(buckets)
    return clips, BatchOrder(tuple(size for _, size in buckets), orders, drop_last)


def epoch_of(clips: MixedIndex, order: BatchOrder, epoch: int, seed: int = 0) -> tuple[BucketBatches, list[int]]:
    """The batches, and their numbers in the order of an epoch."""
    bound = order.bound(clips, seed)
    draws = bound.draws(epoch, np.arange(bound.length))
    assert (draws // bound.length == epoch).all()
    return order.batches(clips, seed), (draws % bound.length).tolist()


@given(BUCKETS, st.integers(0, 50), st.integers(0, 3), st.sampled_from([Shuffled(), Chunked(3), Sequential()]))
def test_an_epoch_has_every_whole_batch_of_each_dataset_once(
    buckets: list[tuple[int, int]], epoch: int, seed: int, order: Any
) -> None:
    clips, batch_order = made_of(buckets, order)
    batches, numbers = epoch_of(clips, batch_order, epoch, seed)
    assert sorted(numbers) == list(range(sum(count // size for count, size in buckets)))
    seen: list[int] = []
    for number in numbers:
        dataset = batches.dataset_of(number)
        draws = batches.draws(epoch, number)
        assert len(draws) == buckets[dataset][1]
        located = clips.located(draws)
        assert {part for part, _ in located} == {dataset}, "clips of several datasets"
        # Each dataset has rounds of its own.
        assert {own // buckets[dataset][0] for _, own in located} == {epoch * len(buckets) + dataset}
        seen += draws
    assert len(set(seen)) == len(seen)


@given(BUCKETS, st.integers(0, 50), st.sampled_from([2, 3, 5]))
def test_the_ranks_have_parts_of_one_batch(buckets: list[tuple[int, int]], epoch: int, ranks: int) -> None:
    clips, order = made_of([(count * ranks, size * ranks) for count, size in buckets])
    batches, numbers = epoch_of(clips, order, epoch)
    for number in numbers:
        parts = [batches.draws(epoch, number, rank, ranks) for rank in range(ranks)]
        assert len(set(map(len, parts))) == 1
        assert [draw for part in parts for draw in part] == batches.draws(epoch, number)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(0, 50),
    st.integers(1, 5),
    st.sampled_from([Shuffled(), Chunked(3), Sequential()]),
)
def test_with_all_that_is_left_over_every_clip_comes_once_over_all_ranks(
    buckets: list[tuple[int, int]], epoch: int, ranks: int, order: Any
) -> None:
    buckets = [(count, max(size, ranks)) for count, size in buckets]
    clips, batch_order = made_of(buckets, order, drop_last=False)
    batches, numbers = epoch_of(clips, batch_order, epoch)
    datasets = [batches.dataset_of(number) for number in numbers]
    parts = [[batches.draws(epoch, number, rank, ranks) for number in numbers] for rank in range(ranks)]
    seen = [clips.located(batch) for of_rank in parts for batch in of_rank if batch]
    rounds = {divmod(clip // buckets[part][0] - part, len(buckets)) for batch in seen for part, clip in batch}
    indices = sorted((part, clip % buckets[part][0]) for batch in seen for part, clip in batch)
    assert rounds == {(epoch, 0)}
    assert indices == [(part, clip) for part, (count, _) in enumerate(buckets) for clip in range(count)]
    # The global batches are those of one rank, and the smaller ones come last.
    whole = [batches.draws(epoch, number) for number in numbers]
    assert [[draw for of_rank in parts for draw in of_rank[step]] for step in range(len(numbers))] == whole
    lengths = [len(batch) for batch in whole]
    smaller = sorted((count % size for count, size in buckets if count % size), reverse=True)
    assert lengths[len(lengths) - len(smaller) :] == smaller
    del lengths[len(lengths) - len(smaller) :], datasets[len(lengths) :]
    assert all(length == buckets[dataset][1] for length, dataset in zip(lengths, datasets, strict=True))
    # In a step all ranks that have clips have those of one dataset, and as many to within one.
    for rank, of_rank in enumerate(parts):
        own = [bool(batch) for batch in of_rank]
        assert own == sorted(own, reverse=True), "a step without clips lies between others"
        assert sum(own) == batches.num_of(rank)
    for step in zip(*parts, strict=True):
        assert max(map(len, step)) - min(map(len, step)) <= 1


def test_each_batch_is_as_likely_at_each_place() -> None:
    clips, order = made_of([(8, 2), (30, 15)])
    places = np.zeros((6, 6), dtype=np.int64)
    for epoch in range(3000):
        places[epoch_of(clips, order, epoch)[1], range(6)] += 1
    assert all(chi_square_is_ordinary(of_batch) for of_batch in places)


def test_clips_that_make_no_whole_batch_are_others_in_each_epoch() -> None:
    clips, order = made_of([(5, 2)])
    left_out = set()
    for epoch in range(40):
        batches, numbers = epoch_of(clips, order, epoch)
        read = {draw % 5 for number in numbers for draw in batches.draws(epoch, number)}
        left_out |= set(range(5)) - read
    assert left_out == set(range(5))


def test_buckets_of_the_same_videos_have_other_groups() -> None:
    """As those of clips of two lengths. Under one seed the same videos were together in both, in each epoch."""
    parts = (clips_of(AllClips(1), [1] * 400), clips_of(AllClips(2), [2] * 400))
    batches, numbers = epoch_of(MixedIndex(parts), BatchOrder((4, 4), (Shuffled(), Shuffled())), 0)
    own: list[set[frozenset[int]]] = [set(), set()]
    for number in numbers:
        located = MixedIndex(parts).located(batches.draws(0, number))
        own[batches.dataset_of(number)].add(frozenset(clip % 400 for _, clip in located))
    # That any group of 4 is in both by chance is less likely than one in 100,000.
    assert not own[0] & own[1]


def test_an_order_says_how_often_a_dataset_comes() -> None:
    clips, _ = made_of([(40, 1), (5, 1)])
    often = BatchOrder((4, 4), (Shuffled(), Systematic([1], num_samples=40)))
    batches, numbers = epoch_of(clips, often, 0)
    datasets = [batches.dataset_of(number) for number in numbers]
    assert (datasets.count(0), datasets.count(1)) == (10, 10)
    draws = [draw for number in numbers if batches.dataset_of(number) for draw in batches.draws(0, number)]
    assert len(set(draws)) == 40, "random choices are others each time"


def test_datasets_without_a_whole_batch_and_orders_with_windows_are_refused() -> None:
    clips, order = made_of([(40, 4), (3, 4)])
    with pytest.raises(
        UsageError, match="dataset 1 of MixedClips has 3 samples in an epoch, fewer than its batches of 4"
    ):
        order.bound(clips, 0)
    clips, order = made_of([(40, 4)], Chunked(2, window=8))
    with pytest.raises(UsageError, match="the order of dataset 0 shuffles within a window"):
        order.bound(clips, 0)
    empty = MixedIndex((clips_of(AllClips(1), [3]), clips_of(AllClips(5, ends="drop"), [3])))
    with pytest.raises(UsageError, match="dataset 1 of MixedClips has no clips: leave it out"):
        BatchOrder((1, 1), (Shuffled(), Shuffled())).bound(empty, 0)
