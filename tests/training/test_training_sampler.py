"""ElasticSampler: one sequence of global batches, whatever the ranks, and no sample lost or repeated over restarts."""

from __future__ import annotations

import tracemalloc
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler

from numbered_clips import numbered
from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from shortgop.training.sampling.bound_order import Order
from shortgop.training.sampling.orders import Chunked, Mixture, Sequential, Shuffled, Weighted
from shortgop.training.sampling.sampler import ElasticSampler


def global_batches(dataset: Any, batch: int, ranks: int, epoch: int = 0, state: Any = None, **options: Any) -> Any:
    """What all ranks together read, batch by batch; from a state on where one is given."""
    parts = []
    for rank in range(ranks):
        sampler = ElasticSampler(dataset, batch, rank=rank, world_size=ranks, **options)
        sampler.set_epoch(epoch)
        if state is not None:
            sampler.load_state_dict(state)
        parts.append(list(BatchSampler(sampler, batch // ranks, drop_last=False)))
    return [[draw for part in batch for draw in part] for batch in zip(*parts, strict=True)]


ORDERS: st.SearchStrategy[Order] = st.sampled_from([Shuffled(), Chunked(3), Sequential(), Chunked(4, window=16)])


@given(st.integers(24, 150), st.integers(0, 50), st.integers(0, 3), ORDERS)
def test_the_global_batches_do_not_depend_on_the_number_of_ranks(
    count: int, epoch: int, seed: int, order: Order
) -> None:
    dataset = numbered(count)
    alone = global_batches(dataset, 24, 1, epoch, seed=seed, order=order)
    assert len(alone) == count // 24
    for ranks in (2, 3, 8, 24):
        assert global_batches(dataset, 24, ranks, epoch, seed=seed, order=order) == alone


# Ranks and global batch size, how many batches are trained on, and how many draws are read ahead and lost.
LIVES = st.lists(
    st.tuples(
        st.sampled_from([(1, 8), (2, 8), (3, 12), (4, 24), (8, 24), (6, 6)]), st.integers(0, 5), st.integers(0, 9)
    ),
    max_size=6,
)


@given(st.integers(24, 200), ORDERS, LIVES)
def test_no_sample_is_lost_or_repeated_over_restarts_on_other_numbers_of_ranks(
    count: int, order: Order, lives: list[tuple[tuple[int, int], int, int]]
) -> None:
    """Train for some batches, be killed with more read ahead, go on with other ranks and another batch size."""
    dataset = numbered(count)
    trained: list[int] = []
    state = ElasticSampler(dataset, 1, order=order).state_dict()
    for (ranks, batch), wanted, read_ahead in lives:
        batches = min(wanted, (count - len(trained)) // batch)
        if not batches:
            continue
        states = []
        for rank in range(ranks):
            sampler = ElasticSampler(dataset, batch, rank=rank, world_size=ranks, order=order)
            sampler.load_state_dict(state)
            draws = iter(sampler)
            trained += [next(draws) for _ in range(batches * batch // ranks)]
            for _ in range(read_ahead):
                next(draws, None)
            states.append(sampler.state_after(batches))
        state = states[0]
        assert state["position"] == len(trained)
        assert {each["position"] for each in states} <= {len(trained)}
        assert len(set(trained)) == len(trained)
    rest = ElasticSampler(dataset, 1, order=order)
    rest.load_state_dict(state)
    if rest.epoch == 0:
        trained += list(rest)
    assert sorted(trained) == list(range(count))


@given(st.integers(20, 90), st.integers(0, 8), ORDERS)
def test_resumed_batches_are_those_that_were_left(count: int, done: int, order: Order) -> None:
    dataset = numbered(count)
    whole = global_batches(dataset, 6, 2, 3, order=order)
    sampler = ElasticSampler(dataset, 6, rank=0, world_size=1, order=order)
    sampler.set_epoch(3)
    done = min(done, len(whole) - 1)
    state = sampler.state_after(done)
    assert global_batches(dataset, 6, 3, 0, state=state, order=order) == whole[done:]


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 7))
def test_evaluation_sees_every_sample_exactly_once(count: int, batch: int, ranks: int) -> None:
    assume(batch >= ranks)
    dataset = numbered(count)
    samplers = [
        ElasticSampler(dataset, batch, order=Sequential(), drop_last=False, rank=rank, world_size=ranks)
        for rank in range(ranks)
    ]
    seen = [list(sampler) for sampler in samplers]
    assert sorted(draw for each in seen for draw in each) == list(range(count))
    assert [len(sampler) for sampler in samplers] == [len(each) for each in seen]


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_batch_has_a_sample_for_each_rank(drop_last: bool) -> None:
    """Of 2 samples for 4 ranks two ranks never had any, and no warning said so."""
    for batch, ranks in ((2, 4), (5, 8)):
        with pytest.raises(UsageError, match=rf"global_batch_size is {batch}, .*{ranks} ranks.*; give .*{ranks}"):
            ElasticSampler(numbered(8), batch, order=Sequential(), rank=0, world_size=ranks, drop_last=drop_last)


def test_ranks_that_would_wait_for_one_another_in_training_are_told() -> None:
    """Of 9 samples in batches of 4 the last one is that of one rank, which waits in DDP for the other: that has begun
    the next epoch, whose gradients are added to those of this one, or has ended."""
    with pytest.warns(DatasetWarning, match="last global batch .* 1 of 2 ranks have no sample, .* drop_last=True"):
        ElasticSampler(numbered(9), 4, rank=0, world_size=2, drop_last=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ElasticSampler(numbered(10), 4, rank=0, world_size=2, drop_last=False)
        ElasticSampler(numbered(9), 4, rank=0, world_size=2)
        ElasticSampler(numbered(9), 4, rank=0, world_size=1, drop_last=False)
        ElasticSampler(numbered(9), 4, order=Sequential(), rank=0, world_size=2, drop_last=False)


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"shuffle": False}, "here it is order, .* shortgop.Sequential\\(\\) does not shuffle"),
        ({"num_replicas": 2}, "here it is world_size"),
        ({"batch_size": 4}, "here it is global_batch_size, that of all ranks together"),
        ({"ordr": None}, "see its docstring"),
    ],
)
def test_parameters_of_other_samplers_are_told_what_they_are_here(option: dict[str, Any], remedy: str) -> None:
    with pytest.raises(WrongTypeError, match=f"no parameter {next(iter(option))!r}: {remedy}"):
        ElasticSampler(numbered(8), 4, **option)


def test_where_the_size_of_batches_has_another_name_or_none_that_is_told() -> None:
    """As in code that had a DistributedSampler, which takes no size, or other loaders, which take that of a rank."""
    with pytest.raises(WrongTypeError, match="no parameter 'batch_size': here it is global_batch_size"):
        ElasticSampler(numbered(8), batch_size=4)  # type: ignore[arg-type]
    with pytest.raises(WrongTypeError, match="global_batch_size is missing: .* all ranks together"):
        ElasticSampler(numbered(8), rank=0, world_size=2)


def test_iterators_that_are_begun_in_vain_change_nothing() -> None:
    sampler = ElasticSampler(numbered(32), 8)
    iter(sampler)
    first = iter(sampler)
    taken = [next(first) for _ in range(8)]
    iter(sampler)
    assert sampler.state_dict()["position"] == 8
    assert [*taken, *first] == list(sampler)


def test_an_iterator_has_the_epoch_that_is_set_before_its_first_draw() -> None:
    """Lightning begins to read before it sets the epoch where it resumes. What has read ahead by then is told."""
    sampler = ElasticSampler(numbered(20), 4)
    early, late = iter(sampler), iter(sampler)
    first = next(late)
    sampler.set_epoch(2)
    assert sorted(draw // 20 for draw in early) == [2] * 20
    with pytest.warns(
        DatasetWarning, match=r"set_epoch\(2\) was called after a loop over batches of epoch 0 had begun"
    ):
        assert sorted(draw // 20 for draw in [first, *late]) == [0] * 20


def test_memory_does_not_grow_with_the_number_of_samples() -> None:
    sampler = ElasticSampler(numbered(10**9, 10**9), 4096, rank=3, world_size=8)
    tracemalloc.start()
    iterator = iter(sampler)
    drawn = [next(iterator) for _ in range(10_000)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(drawn)) == 10_000
    assert peak < 8e6


def test_it_is_a_distributed_sampler_for_those_who_look() -> None:
    sampler = ElasticSampler(numbered(100), 16, rank=1, world_size=2)
    assert isinstance(sampler, DistributedSampler)
    assert (sampler.num_replicas, sampler.rank, sampler.num_samples, sampler.total_size) == (2, 1, 48, 96)
    assert (ElasticSampler(numbered(100), 16).num_replicas, ElasticSampler(numbered(100), 16).rank) == (1, 0)


def test_its_repr_says_what_it_is_and_where() -> None:
    sampler = ElasticSampler(numbered(10, 10), 4, order=Chunked(3), seed=7, rank=1, world_size=2)
    samples = iter(sampler)
    for _ in range(5):
        next(samples)
    of = "Chunked(chunk=3), seed 7, global batches of 4, rank 1 of 2"
    assert repr(sampler) == f"<ElasticSampler of 20 clips: {of}, epoch 0 at 8 of 20>"
    weighted = ElasticSampler(numbered(10, 10), 4, order=Weighted([1, 2]))
    assert "20 clips: Weighted(of='videos'), seed 0" in repr(weighted), "weights may be millions"
    assert "20 clips: Mixture(quotas=(3,)), seed 0" in repr(ElasticSampler(numbered(10, 10), 4, order=Mixture([3])))


def test_what_is_dropped_is_other_samples_each_time() -> None:
    sampler = ElasticSampler(numbered(20), 8)
    dropped = []
    for epoch in range(50):
        sampler.set_epoch(epoch)
        dropped += sorted(set(range(20)) - {draw % 20 for draw in sampler})
    assert set(dropped) == set(range(20))
    assert np.bincount(dropped).max() < 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"global_batch_size": 9, "rank": 0, "world_size": 2}, "global_batch_size is 9, which 2 ranks do not divide"),
        ({"global_batch_size": 8, "rank": 2, "world_size": 2}, "rank is 2; with world_size 2 it is from 0 to 1"),
        ({"global_batch_size": 8, "rank": 2}, "rank and world_size go together"),
        ({"global_batch_size": 0}, "global_batch_size is 0"),
        ({"global_batch_size": 64}, "an epoch has 32 samples, fewer than global_batch_size 64"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ElasticSampler(numbered(32), **options)


def test_other_datasets_are_refused() -> None:
    with pytest.raises(WrongTypeError, match="the dataset is a list; ElasticSampler takes a ClipDataset"):
        ElasticSampler([1, 2, 3], 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["shuffled", Shuffled, True])
def test_what_is_no_order(order: Any) -> None:
    with pytest.raises(WrongTypeError, match=r"it is an order such as shortgop\.Shuffled\(\)"):
        ElasticSampler(numbered(10), 2, order=order)


@pytest.mark.long
def test_a_sampler_made_before_the_ranks_are_known_is_refused(tmp_path: Path) -> None:
    with get_context("spawn").Pool(2) as pool:
        said = pool.starmap(made_before_the_ranks_are_known, [(rank, str(tmp_path / "store")) for rank in range(2)])
    for rank, messages in enumerate(said):
        expected = f"the sampler was made for rank 0 of 1, and this is now rank {rank} of 2: make it after"
        assert [message[: len(expected)] for message in messages] == [expected] * 2


def made_before_the_ranks_are_known(rank: int, store: str) -> list[str]:
    """What a sampler says as it is iterated, by draws and by batches, in one of two ranks."""
    early, given_ranks = ElasticSampler(numbered(8), 4), ElasticSampler(numbered(8), 4, rank=0, world_size=1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    try:
        # A rank that had ended before the other one was connected would be an error there.
        torch.distributed.barrier()
        assert len(list(given_ranks)) == 8
        assert len(list(ElasticSampler(numbered(8), 4))) == 4
        said = []
        for iterate in (early.__iter__, early.planned_batches):
            try:
                list(iterate())
            except UsageError as error:
                said.append(str(error))
        return said
    finally:
        torch.distributed.destroy_process_group()


def test_an_epoch_that_is_gone_through_again_and_again_is_told() -> None:
    """Without set_epoch every epoch has the same clips in the same order, and nothing else shows it."""
    passes = (list, lambda sampler: [*sampler.planned_batches(), sampler.end_epoch(sampler.epoch, sampler.moves)])
    for whole_pass in passes:
        sampler = ElasticSampler(numbered(6, 4), 5)
        for _ in range(2):
            # A look at the first sample is no pass.
            next(iter(sampler))
            whole_pass(sampler)
        with pytest.warns(
            DatasetWarning, match=r"epoch 0 begins for the third time, .* call sampler\.set_epoch\(epoch\)"
        ):
            whole_pass(sampler)
        # Once, and not where epochs are set: warnings are errors in these tests.
        whole_pass(sampler)
        for epoch in range(1, 5):
            sampler.set_epoch(epoch)
            whole_pass(sampler)


def test_evaluation_has_the_same_epoch_each_time() -> None:
    sampler = ElasticSampler(numbered(6, 4), 5, order=Sequential(), drop_last=False)
    assert [list(sampler) for _ in range(4)] == [list(range(10))] * 4
