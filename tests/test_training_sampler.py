"""ElasticSampler: one sequence of global batches, whatever the ranks, and no sample lost or repeated over restarts."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler

from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from shortgop.training.clips import Clips
from shortgop.training.orders import Chunked, Mixture, Order, Sequential, Shuffled, Weighted
from shortgop.training.policies import AllClips
from shortgop.training.sampler import ElasticSampler
from video_tables import clips_of


@dataclass(frozen=True)
class NoFrames:
    """Clips that have numbers and no frames: a sampler needs no more."""

    clip_index: Clips
    snapshot: str = "1"
    videos_fingerprint: str = "videos"

    def __len__(self) -> int:
        return len(self.clip_index)


def numbered(*lengths: int) -> NoFrames:
    return NoFrames(clips_of(AllClips(1), lengths), videos_fingerprint=str(lengths))


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


PADDED = AllClips(2, ends="clamp", whole=False)
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
    dataset = numbered(count)
    samplers = [
        ElasticSampler(dataset, batch, order=Sequential(), drop_last=False, rank=rank, world_size=ranks)
        for rank in range(ranks)
    ]
    seen = [list(sampler) for sampler in samplers]
    assert sorted(draw for each in seen for draw in each) == list(range(count))
    assert [len(sampler) for sampler in samplers] == [len(each) for each in seen]


def test_what_a_stateful_loader_does_inside_a_batch() -> None:
    """Micro-batches of 2 of a rank's 4: the state knows how much of the batch was taken, and who took it."""
    dataset = numbered(64)
    whole = list(ElasticSampler(dataset, 8, rank=1, world_size=2))
    sampler = ElasticSampler(dataset, 8, rank=1, world_size=2)
    iterator = iter(sampler)
    taken = [next(iterator) for _ in range(6)]
    state = sampler.state_dict()
    assert (state["position"], state["rank_offset"]) == (8, 2)
    resumed = ElasticSampler(dataset, 8, rank=1, world_size=2)
    resumed.load_state_dict(state)
    assert taken + list(resumed) == whole
    with pytest.raises(UsageError, match="taken inside a global batch, by 2 ranks and in batches of 8"):
        ElasticSampler(dataset, 8, rank=0, world_size=4).load_state_dict(state)


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


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    sampler = ElasticSampler(numbered(20), 8)
    list(sampler)
    state = sampler.state_dict()
    assert (state["epoch"], state["position"]) == (0, 16)
    resumed = ElasticSampler(numbered(20), 8)
    resumed.load_state_dict(state)
    assert resumed.epoch == 1
    sampler.set_epoch(1)
    assert list(resumed) == list(sampler)


def test_a_resumed_epoch_is_resumed_once() -> None:
    """set_epoch of the same epoch, as trainers call it, keeps the position; the next epochs are whole again."""
    sampler = ElasticSampler(numbered(32), 8)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 2, "position": 24})
    sampler.set_epoch(2)
    assert len(sampler) == 32
    assert len(list(sampler)) == 8
    assert len(list(sampler)) == 32
    sampler.set_epoch(3)
    assert len(list(sampler)) == 32
    assert min(list(sampler)) >= 3 * 32


def test_a_state_of_other_samples_is_refused_and_says_what_is_other() -> None:
    sampler = ElasticSampler(numbered(32), 8)
    state = sampler.state_dict()
    for other, what in (
        (ElasticSampler(numbered(33), 8), "other videos, in snapshot '1', and this is '1'"),
        (ElasticSampler(numbered(32), 8, seed=1), "seed: 0, now 1"),
        (ElasticSampler(numbered(32), 8, order=Chunked(2)), "order: 'Shuffled"),
        (ElasticSampler(numbered(32), 8, order=Weighted([1])), "order"),
        (ElasticSampler(replace(numbered(32), videos_fingerprint="others", snapshot="2"), 8), "snapshot '1', and this"),
        # In another snapshot the same videos.
        (ElasticSampler(replace(numbered(32), snapshot="2"), 8), None),
        # One frame is one frame, whatever the stride.
        (ElasticSampler(replace(numbered(32), clip_index=clips_of(AllClips(1, stride=2), [32])), 8), None),
        (ElasticSampler(replace(numbered(32), clip_index=clips_of(PADDED, [32])), 8), "policy"),
    ):
        if what is None:
            other.load_state_dict(state)
            continue
        with pytest.raises(UsageError, match=f"another {what}|{what}"):
            other.load_state_dict(state)
    with pytest.raises(UsageError, match="version 7"):
        sampler.load_state_dict({**state, "version": 7})


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


