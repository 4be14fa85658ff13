"""Subclasses of ClipDataset with items of their own: what calls their __getitem__, and what refuses them."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import UsageError
from training_videos import make_videos, numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


class WithItsLabel(shortgop.ClipDataset):
    """As people write it who know torch's datasets."""

    def __getitem__(self, draw: int) -> dict[str, Any]:
        item = super().__getitem__(draw)
        return {**item, "first": numbers(item["frames"])[0]}


class WithItsLabelTwice(WithItsLabel):
    """The same for one item and for several."""

    def __getitems__(self, draws: Any) -> list[dict[str, Any]]:
        return [{**item, "first": numbers(item["frames"])[0]} for item in super().__getitems__(draws)]


@pytest.mark.parametrize("kind", [WithItsLabel, WithItsLabelTwice])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_calls_the_getitem_of_a_subclass(folder: Path, kind: Any, workers: int) -> None:
    dataset = kind(folder, shortgop.RandomClips(3))
    sampler = shortgop.ElasticSampler(dataset, 3)
    (batch,) = DataLoader(dataset, batch_size=3, sampler=sampler, num_workers=workers)
    assert batch["first"].tolist() == (1000 * batch["video"] + batch["start"]).tolist()
    assert dataset[-1]["first"] == 2000 + dataset[-1]["start"]


@pytest.mark.parametrize("kind", [WithItsLabel, WithItsLabelTwice])
def test_what_does_not_call_the_getitem_of_a_subclass_refuses_it(folder: Path, kind: Any) -> None:
    dataset = kind(folder, shortgop.RandomClips(3))
    with pytest.raises(UsageError, match=r"of its own, which ClipLoader does not call: it calls items\(draws, rows\)"):
        shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 3), workers=0)
    with pytest.raises(UsageError, match="of its own, which MixedClips does not call"):
        shortgop.MixedClips([dataset])


class Stacked(shortgop.ClipDataset):
    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws, rows)
        torch.stack([item["frames"] for item in items])
        return items


def test_an_error_in_items_of_no_draws_stays_what_it_is(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="expects a non-empty TensorList"):
        Stacked(folder, shortgop.RandomClips(3)).__getitems__([])


class WithTheirDraws(shortgop.MixedClips):
    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        return [{**item, "again": item["draw"]} for item in super().items(draws, rows)]


@pytest.mark.parametrize("workers", [0, 1])
def test_items_of_a_subclass_of_several_datasets_are_those_of_both_loaders(folder: Path, workers: int) -> None:
    """ClipLoader learnt what items have from those of the datasets: it refused what a subclass adds."""
    both = WithTheirDraws([shortgop.ClipDataset(folder, shortgop.RandomClips(3), seed=seed) for seed in (1, 2)])
    sampler = shortgop.ElasticSampler(both, 6)
    with shortgop.ClipLoader(both, sampler, workers=workers) as loader:
        batches = [*loader, *DataLoader(both, batch_size=6, sampler=sampler)]
    assert [batch["again"].tolist() for batch in batches] == [batch["draw"].tolist() for batch in batches]


class Both(shortgop.MixedClips):
    def __getitem__(self, draw: int) -> dict[str, Any]:
        return {**super().__getitem__(draw), "draw": 100 + draw}


def test_a_subclass_of_several_datasets_is_called_too(folder: Path) -> None:
    both = Both([shortgop.ClipDataset(folder, shortgop.CenterClips(3))] * 2)
    (batch,) = DataLoader(both, batch_size=6)
    assert batch["draw"].tolist() == [100, 101, 102, 103, 104, 105]
    with pytest.raises(UsageError, match="Both has a __getitem__ of its own, which ClipLoader does not call"):
        shortgop.ClipLoader(both, range(6), batch_size=6, workers=0)


