"""BucketSampler: batches of clips of one shape, of videos that have several, on any ranks and after any restart."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shortgop
from bucket_videos import BATCH_SIZES, BATCHES, EVALUATED, make_bucket_videos, mixed, of_epochs, shown
from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from shortgop.manifests.operations.drop import drop
from shortgop.storage.disk import DiskStorage

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bucket_videos(tmp_path_factory.mktemp("buckets"))


@pytest.fixture(scope="module")
def buckets(folder: Path) -> shortgop.MixedClips:
    return mixed(folder)


def global_batches(dataset: shortgop.MixedClips, sizes: int | Sequence[int], ranks: int, **options: Any) -> Any:
    """What all ranks together read, batch by batch."""
    samplers = [shortgop.BucketSampler(dataset, sizes, rank=rank, world_size=ranks, **options) for rank in range(ranks)]
    return [[draw for part in batch for draw in part] for batch in zip(*samplers, strict=True)]


def test_every_loader_has_the_same_batches_each_of_clips_of_one_shape(buckets: shortgop.MixedClips) -> None:
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES, seed=3)
    expected = list(sampler)
    assert len(expected) == len(sampler) == sum(BATCHES)
    for workers in (0, 2):
        sampler = shortgop.BucketSampler(buckets, BATCH_SIZES, seed=3)
        assert [shown(batch) for batch in shortgop.ClipLoader(buckets, sampler, workers=workers)] == expected
    assert [shown(batch) for batch in DataLoader(buckets, batch_sampler=sampler)] == expected
    datasets = [buckets.clip_index.located(draws)[0][0] for draws in expected]
    assert [datasets.count(each) for each in range(3)] == BATCHES
    assert datasets != sorted(datasets)


def test_epochs_and_seeds_have_other_batches(buckets: shortgop.MixedClips) -> None:
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
    first = list(sampler)
    sampler.set_epoch(1)
    assert sampler.epoch == 1
    second = [shown(batch) for batch in shortgop.ClipLoader(buckets, sampler, workers=0)]
    other_seed = list(shortgop.BucketSampler(buckets, BATCH_SIZES, seed=1))
    plain = [[[draw % len(buckets) for draw in batch] for batch in each] for each in (first, second, other_seed)]
    assert plain[0] != plain[1] != plain[2] != plain[0]


def test_the_global_batches_do_not_depend_on_the_number_of_ranks(buckets: shortgop.MixedClips) -> None:
    alone = global_batches(buckets, BATCH_SIZES, 1)
    assert global_batches(buckets, BATCH_SIZES, 2) == alone
    assert global_batches(buckets, 6, 3) == global_batches(buckets, 6, 1)
    half = shortgop.BucketSampler(buckets, BATCH_SIZES, rank=1, world_size=2)
    read = [batch["draw"].tolist() for batch in shortgop.ClipLoader(buckets, half, workers=0)]
    assert read == [draws[len(draws) // 2 :] for draws in alone]


# Ranks, and how many batches are trained on before the run ends.
LIVES = st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 12)), max_size=6)


@settings(max_examples=20)
@given(lives=LIVES)
def test_no_batch_is_lost_or_repeated_over_restarts(buckets: shortgop.MixedClips, lives: list[tuple[int, int]]) -> None:
    state: Any = None
    read: list[list[int]] = []
    for ranks, steps in lives:
        parts = []
        for rank in range(ranks):
            sampler = shortgop.BucketSampler(buckets, BATCH_SIZES, rank=rank, world_size=ranks)
            if state is not None:
                sampler.load_state_dict(state)
            # Loaders read ahead of the training loop.
            taken = [batch for batch, _ in zip(sampler, range(steps + 3), strict=False)]
            trained = min(steps, len(taken))
            parts.append((taken[:trained], sampler.state_after(trained)))
        assert len({str(sorted(after.items())) for _, after in parts}) == 1, "the state differs between ranks"
        state = parts[0][1]
        read += [[draw for part in batch for draw in part] for batch in zip(*(own for own, _ in parts), strict=True)]
    assert read == of_epochs(buckets, 4)[: len(read)]


def test_a_loader_goes_on_after_any_batch(buckets: shortgop.MixedClips) -> None:
    loader = shortgop.ClipLoader(buckets, shortgop.BucketSampler(buckets, BATCH_SIZES), workers=0)
    states, draws = zip(*((batch.state, shown(batch)) for batch in loader), strict=True)
    for number in (0, 7, len(states) - 1):
        sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
        again = shortgop.ClipLoader(buckets, sampler, workers=0)
        again.load_state_dict(states[number])
        rest = [shown(batch) for batch in again]
        if number == len(states) - 1:
            assert (len(rest), sampler.epoch) == (len(states), 1)
        else:
            assert rest == list(draws[number + 1 :])


def test_a_state_of_other_batch_sizes_or_datasets_is_refused(folder: Path, buckets: shortgop.MixedClips) -> None:
    state = shortgop.BucketSampler(buckets, BATCH_SIZES).state_dict()
    with pytest.raises(UsageError, match=r"another order: 'batches of \[6, 10, 2\] of .* now 'batches of \[6, 6, 6\]"):
        shortgop.BucketSampler(buckets, 6).load_state_dict(state)
    earlier = {**state, "order": state["order"].replace("a seed for each, ", "")}
    with pytest.raises(UsageError, match="an earlier version shuffled each of several datasets otherwise: begin wi"):
        shortgop.BucketSampler(buckets, BATCH_SIZES).load_state_dict(earlier)
    # What is in sequence was so in that version, too.
    assert "a seed for each" not in shortgop.BucketSampler(buckets, **EVALUATED).state_dict()["order"]
    fewer = shortgop.MixedClips(list(buckets.datasets[:2]))
    with pytest.raises(UsageError, match="the state was taken with other videos"):
        shortgop.BucketSampler(fewer, BATCH_SIZES[:2]).load_state_dict(state)
    # A copy that was opened anew has the same ones.
    shortgop.BucketSampler(mixed(folder), BATCH_SIZES).load_state_dict(state)


def test_a_state_goes_on_with_the_snapshot_that_it_names(folder: Path, tmp_path: Path) -> None:
    """It named the snapshot once for each bucket, with a + between: there is none of that name."""
    grows = tmp_path / "grows"
    shutil.copytree(folder, grows)
    state = shortgop.BucketSampler(mixed(grows), BATCH_SIZES).state_after(3)
    then = [*shortgop.BucketSampler(mixed(grows), BATCH_SIZES)][3:]
    drop(DiskStorage(grows), ["3.mp4"])
    now = shortgop.MixedClips([shortgop.ClipDataset(grows, shortgop.AllClips(2), videos=[each]) for each in (0, 1)])
    with pytest.raises(UsageError, match=f"in snapshot '{state['snapshot']}', and this is"):
        shortgop.BucketSampler(now, 2).load_state_dict(state)
    repeated = {**state, "snapshot": "+".join([state["snapshot"]] * 3)}
    with pytest.raises(UsageError, match=f"in snapshot '{state['snapshot']}' of each dataset, and this is"):
        shortgop.BucketSampler(now, 2).load_state_dict(repeated)
    again = shortgop.BucketSampler(mixed(shortgop.open(grows, snapshot=state["snapshot"])), BATCH_SIZES)
    again.load_state_dict(state)
    assert [*again] == then


def test_snapshots_of_datasets_in_several_places_are_not_one(folder: Path, tmp_path: Path) -> None:
    """Both may have the same name."""
    shutil.copytree(folder, tmp_path / "copy")
    here, there = (shortgop.ClipDataset(each, shortgop.AllClips(2)) for each in (folder, tmp_path / "copy"))
    assert here.snapshot == there.snapshot
    assert shortgop.MixedClips([here, there]).snapshot == f"{here.snapshot}+{there.snapshot}"
    assert shortgop.MixedClips([here, here]).snapshot == here.snapshot


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (1, 2), (2, 0), (3, 0), (3, 2)])
def test_evaluation_has_every_clip_once_over_all_ranks(ranks: int, workers: int, buckets: shortgop.MixedClips) -> None:
    alone = [sorted(batch) for batch in shortgop.BucketSampler(buckets, **EVALUATED)]
    assert sorted(draw for batch in alone for draw in batch) == list(range(len(buckets)))
    assert list(map(len, alone))[-3:] == [9, 6, 2]
    read: list[list[list[int]]] = []
    for rank in range(ranks):
        sampler = shortgop.BucketSampler(buckets, rank=rank, world_size=ranks, **EVALUATED)
        loader = shortgop.ClipLoader(buckets, sampler, workers=workers)
        read.append([shown(batch, len(batch["draw"])) for batch in loader])
        plain = DataLoader(buckets, batch_sampler=sampler)
        assert [batch["draw"].tolist() for batch in plain] == read[rank]
        assert len(loader) == len(sampler) == len(plain) == len(read[rank]) == 18 - (rank == 2)
        loader.close()
    for step, expected in enumerate(alone):
        assert sorted(draw for own in read for draw in (own[step] if step < len(own) else [])) == expected


@pytest.mark.filterwarnings("error")
def test_evaluation_begins_anew_each_time(buckets: shortgop.MixedClips) -> None:
    """Each epoch of training is evaluated on the same clips, of which no warning tells."""
    sampler = shortgop.BucketSampler(buckets, rank=2, world_size=3, **EVALUATED)
    loader = shortgop.ClipLoader(buckets, sampler, workers=0)
    passes = [[batch["draw"].tolist() for batch in loader] for _ in range(4)]
    assert all(each == passes[0] for each in passes)
    # Also where nothing was left of the pass before.
    state = {**sampler.state_dict(), "position": 17}
    loader.load_state_dict(state)
    assert [[batch["draw"].tolist() for batch in loader] for _ in range(2)] == [[], passes[0]]


def test_evaluation_goes_on_after_any_batch_on_other_ranks(buckets: shortgop.MixedClips) -> None:
    expected = list(shortgop.BucketSampler(buckets, **EVALUATED))
    for step in (0, 5, 15, 16, 17):
        sampler = shortgop.BucketSampler(buckets, rank=0, world_size=2, **EVALUATED)
        batches = iter(sampler)
        for _ in range(step):
            next(batches)
        state = sampler.state_after(step)
        parts = []
        for rank in range(3):
            resumed = shortgop.BucketSampler(buckets, rank=rank, world_size=3, **EVALUATED)
            resumed.load_state_dict(state)
            parts.append(list(resumed))
        for place, batch in enumerate(expected[step:]):
            assert [draw for own in parts if place < len(own) for draw in own[place]] == batch
        assert max(map(len, parts)) == len(expected) - step
    with pytest.raises(UsageError, match=r"another order: 'batches of \[8, 10, 4\] and smaller ones of "):
        shortgop.BucketSampler(buckets, [8, 10, 4], orders=shortgop.Sequential()).load_state_dict(state)


def test_ranks_that_train_without_a_batch_are_told(buckets: shortgop.MixedClips) -> None:
    with pytest.warns(DatasetWarning, match="some ranks have up to 1 batch fewer than others in each epoch"):
        shortgop.BucketSampler(buckets, [8, 10, 4], drop_last=False, rank=0, world_size=3)
    with pytest.raises(UsageError, match="a batch size is 4, less than the 5 ranks; give 5 or more"):
        shortgop.BucketSampler(buckets, rank=0, world_size=5, **EVALUATED)


def test_a_sampler_pickles_at_its_place(buckets: shortgop.MixedClips) -> None:
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
    sampler.load_state_dict({**sampler.state_dict(), "position": 5})
    copy = pickle.loads(pickle.dumps(sampler))
    assert list(copy) == list(sampler)
    assert len(list(shortgop.BucketSampler(buckets, BATCH_SIZES))) == len(sampler)


class InSteps(shortgop.Chunked):
    """An order that also gives its values one by one, as a dataclass may."""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.chunk, self.window))


def test_an_order_that_can_be_iterated_is_one_order_and_no_list_of_them(buckets: shortgop.MixedClips) -> None:
    for order in (InSteps(2), [InSteps(2)] * 3):
        sampler = shortgop.BucketSampler(buckets, 2, orders=cast(Any, order))
        assert list(sampler) == list(shortgop.BucketSampler(buckets, 2, orders=shortgop.Chunked(2)))


def test_wrong_use_is_told_with_the_remedy(folder: Path, buckets: shortgop.MixedClips) -> None:
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(2))
    with pytest.raises(WrongTypeError, match="BucketSampler takes MixedClips, .* for one dataset take ElasticSampler"):
        shortgop.BucketSampler(clips, 2)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="batch_sizes has 2 for 3 datasets; each has one"):
        shortgop.BucketSampler(buckets, [2, 2])
    with pytest.raises(UsageError, match="a batch size is 10, which 4 ranks do not divide evenly"):
        shortgop.BucketSampler(buckets, [8, 10, 4], rank=0, world_size=4)
    with pytest.raises(UsageError, match="orders has 1 for 3 datasets; each has one"):
        shortgop.BucketSampler(buckets, 2, orders=[shortgop.Shuffled()])
    with pytest.raises(WrongTypeError, match="it is an order such as shortgop.Shuffled"):
        shortgop.BucketSampler(buckets, 2, orders=[shortgop.Shuffled] * 3)  # type: ignore[list-item]
    with pytest.raises(UsageError, match="rank and world_size go together"):
        shortgop.BucketSampler(buckets, 2, rank=0)
    with pytest.raises(UsageError, match="a batch size is 0"):
        shortgop.BucketSampler(buckets, [0, 1, 1])
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
    with pytest.raises(
        UsageError, match="DataLoader whose sampler= yields batches, as BucketSampler .*: give it as batch_s"
    ):
        next(iter(DataLoader(buckets, sampler=sampler, batch_size=2)))
    with pytest.raises(UsageError, match="the sampler is of another dataset, or of other clips"):
        shortgop.ClipLoader(shortgop.MixedClips([clips]), sampler)
    with pytest.raises(UsageError, match="the sampler is of a dataset of"):
        next(iter(DataLoader(clips, batch_sampler=sampler)))
