"""Random clips that come again in every epoch are told, on one rank and on several, and in workers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from torch.utils.data import DataLoader, DistributedSampler

import shortgop
from shortgop.errors import DatasetWarning
from training_videos import make_videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_random_clips_that_never_change_are_noticed(folder: Path) -> None:
    """A shuffling DataLoader without set_epoch reads the same random clips in each epoch."""
    dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(4))
    loader = DataLoader(dataset, batch_size=3, shuffle=True)
    for _ in range(2):
        list(loader)
    with pytest.warns(DatasetWarning, match="call dataset.set_epoch"):
        list(loader)
    told = shortgop.ClipDataset(folder, shortgop.RandomClips(4))
    fixed = shortgop.ClipDataset(folder, shortgop.CenterClips(4))
    for epoch in range(5):
        told.set_epoch(epoch)
        list(DataLoader(told, batch_size=3, num_workers=0))
        list(DataLoader(fixed, batch_size=3))
        list(DataLoader(told, batch_size=3, sampler=shortgop.ElasticSampler(told, 3)))


def test_random_clips_that_never_change_are_noticed_on_several_ranks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank of a DistributedSampler reads a part of every epoch: of 4 ranks it was told after 8 epochs, and of 64
    hardly ever. Workers know of the other ranks from the environment that torchrun and Accelerate set."""
    monkeypatch.setenv("WORLD_SIZE", "4")

    def epochs_until_told(epochs: Iterable[Iterable[int]]) -> int | None:
        dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(4, clips_per_video=8))
        for epoch, indices in enumerate(epochs):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                dataset.full_draws(list(indices))
            if any("call dataset.set_epoch" in str(each.message) for each in caught):
                return epoch
        return None

    def of_rank(epoch: int) -> Iterator[int]:
        sampler: Any = DistributedSampler(cast(Any, range(24)), num_replicas=4, rank=1)
        sampler.set_epoch(epoch)
        return iter(sampler)

    told = epochs_until_told(map(of_rank, range(20)))
    assert told is not None
    assert 2 <= told < 6
    # No clip comes again where ranks read all clips, each in an order of its own, or draws of later epochs.
    assert epochs_until_told([range(24), range(24), range(24)]) == 2
    assert epochs_until_told([range(24), range(24, 48), range(48, 72), range(72, 96)]) is None


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_that_a_distributed_sampler_was_told_alone_is_told_as_it_begins(folder: Path, workers: int) -> None:
    """It was told in the third epoch, and where neither a process group nor a variable says how many ranks there are,
    in the fifth."""
    clips = [shortgop.ClipDataset(folder, policy(4)) for policy in (shortgop.RandomClips, shortgop.AllClips)]
    untold, fixed, told = clips[0], clips[1], shortgop.MixedClips(clips[:1])
    # Each pass of a loader starts its workers.
    for dataset in (untold,) if workers else (untold, fixed, told):
        sampler: Any = DistributedSampler(cast(Any, dataset), num_replicas=2, rank=0)
        loader = DataLoader(
            dataset, batch_size=2, sampler=sampler, num_workers=workers,
            multiprocessing_context="forkserver" if workers else None,
        )  # fmt: skip
        list(loader)
        for epoch in range(1, 3 if workers else 4):
            sampler.set_epoch(epoch)
            if dataset is told:
                told.set_epoch(epoch)
            if dataset is untold and epoch == 1:
                with pytest.warns(DatasetWarning, match="epoch 1 begins with the random clips of epoch 0: .* as well"):
                    list(loader)
            else:
                list(loader)


# A worker that is spawned has not imported it.
@pytest.mark.parametrize(("accelerate", "workers"), [(False, 0), (True, 0), (False, 1)])
def test_ranks_that_the_sampler_alone_knows_are_told_in_the_third_epoch(
    accelerate: bool, workers: int, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Horovod: with neither a process group nor WORLD_SIZE, four ranks were told in their ninth epoch. Where
    something had imported Accelerate, as transformers does, the third time was called the second."""
    if accelerate:
        pytest.importorskip("accelerate.data_loader")
    else:
        # Another test may have imported it.
        monkeypatch.delitem(sys.modules, "accelerate.data_loader", raising=False)
    dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(4, clips_per_video=8))
    sampler: Any = DistributedSampler(cast(Any, dataset), num_replicas=4, rank=1)
    loader = DataLoader(
        dataset, batch_size=3, sampler=sampler, num_workers=workers, persistent_workers=workers > 0,
        multiprocessing_context="spawn" if workers else None,
    )  # fmt: skip
    told = []
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(list(loader)) == 2
        texts = [*(str(each.message) for each in caught), capfd.readouterr().err]
        told.append("read for the third time" in "".join(texts))
    assert told == [False, False, True]


def test_an_epoch_of_evaluation_in_order_is_not_told(folder: Path) -> None:
    """Its random clips may well stay the same."""
    dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(4))
    sampler: Any = DistributedSampler(cast(Any, dataset), num_replicas=2, rank=0, shuffle=False)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        list(DataLoader(dataset, batch_size=2, sampler=sampler))


class OfOnesOwn(DistributedSampler[Any]):
    """A sampler of which nobody knows what its epochs are."""


def knows_no_ranks(_worker: int) -> None:
    """As a worker of a rank that `torch.multiprocessing.spawn` started: no variable says how many there are."""
    del os.environ["WORLD_SIZE"]


def test_a_worker_that_is_spawned_knows_of_the_ranks_of_its_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Half of the clips are no half of an epoch there: workers of two ranks told it in the fifth epoch only."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(4, clips_per_video=8))
    sampler: Any = OfOnesOwn(dataset, num_replicas=2, rank=0)
    loader = DataLoader(
        dataset, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context="spawn",
        persistent_workers=True, worker_init_fn=knows_no_ranks,
    )  # fmt: skip
    told = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert len(list(loader)) == 3
        told.append("read for the third time" in capfd.readouterr().err)
    assert told == [False, False, True]