class WithRandomNumbers(shortgop.ClipDataset):
    """As for masks, or for one of several captions."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        of_torch = torch.rand(len(draws)).tolist()
        drawn = [(each, float(np.random.rand()), random.random()) for each in of_torch]  # noqa: NPY002
        return [
            {**item, "drawn": torch.tensor(each)} for item, each in zip(super().items(draws, rows), drawn, strict=True)
        ]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_of_a_clip_loader_draw_numbers_of_their_own(folder: Path, workers: int) -> None:
    """Those of torch were the same in all workers, and in each run."""
    dataset = WithRandomNumbers(folder, shortgop.AllClips(2, step=2))
    sampler = shortgop.ElasticSampler(dataset, 4)
    with shortgop.ClipLoader(dataset, sampler, workers=workers) as loader:
        drawn = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            drawn += [batch["drawn"].clone() for batch in loader]
    whole = torch.cat(drawn)
    assert len(whole) > 40
    for numbers_of_one in whole.T:
        assert len(numbers_of_one.unique()) == len(whole)


def drawn_of_all(dataset: Any) -> torch.Tensor:
    sampler = shortgop.ElasticSampler(dataset, 1, order=shortgop.Sequential())
    with shortgop.ClipLoader(dataset, sampler, workers=0) as loader:
        return torch.cat([batch["drawn"].clone() for batch in loader])


def test_another_seed_of_the_dataset_draws_other_numbers(folder: Path) -> None:
    one, again, other = (WithRandomNumbers(folder, shortgop.CenterClips(2), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(drawn_of_all(one), drawn_of_all(again))
    assert not (drawn_of_all(one) == drawn_of_all(other)).any()
    mixed = [drawn_of_all(shortgop.MixedClips([first, one])) for first in (one, other)]
    assert not (mixed[0] == mixed[1]).any()


class WithTuples(shortgop.ClipDataset):
    def items(self, draws: Any, rows: Any = None) -> Any:
        return [(item["frames"], item["video"]) for item in super().items(draws, rows)]


def test_items_that_are_no_dicts_are_told_as_such(folder: Path) -> None:
    dataset = WithTuples(folder, shortgop.CenterClips(2))
    sampler = shortgop.ElasticSampler(dataset, 3)
    (batch,) = DataLoader(dataset, batch_size=3, sampler=sampler)
    assert len(batch) == 2
    with pytest.raises(shortgop.WrongTypeError, match="an item is a tuple; ClipLoader makes batches of dicts"):
        next(iter(shortgop.ClipLoader(dataset, sampler, workers=0)))


class WithBrokenLabels(shortgop.ClipDataset):
    """As people write it whose labels lack one of a million."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws, rows)
        for item in items:
            item["boxes"] = {0: "a", 2: "c"}[item["video"]]
        return items


class HandsOn:
    """As people wrap a dataset: whatever is asked for is asked of that."""

    def __init__(self, clips: shortgop.ClipDataset) -> None:
        self.clips = clips

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "clips":
            raise AttributeError(name)
        return getattr(self.clips, name)

    def __len__(self) -> int:
        return len(self.clips)


@pytest.mark.first_case_short
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_items_of_a_dataset_that_another_hands_on_stays_what_it_is(folder: Path, workers: int) -> None:
    """It was a RuntimeError: generator raised StopIteration."""
    wrapped: Any = HandsOn(WithBrokenLabels(folder, shortgop.CenterClips(3)))
    with shortgop.ClipLoader(wrapped, [2, 1], batch_size=2, workers=workers) as loader, pytest.raises(KeyError):
        list(loader)


@pytest.mark.first_case_short
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_items_names_the_draws(folder: Path, workers: int) -> None:
    dataset = WithBrokenLabels(folder, shortgop.CenterClips(3))
    note = r"WithBrokenLabels.items was called with the draws {}; dataset.items\(\[{}\]\) reads the first one alone"
    mixed = shortgop.MixedClips([dataset])
    with shortgop.ClipLoader(mixed, [2, 1], batch_size=2, workers=workers) as loader:
        with pytest.raises(KeyError) as raised:
            list(loader)
        assert re.search(note.format("(1, 2|1)", 1), raised.value.__notes__[0])
    if workers:
        with pytest.raises(KeyError, match=note.format("2, 1", 2)):
            list(DataLoader(dataset, batch_size=2, sampler=[2, 1], num_workers=1))
    else:
        for read in (lambda: dataset[1], lambda: dataset.__getitems__([1])):
            with pytest.raises(KeyError) as raised:
                read()
            assert re.search(note.format(1, 1), raised.value.__notes__[0])
    assert dataset.items([0])[0]["boxes"] == "a"
