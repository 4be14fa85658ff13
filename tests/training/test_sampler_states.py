"""States of an ElasticSampler: where they go on, once, and those that are refused or told."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler

from numbered_clips import numbered
from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from shortgop.training.sampling.orders import Chunked, Mixture, Sequential, Weighted
from shortgop.training.sampling.sampler import ElasticSampler
from shortgop.training.which_clips.policies import AllClips
from video_tables import clips_of

PADDED = AllClips(2, ends="clamp", whole=False)


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


def test_epochs_that_come_again_after_a_state_are_told() -> None:
    """Who counts from another epoch than the state's trains on the same clips again."""
    sampler = ElasticSampler(numbered(32), 8)
    middle = {**sampler.state_dict(), "epoch": 2, "position": 24}
    end = {**sampler.state_dict(), "epoch": 1, "position": 32}
    for state, left in ((middle, 8), (end, 32)):
        for first in (1, 2):
            sampler.load_state_dict(state)
            assert len(list(sampler)) == left
            with pytest.warns(DatasetWarning, match=rf"set_epoch\({first}\) goes back, .* went on in epoch 2: clips"):
                sampler.set_epoch(first)
            assert len(list(sampler)) == 32
            sampler.set_epoch(first + 1)
            assert len(list(sampler)) == 32
    # A pass that was left begins again where the state is, and evaluation may come again.
    sampler.load_state_dict(end)
    assert next(iter(sampler)) // 32 == 2
    sampler.set_epoch(2)
    assert len(list(sampler)) == 32
    in_order = ElasticSampler(numbered(32), 8, order=Sequential())
    in_order.load_state_dict({**in_order.state_dict(), "epoch": 2})
    first_pass = list(in_order)
    in_order.set_epoch(2)
    assert list(in_order) == first_pass


@pytest.mark.filterwarnings("error")
def test_a_loop_that_counts_on_from_a_state_may_go_back_later() -> None:
    """A second pass of an epoch, for metrics, and a second stage of training, which begins at epoch 0."""
    sampler = ElasticSampler(numbered(32), 8)
    state = {**sampler.state_dict(), "epoch": 2, "position": 24}
    for again in (2, 0):
        sampler.load_state_dict(state)
        sampler.set_epoch(2)
        assert len(list(sampler)) == 8
        sampler.set_epoch(again)
        assert len(list(sampler)) == 32
    # One that left the rest of the state's epoch to a loop before it counts on, too.
    sampler.load_state_dict(state)
    assert len(list(sampler)) == 8
    for epoch in (3, 0):
        sampler.set_epoch(epoch)
        assert len(list(sampler)) == 32


def test_a_state_of_other_samples_is_refused_and_says_what_is_other() -> None:
    sampler = ElasticSampler(numbered(32), 8)
    state = sampler.state_dict()
    for other, what in (
        (ElasticSampler(numbered(33), 8), "other videos, though in snapshot '1' too: of another dataset, or chosen"),
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


def test_other_weights_are_told_as_what_another_order_has() -> None:
    """Two orders of the same name differ in a number of which nobody knows what it stands for. Labels that were
    corrected while a run stood still are such a case."""
    state = ElasticSampler(numbered(8), 4, order=Weighted([1, 2] * 4, of="clips")).state_dict()
    with pytest.raises(UsageError, match="another order: 'Weighted.* were then, with the same labels or weights"):
        ElasticSampler(numbered(8), 4, order=Weighted([1, 3] * 4, of="clips")).load_state_dict(state)
    with pytest.raises(UsageError, match="another seed: 0, now 1; .* as they were then, or begin"):
        ElasticSampler(numbered(8), 4, order=Weighted([1, 2] * 4, of="clips"), seed=1).load_state_dict(state)


def test_other_kinds_of_orders_are_told_without_labels_and_mixtures_of_earlier_versions_as_such() -> None:
    state = ElasticSampler(numbered(8), 4).state_dict()
    with pytest.raises(UsageError, match="another order: 'Shuffled.* were then, or begin without it"):
        ElasticSampler(numbered(8), 4, order=Chunked(2)).load_state_dict(state)
    mixture = ElasticSampler(numbered(8), 4, order=Mixture([1]))
    earlier = {**mixture.state_dict(), "order": "Mixture((1,), 8, [Shuffled()])"}
    with pytest.raises(UsageError, match="an earlier version shuffled .* otherwise: begin without the state$"):
        mixture.load_state_dict(earlier)
    with pytest.raises(UsageError, match="another order: .Mixture.* as they were then, or begin without it"):
        mixture.load_state_dict(ElasticSampler(numbered(8), 4, order=Mixture([2])).state_dict())


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "no state of an ElasticSampler: it is None; give what state_dict"),
        ({"version": None}, "no state of an ElasticSampler: it has 'clips'"),
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


def test_a_state_after_more_batches_than_the_loader_took_is_refused() -> None:
    """A loader whose batches are half of what a rank has of a global batch is counted twice too fast."""
    sampler = ElasticSampler(numbered(40), 8, rank=0, world_size=2)
    loader = iter(BatchSampler(sampler, 2, drop_last=False))
    next(loader)
    assert sampler.state_after(1)["position"] == 8
    next(loader)
    assert sampler.state_after(1)["position"] == 8
    with pytest.raises(
        UsageError, match="batches is 2, and samples of only 1 global batches came so far: this rank has 4"
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


def test_states_are_plain_numbers_and_texts_whatever_the_sampler_was_given() -> None:
    """torch.load refuses integers of numpy, unless weights_only is False."""
    given: Any = {"global_batch_size": np.int64(8), "seed": np.int64(3), "rank": np.int64(0), "world_size": np.int64(2)}
    sampler = ElasticSampler(numbered(40), **given, order=Weighted(np.arange(40), of="clips"))
    sampler.set_epoch(np.int64(2))  # type: ignore[arg-type]
    sampler.load_state_dict({**sampler.state_dict(), "position": np.int64(8)})
    next(iter(sampler))
    for state in (sampler.state_dict(), sampler.state_after(np.int64(1)), next(sampler.planned_batches()).state):  # type: ignore[arg-type]
        file = io.BytesIO()
        torch.save({"sampler": state}, file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == {"sampler": state}