def test_another_epoch_than_the_one_that_was_resumed_is_noticed() -> None:
    """A loop that counts its epochs from 0 again trained on all of them once more without a word."""
    sampler = ElasticSampler(numbered(20), 4)
    sampler.set_epoch(2)
    samples = iter(sampler)
    for _ in range(8):
        next(samples)
    state = sampler.state_dict()
    for planned in (False, True):
        resumed = ElasticSampler(numbered(20), 4)
        resumed.load_state_dict(state)
        with pytest.warns(DatasetWarning, match=r"set_epoch\(0\) leaves epoch 2, which load_state_dict resumed"):
            resumed.set_epoch(0)
        resumed.set_epoch(1)
        resumed.load_state_dict(state)
        resumed.set_epoch(2)
        assert len(list(resumed.planned_batches() if planned else resumed)) == (3 if planned else 12)
        resumed.set_epoch(3)


def test_a_state_that_is_loaded_within_a_loop_is_that_of_the_next_loop() -> None:
    """As with torchdata. The end of the loop put the sampler back to the start of the epoch, so that the state was lost
    without a word."""
    sampler = ElasticSampler(numbered(20), 4)
    state = {**sampler.state_dict(), "position": 12}
    samples = iter(sampler)
    next(samples)
    sampler.load_state_dict(state)
    with pytest.warns(DatasetWarning, match=r"load_state_dict .* goes on as it was: .* leave this one \(`break`\)"):
        rest = list(samples)
    assert len(rest) == 19
    assert sampler.state_dict() == state
    assert list(sampler) == rest[11:]
    assert len(list(sampler)) == 20


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "no state of an ElasticSampler but None"),
        ({"version": None}, "no state of an ElasticSampler; it has 'clips'"),
        ({"position": None}, "the state lacks 'position'"),
        ({"position": -4}, "at position -4 of epoch 0"),
        ({"position": 10**9}, "at position 1000000000"),
        ({"position": "a"}, "the state's position is 'a'"),
        ({"epoch": -1}, "of epoch -1"),
        ({"epoch": 10**30}, "epochs count from 0 to 46"),
        ({"rank_offset": "a"}, "the state's rank_offset is 'a'"),
        ({"rank_offset": 2}, "a rank has 2 samples of a global batch: the state was changed"),
    ],
)
def test_states_that_are_none_or_were_changed(change: Any, message: str) -> None:
    sampler = ElasticSampler(numbered(10), 2)
    state: Any = {**sampler.state_dict(), **(change or {})}
    state = {name: state[name] for name in sorted(state) if state[name] is not None} if change else None
    with pytest.raises((UsageError, WrongTypeError), match=re.escape(message)):
        sampler.load_state_dict(state)


@pytest.mark.parametrize("order", ["shuffled", Shuffled, True])
def test_what_is_no_order(order: Any) -> None:
    with pytest.raises(WrongTypeError, match=r"it is an order such as shortgop\.Shuffled\(\)"):
        ElasticSampler(numbered(10), 2, order=order)


def test_a_state_after_more_batches_than_the_loader_took_is_refused() -> None:
    """A loader whose batches are half of what a rank has of a global batch is counted twice too fast."""
    sampler = ElasticSampler(numbered(40), 8, rank=0, world_size=2)
    loader = iter(BatchSampler(sampler, 2, drop_last=False))
    next(loader)
    assert sampler.state_after(1)["position"] == 8
    next(loader)
    assert sampler.state_after(1)["position"] == 8
    with pytest.raises(
        UsageError, match="batches is 2, and samples of only 1 global batches were taken so far: this rank has 4"
    ):
        sampler.state_after(2)
    assert len(list(loader)) == 8
    assert sampler.state_after(5)["position"] == 40


def test_a_state_of_batches_of_the_epoch_before_is_refused() -> None:
    """Where set_epoch came before the checkpoint, its position was taken for one of the next epoch, which a run that
    went on left out without a word."""
    for iterate in (list, lambda sampler: list(sampler.planned_batches())):
        sampler = ElasticSampler(numbered(40), 8)
        iterate(sampler)
        assert sampler.state_after(5)["epoch"] == 0
        sampler.set_epoch(1)
        with pytest.raises(UsageError, match=r"batches is 5, and .* was left for epoch 1, by set_epoch .* before that"):
            sampler.state_after(5)
        assert (sampler.state_after(0)["epoch"], sampler.state_dict()["position"]) == (1, 0)
        iterate(sampler)
        assert (sampler.state_after(5)["epoch"], sampler.state_after(5)["position"]) == (1, 40)
    # A loader that iterates over a copy of the sampler leaves the counting to the loop.
    assert ElasticSampler(numbered(40), 8).state_after(2)["position"] == 16


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
