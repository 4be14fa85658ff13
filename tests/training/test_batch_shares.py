"""A DataLoader reads as one batch what a rank has of a global batch, or a number that divides it: others are errors."""

from __future__ import annotations

import _thread
import bisect
import gc
import pickle
import threading
import weakref
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import UsageError
from training_videos import make_videos

RANKS = 2
GLOBAL_BATCH = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="module")
def dataset(folder: Path) -> shortgop.ClipDataset:
    """74 clips."""
    return shortgop.ClipDataset(folder, shortgop.AllClips(1))


def sampler_of(dataset: Any, rank: int, **options: Any) -> shortgop.ElasticSampler:
    return shortgop.ElasticSampler(dataset, GLOBAL_BATCH, rank=rank, world_size=RANKS, **options)


def loader_of(dataset: Any, sampler: Any, batch_size: int, workers: int = 0) -> DataLoader[Any]:
    options: Any = {"multiprocessing_context": "spawn"} if workers else {}
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=workers, **options)


class OneByOne(shortgop.ClipDataset):
    def __getitem__(self, draw: int) -> dict[str, Any]:
        return {**super().__getitem__(draw), "own": 1}


@pytest.mark.first_case_short
@pytest.mark.parametrize(("rank", "workers"), [(0, 0), (1, 1)])
def test_the_global_batch_size_in_the_loader_of_each_rank_is_refused(
    dataset: shortgop.ClipDataset, rank: int, workers: int
) -> None:
    """A step then read 16 samples, and state_after counted 8: a run that went on from it read half of them again."""
    loader = loader_of(dataset, sampler_of(dataset, rank), GLOBAL_BATCH, workers)
    said = (
        f"8 clips are read as one batch, and rank {rank} of 2 has 4 of each global batch of 8, .*"
        "give the DataLoader batch_size=4, or ElasticSampler global_batch_size=16"
    )
    with pytest.raises(UsageError, match=said):
        next(iter(loader))


def test_a_sampler_of_draws_is_no_batch_sampler(dataset: shortgop.ClipDataset) -> None:
    """Torch's error was that a Draw has no len()."""
    for each in (dataset, shortgop.MixedClips([dataset, dataset])):
        loader = DataLoader(each, batch_sampler=sampler_of(each, 0))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="with batch_sampler=ElasticSampler.* give it sampler= and batch_size=4"):
            next(iter(loader))


@pytest.mark.first_case_short
@pytest.mark.parametrize("workers", [0, 1])
def test_with_the_batch_size_of_a_rank_a_run_goes_on_behind_what_was_trained_on(
    dataset: shortgop.ClipDataset, workers: int
) -> None:
    samplers = [sampler_of(dataset, rank) for rank in range(RANKS)]
    loaders = [iter(loader_of(dataset, each, GLOBAL_BATCH // RANKS, workers)) for each in samplers]
    trained = [draw for _ in range(3) for each in loaders for draw in next(each)["draw"].tolist()]
    states = [each.state_after(3) for each in samplers]
    assert states[0] == states[1]
    assert states[0]["position"] == len(trained)
    alone = shortgop.ElasticSampler(dataset, GLOBAL_BATCH)
    whole = list(alone)
    alone.load_state_dict(states[0])
    assert trained + list(alone) == whole


def test_the_same_of_other_datasets_and_of_evaluation(folder: Path, dataset: shortgop.ClipDataset) -> None:
    for other in (shortgop.MixedClips([dataset, dataset]), OneByOne(folder, shortgop.AllClips(1))):
        with pytest.raises(UsageError, match="give the DataLoader batch_size=4"):
            next(iter(loader_of(other, sampler_of(other, 0), GLOBAL_BATCH)))
        assert len(next(iter(loader_of(other, sampler_of(other, 0), 4)))["draw"]) == 4
    in_order = {"order": shortgop.Sequential(), "drop_last": False}
    with pytest.raises(UsageError, match="give the DataLoader batch_size=4"):
        next(iter(loader_of(dataset, sampler_of(dataset, 0, **in_order), GLOBAL_BATCH)))


def test_ranks_whose_parts_differ_by_one_take_the_larger_part(dataset: shortgop.ClipDataset) -> None:
    """As in evaluation with a batch that three ranks do not divide."""
    seen = []
    for rank in range(3):
        sampler = shortgop.ElasticSampler(
            dataset, 8, order=shortgop.Sequential(), drop_last=False, rank=rank, world_size=3
        )
        seen += [draw for batch in loader_of(dataset, sampler, 3) for draw in batch["draw"].tolist()]
        with pytest.raises(UsageError, match=f"rank {rank} of 3 has 3 of each global batch"):
            next(iter(loader_of(dataset, sampler, 4)))
    assert sorted(seen) == list(range(74))


@pytest.mark.first_case_short
@pytest.mark.parametrize("workers", [2, 0])
def test_parts_of_a_share_are_read_and_counted_in_global_batches(dataset: shortgop.ClipDataset, workers: int) -> None:
    """Micro-batches: two of them make a step. Where workers had read ahead, a state of as many global batches left out
    clips without a word."""
    sampler = sampler_of(dataset, 0)
    copied = pickle.dumps(sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, micro_batch in enumerate(loader_of(dataset, sampler, 2, workers), 1):
            assert len(micro_batch["draw"]) == 2
            step = number // 2
            assert sampler.state_after(step)["position"] == step * GLOBAL_BATCH
            if number > 1:
                # An epoch has 9 global batches.
                told = f", and samples of only {-(-number // 2)} global" if number <= 9 else "; this iteration has 9 "
                with pytest.raises(UsageError, match=f"batches is {number}{told}"):
                    sampler.state_after(number)
            copied = pickle.dumps(sampler)
        assert number == 18
        assert sampler.state_after(9)["position"] == 72
    # The copy has no loader, and is where the sampler was.
    assert pickle.loads(copied).state_after(9)["position"] == 72


def test_a_loop_that_is_left_keeps_no_loader_alive(dataset: shortgop.ClipDataset) -> None:
    """Also before garbage is collected: its worker processes lived on, each with what it had read ahead."""

    def iterator_of_a_loop() -> weakref.ref[Any]:
        iterator = iter(loader_of(dataset, sampler_of(dataset, 0), 4))
        next(iterator)
        return weakref.ref(iterator)

    gc.collect()
    gc.disable()
    try:
        assert iterator_of_a_loop()() is None
    finally:
        gc.enable()


def test_a_batch_size_that_does_not_divide_a_share_is_refused(dataset: shortgop.ClipDataset) -> None:
    """A run that went on from state_after(2) left out what the loader had not read of 16 samples."""
    said = (
        "3 clips are read as one batch, and rank 0 of 2 has 4 of each global batch of 8, .* batch_size that divides 4"
    )
    with pytest.raises(UsageError, match=said):
        next(iter(loader_of(dataset, sampler_of(dataset, 0), 3)))


@pytest.mark.long
def test_evaluation_takes_any_batch_size_up_to_a_share(dataset: shortgop.ClipDataset) -> None:
    sampler = sampler_of(dataset, 0, order=shortgop.Sequential(), drop_last=False)
    assert [len(batch["draw"]) for batch in loader_of(dataset, sampler, 3)] == [3] * 12 + [1]


def test_a_pass_that_begins_within_a_global_batch_is_read_in_whole_shares(dataset: shortgop.ClipDataset) -> None:
    """As a StatefulDataLoader's that goes on with another batch size: its last batch is what is left."""
    taken = sampler_of(dataset, 0)
    draws = iter(taken)
    begun = [int(next(draws))]
    resumed = sampler_of(dataset, 0)
    resumed.load_state_dict(taken.state_dict())
    rest = [draw for batch in loader_of(dataset, resumed, 4) for draw in batch["draw"].tolist()]
    assert begun + rest == list(sampler_of(dataset, 0))


def test_draws_reach_other_processes_with_their_share(dataset: shortgop.ClipDataset) -> None:
    draws = list(sampler_of(dataset, 1))[:5]
    with pytest.raises(UsageError, match="rank 1 of 2 has 4 of each"):
        dataset.__getitems__(pickle.loads(pickle.dumps(draws)))
    # Numbers alone belong to no sampler.
    assert len(dataset.__getitems__([int(draw) for draw in draws])) == 5


def test_a_sampler_of_another_dataset_is_refused(folder: Path, dataset: shortgop.ClipDataset) -> None:
    """Its draws were those of other clips without a word, as of a training set that was filtered after its sampler was
    made."""
    sampler = sampler_of(dataset, 0)
    some = shortgop.ClipDataset(folder, shortgop.AllClips(1), videos=["a.mp4"])
    mixed = shortgop.MixedClips([some, some])
    for other, count in ((some, 40), (mixed, 80)):
        with pytest.raises(UsageError, match=f"is of a dataset of 74 clips, and this one has {count}: give the DataLo"):
            next(iter(loader_of(other, sampler, GLOBAL_BATCH // RANKS)))
        with pytest.raises(UsageError, match="make a sampler of this one"):
            other[next(iter(sampler))]
    same = shortgop.ClipDataset(folder, shortgop.AllClips(1))
    next(iter(loader_of(same, sampler, GLOBAL_BATCH // RANKS)))


def some_clips(folder: Path, num_frames: int = 4, seed: int = 0, **options: Any) -> shortgop.ClipDataset:
    return shortgop.ClipDataset(folder, shortgop.RandomClips(num_frames, clips_per_video=4), seed=seed, **options)


def test_a_sampler_of_other_clips_is_refused_also_where_they_are_as_many(folder: Path) -> None:
    """The weights of one dataset would be those of another, and a state would lead to other clips."""
    one = some_clips(folder, videos=["a.mp4"])

    def first(dataset: Any, of: Any = one) -> Any:
        return next(iter(loader_of(dataset, shortgop.ElasticSampler(of, 4), 4)))

    refused = "the sampler is of another dataset, which has as many clips of other videos, or by another policy or seed"
    longer = some_clips(folder, 8, videos=["a.mp4"])
    for other in (some_clips(folder, videos=["b.mp4"]), some_clips(folder, seed=1, videos=["a.mp4"]), longer):
        with pytest.raises(UsageError, match=refused):
            first(other)
        with pytest.raises(UsageError, match=refused):
            first(shortgop.MixedClips([other]), of=shortgop.MixedClips([one]))
    # The same clips will do, as with another transform, and so will copies.
    for same in (some_clips(folder, videos=["a.mp4"], transform=torch.Tensor.float), pickle.loads(pickle.dumps(one))):
        first(same)
    first(shortgop.MixedClips([one, one]), of=shortgop.MixedClips([one, one]))


def test_a_worker_tells_them_apart_without_a_fingerprint(folder: Path) -> None:
    """For which it would have to count all clips. Only for a dataset that was made anew it is needed."""
    dataset = some_clips(folder, videos=["a.mp4"])
    copy = pickle.loads(pickle.dumps(dataset))
    draws = pickle.loads(pickle.dumps(list(shortgop.ElasticSampler(dataset, 4))))
    copy.__getitems__(draws)
    assert "videos_fingerprint" not in vars(copy)
    assert "fingerprint" not in vars(copy.clip_index)
    with pytest.raises(UsageError, match="the sampler is of another dataset"):
        some_clips(folder, videos=["b.mp4"]).__getitems__(draws)


def test_draws_are_not_taken_for_places_of_several_or_some(folder: Path) -> None:
    """In the second epoch a ConcatDataset read other clips, or those of the first epoch again, without a word."""
    one, other = some_clips(folder, videos=["a.mp4"]), some_clips(folder, videos=["b.mp4"])
    sampler = shortgop.ElasticSampler(one, 4)
    both: Any = torch.utils.data.ConcatDataset([one, other])
    backwards: Any = torch.utils.data.Subset(one, range(3, -1, -1))
    # In a worker, too.
    for epoch, workers in ((0, 0), (1, 1)):
        sampler.set_epoch(epoch)
        with pytest.raises(UsageError, match=r"a ConcatDataset takes them for places .* shortgop\.MixedClips"):
            next(iter(loader_of(both, sampler, 4, workers)))
    sampler.set_epoch(0)
    with pytest.raises(UsageError, match="a Subset takes them for places .* give ClipDataset videos="):
        next(iter(loader_of(backwards, sampler, 4)))
    # Samplers of torch do yield places.
    assert len(list(DataLoader(both, batch_size=4, shuffle=True))) == 2
    assert next(iter(DataLoader(backwards, batch_size=4)))["draw"].tolist() == [3, 2, 1, 0]


class OfOnesOwn(torch.utils.data.ConcatDataset[Any]):
    """As people name their datasets."""


class Some(torch.utils.data.Subset[Any]):
    """As well."""


def test_neither_are_they_by_subclasses_nor_where_one_lies_within_another(folder: Path) -> None:
    """Only the class itself was known, and only where it asked the dataset directly."""
    clips = OneByOne(folder, shortgop.RandomClips(4, clips_per_video=4))
    plain = some_clips(folder)
    backwards = range(11, -1, -1)
    concat, subset = torch.utils.data.ConcatDataset[Any], torch.utils.data.Subset[Any]
    wrapped: list[tuple[Any, Any, str]] = [
        (plain, OfOnesOwn([plain]), "a OfOnesOwn .*MixedClips"),
        (plain, Some(plain, backwards), "a Some .*videos="),
        (plain, Some(subset(plain, backwards), backwards), "a Some .*videos="),
        (plain, Some(concat([plain]), backwards), "a Some .*videos="),
        (clips, subset(clips, backwards), "a Subset .*videos="),
        (clips, concat([clips]), "a ConcatDataset .*MixedClips"),
    ]
    for dataset, wrapper, named in wrapped:
        with pytest.raises(UsageError, match=named):
            next(iter(loader_of(wrapper, shortgop.ElasticSampler(dataset, 4), 4)))
        # Places of torch's samplers are theirs.
        assert len(next(iter(DataLoader(wrapper, batch_size=4)))["draw"]) == 4
    # So are draws that a Subset was made of: it hands on what they are.
    draws = list(shortgop.ElasticSampler(plain, 4, order=shortgop.Sequential()))
    assert next(iter(DataLoader(subset(plain, draws), batch_size=4)))["draw"].tolist() == [0, 1, 2, 3]


class WithCaptions(torch.utils.data.Dataset[dict[str, Any]]):
    """As people add to items of a dataset that they have."""

    def __init__(self, clips: shortgop.ClipDataset) -> None:
        self.clips = clips

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {**self.clips[place], "caption": "a cat"}


def test_neither_are_they_where_a_dataset_of_ones_own_lies_in_between(folder: Path) -> None:
    """In the second epoch it was clips of the other dataset that came, or the first one's again."""
    one, other = some_clips(folder, videos=["a.mp4"]), some_clips(folder, videos=["b.mp4"])
    sampler = shortgop.ElasticSampler(one, 4)
    wrappers: list[torch.utils.data.Dataset[Any]] = [
        torch.utils.data.ConcatDataset([WithCaptions(one), WithCaptions(other)]),
        torch.utils.data.Subset(WithCaptions(one), range(4)),
    ]
    for wrapper in wrappers:
        with pytest.raises(UsageError, match="takes them for places of its own"):
            next(iter(loader_of(wrapper, sampler, 4)))
        assert len(next(iter(DataLoader(wrapper, batch_size=4, shuffle=True)))["draw"]) == 4
    # Alone it hands draws on.
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        assert next(iter(loader_of(WithCaptions(one), sampler, 4)))["draw"].tolist() == list(sampler)[:4]


class Several(torch.utils.data.Dataset[dict[str, Any]]):
    """As people put datasets together themselves: each has the numbers from `firsts` on."""

    def __init__(self, parts: Sequence[shortgop.ClipDataset], firsts: Sequence[int]) -> None:
        self.parts, self.firsts = parts, firsts

    def __getitem__(self, place: int) -> dict[str, Any]:
        part = bisect.bisect_right(self.firsts, place) - 1
        return self.parts[part][place - self.firsts[part]]


@pytest.mark.parametrize("as_firsts", [list, np.array])
def test_neither_are_they_by_a_class_of_ones_own_that_subtracts_where_a_dataset_begins(
    as_firsts: Any, folder: Path
) -> None:
    """The first epoch was right, and the second one of other clips without a word."""
    parts = [some_clips(folder, videos=["a.mp4"]), some_clips(folder, videos=["b.mp4"])]
    several = Several(parts, as_firsts([0, len(parts[0])]))
    assert several[len(parts[0]) + 1]["draw"] == 1
    sampler = shortgop.ElasticSampler(shortgop.MixedClips(parts), 4)
    for draw in sampler:
        with pytest.raises(
            UsageError, match="is of a dataset of 8 clips, and this one has 4: .*shortgop.MixedClips puts"
        ):
            several[draw]


def test_clips_beside_those_of_a_sampler_are_no_part_of_its_batch(folder: Path) -> None:
    """A batch with the clip before each was refused as too large."""
    clips = some_clips(folder)
    sampler = shortgop.ElasticSampler(clips, 4)
    sampler.set_epoch(1)
    batch = list(sampler)[:4]
    for beside in ([draw - 1 for draw in batch], [draw + 1 for draw in batch]):
        read = [each for pair in zip(batch, beside, strict=True) for each in pair]
        assert [item["draw"] for item in clips.__getitems__(read)] == read
        assert [item["draw"] for item in clips.__getitems__(beside[:3])] == beside[:3]
    with pytest.raises(UsageError, match="5 clips are read as one batch"):
        clips.__getitems__([*batch, batch[0]])


def test_a_thread_that_begins_with_an_item_reads_it(folder: Path) -> None:
    """Nobody asks there, which was a ValueError of Python: call stack is not deep enough."""
    read = threading.Event()

    def noted(frames: Any) -> Any:
        read.set()
        return frames

    clips = some_clips(folder, transform=noted)
    _thread.start_new_thread(clips.__getitem__, (0,))
    assert read.wait(60)


@pytest.mark.filterwarnings("ignore:.set_vital. is deprecated")
@pytest.mark.first_case_short
@pytest.mark.parametrize("stateful", [False, True])
def test_a_state_is_not_counted_in_batches_that_come_in_another_order(
    stateful: bool, dataset: shortgop.ClipDataset
) -> None:
    """A run that went on from it had some samples twice and others never, without a word."""
    sampler = shortgop.ElasticSampler(dataset, 4)
    kind: Any = import_module("torchdata.stateful_dataloader").StatefulDataLoader if stateful else DataLoader

    def loader(**options: Any) -> Any:
        return kind(dataset, batch_size=4, sampler=sampler, multiprocessing_context="forkserver", **options)

    batches = iter(loader(num_workers=2, in_order=False))
    next(batches)
    with pytest.raises(UsageError, match="batches is 1, and the DataLoader has in_order=False"):
        sampler.state_after(1)
    assert len(list(batches)) == 17
    # All of them, in any order.
    assert sampler.state_after(18)["position"] == 72
    next(iter(loader(num_workers=1)))
    sampler.state_after(1)
