"""MixedClips of datasets that do not go together, and of random clips: what is wrong is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, WeightedRandomSampler

import shortgop
from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from shortgop.training.which_clips.mixing import MixedIndex
from shortgop.training.which_clips.policies import AllClips
from training_videos import make_videos
from video_tables import clips_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def test_random_clips_that_stay_the_same_are_told_in_joined_datasets_too(folder: Path) -> None:
    parts = [shortgop.ClipDataset(folder, policy) for policy in (shortgop.CenterClips(4), shortgop.RandomClips(4))]
    both, fixed = shortgop.MixedClips(parts), shortgop.MixedClips(parts[:1])
    for epoch in range(4):
        both.set_epoch(epoch)
        list(DataLoader(both, batch_size=3))
        list(DataLoader(fixed, batch_size=3))
    list(DataLoader(both, batch_size=3))
    with pytest.warns(DatasetWarning, match=r"third time .* call dataset.set_epoch\(epoch\)"):
        list(DataLoader(both, batch_size=3))
    # Once is enough.
    list(DataLoader(both, batch_size=3))


def test_an_index_that_comes_several_times_in_a_batch_is_told(folder: Path) -> None:
    """WeightedRandomSampler draws with replacement, and each time the same random clip came of it without a word."""
    random, fixed = (
        shortgop.ClipDataset(folder, policy) for policy in (shortgop.RandomClips(4), shortgop.CenterClips(4))
    )
    for clips in (random, shortgop.MixedClips([random])):
        sampler = WeightedRandomSampler([1, 1, 1], 5)
        with pytest.warns(DatasetWarning, match=r"index \d comes several times in a batch, .* order=shortgop.Weighted"):
            next(iter(DataLoader(clips, batch_size=5, sampler=sampler)))
        # Once is enough.
        next(iter(DataLoader(clips, batch_size=5, sampler=sampler)))
    next(iter(DataLoader(fixed, batch_size=5, sampler=WeightedRandomSampler([1, 1, 1], 5))))
    anew = shortgop.ElasticSampler(random, 60, order=shortgop.Weighted([1, 1, 1], num_samples=60))
    (batch,) = DataLoader(random, batch_size=60, sampler=anew)
    assert len({*zip(batch["video"].tolist(), batch["start"].tolist(), strict=True)}) > 20


def test_a_mixture_with_a_dataset_without_clips_is_refused(folder: Path) -> None:
    """It was an IndexError."""
    videos = shortgop.open(folder)
    some, none = (shortgop.ClipDataset(videos[:stop], shortgop.RandomClips(2)) for stop in (2, 0))
    both = shortgop.MixedClips([some, none])
    with pytest.raises(UsageError, match="dataset 1 of the mixture has no clips, and its quota asks for some"):
        shortgop.ElasticSampler(both, 2, order=shortgop.Mixture([1, 1]))
    assert sorted(shortgop.ElasticSampler(both, 2)) == [0, 1]


def test_what_a_script_asks_a_dataset_for_it_may_ask_several_joined_ones(folder: Path) -> None:
    videos = shortgop.open(folder)
    some = shortgop.ClipDataset(videos, shortgop.RandomClips(2, clips_per_video=2), videos=["c.mp4", "a.mp4"])
    long_ones = shortgop.ClipDataset(videos, shortgop.AllClips(20, ends="drop"))
    both = shortgop.MixedClips([some, long_ones])
    assert both.column("kind") == ["dog", "cat", "cat", "dog", "dog"]
    assert both.too_short == ("c.mp4",)
    assert both.is_random
    assert not shortgop.MixedClips([long_ones]).is_random
    with pytest.raises(UsageError, match="the dataset has no column 'species'; it has "):
        both.column("species")
    # A label for each video, also for one without clips.
    sampler = shortgop.ElasticSampler(both, 16, order=shortgop.ClassBalanced(both.column("kind")), drop_last=False)
    items = both.items(list(sampler))
    kinds = [both.datasets[item["dataset"]].source[item["video"]].attributes["kind"] for item in items]
    assert abs(kinds.count("cat") - kinds.count("dog")) <= 1


def test_a_dataset_alone_is_told_as_such_and_not_read(folder: Path) -> None:
    """Its items were all read first, since it can be iterated."""
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(2))
    for alone in (clips, shortgop.MixedClips([clips])):
        with pytest.raises(
            WrongTypeError, match=f"is a {type(alone).__name__}; give MixedClips a list of ClipDatasets"
        ):
            shortgop.MixedClips(cast(Any, alone))
    assert clips.stats().gops_decoded == 0


def test_what_datasets_read_through_one_opened_dataset_counts_once(folder: Path) -> None:
    """A loader over nine buckets of one dataset said that nine times as long was decoded, and went by that."""
    videos = shortgop.open(folder)
    parts = [shortgop.ClipDataset(videos.where(id=name), shortgop.CenterClips(4)) for name in ("a.mp4", "b.mp4")]
    other = shortgop.ClipDataset(folder, shortgop.CenterClips(4), videos=["c.mp4"])
    several = shortgop.MixedClips([*parts, other])
    several.items(list(shortgop.ElasticSampler(several, 3)))
    assert several.stats().frames_delivered == videos.stats().frames_delivered + other.stats().frames_delivered == 12


def both_of(folder: Path, one: dict[str, Any], other: dict[str, Any]) -> tuple[Any, Any]:
    """Two datasets with these options, and all of their clips in order."""
    both = shortgop.MixedClips([shortgop.ClipDataset(folder, shortgop.CenterClips(2), **each) for each in (one, other)])
    return both, shortgop.ElasticSampler(both, 6, order=shortgop.Sequential())


def test_datasets_with_other_outputs_are_told_as_such(folder: Path) -> None:
    """It was a KeyError of a ClipLoader."""
    small = {"small": shortgop.Output(size=(32, 32))}
    for one, other, name in (({}, {"outputs": small}, "frames"), ({"outputs": small}, {}, "crop")):
        both, sampler = both_of(folder, one, other)
        with (
            pytest.warns(DatasetWarning, match="the same outputs and metadata"),
            pytest.raises(
                UsageError,
                match=f"the item lacks '{name}', which the first .* where several datasets are mixed, give all",
            ),
        ):
            list(shortgop.ClipLoader(both, sampler, workers=0))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("by_clip_loader", [False, True])
def test_a_batch_of_padded_and_whole_clips_has_a_mask_for_all(folder: Path, padding: int, by_clip_loader: bool) -> None:
    """The mask was left out, so that frames that stand in were trained on as others, or it was a KeyError. The third
    video has 9 frames, too few for 12."""
    policies = [shortgop.CenterClips(12, ends="drop"), shortgop.CenterClips(12, ends="repeat_last")]
    both = shortgop.MixedClips([shortgop.ClipDataset(folder, policies[padding ^ number ^ 1]) for number in range(2)])
    sampler = shortgop.ElasticSampler(both, 5, order=shortgop.Sequential())
    loader: Any = (
        shortgop.ClipLoader(both, sampler, workers=0) if by_clip_loader else DataLoader(both, 5, sampler=sampler)
    )
    (batch,) = loader
    clips = zip(*(batch[name].tolist() for name in ("dataset", "video", "mask")), strict=True)
    assert {(dataset, video): mask for dataset, video, mask in clips} == {
        **{(dataset, video): [True] * 12 for dataset in range(2) for video in range(2)},
        (padding, 2): [True] * 9 + [False] * 3,
    }
    # With no dataset that pads, there is none.
    whole = shortgop.MixedClips([shortgop.ClipDataset(folder, policies[0])] * 2)
    assert "mask" not in whole[0]


def test_bytes_and_floats_in_a_batch_are_told(folder: Path) -> None:
    """torch makes floats from 0 to 255 of the bytes, and others are from 0 to 1."""
    both, sampler = both_of(folder, {}, {"dtype": torch.float16})
    with pytest.warns(
        DatasetWarning, match="'frames' of items is torch.uint8 in dataset 0, torch.float16 in dataset 1"
    ):
        (batch,) = DataLoader(both, batch_size=6, sampler=sampler)
    assert batch["frames"].dtype == torch.float16
    with pytest.raises(UsageError, match=r"do not go into rows of torch.uint8 .*: all clips of a batch .* one dtype;"):
        list(shortgop.ClipLoader(both, sampler, workers=0))


def test_datasets_are_counted_once_and_not_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand buckets that took most of the time in which a batch was found."""
    asked = []
    parts = [clips_of(AllClips(1), [length]) for length in (3, 4, 5)]
    length_of = type(parts[0]).__len__
    mixed = MixedIndex(tuple(parts))
    assert mixed.located([0, 3, 11]) == [(0, 0), (1, 4 + 0), (2, 10 + 4)]

    def counted(part: Any) -> int:
        asked.append(part)
        return length_of(part)

    monkeypatch.setattr(type(parts[0]), "__len__", counted)
    # Rounds 3, 4 and 5 of the datasets are round 1.
    assert mixed.located([12, 15 + 12, 11]) == [(0, 9), (1, 28), (2, 14)]
    assert mixed.mixed(2, np.array([14, 29])).tolist() == [11, 12 + 11]
    assert mixed.joined(2, np.array([4, 5])).tolist() == [11, 19]
    assert len(mixed) == 12
    assert len(asked) <= 2  # the one whose draws are joined


@pytest.mark.parametrize("policy", [shortgop.RandomClips(1, clips_per_video=40), shortgop.RandomFrames()])
def test_datasets_of_one_seed_draw_clips_and_crops_apart(folder: Path, policy: Any) -> None:
    """Two buckets of the same videos had the same starts, crops and flips."""
    crop = {"frames": shortgop.Output(size=(16, 16), crop="random", flip=0.5)}
    parts = [shortgop.ClipDataset(folder, policy, outputs=crop) for _ in range(2)]
    both, count = shortgop.MixedClips(parts), len(parts[0])
    first, second = (both.items(range(begin, begin + count)) for begin in (0, count))

    def chosen(items: list[dict[str, Any]]) -> list[Any]:
        return [(item["video"], item["start"], *item["crop"].tolist(), bool(item["flip"])) for item in items]

    same = sum(one == other for one, other in zip(chosen(first), chosen(second), strict=True))
    assert same < 10  # less than one of 120 by chance, in the mean
    # A draw of an item leads to it again, and an epoch of RandomFrames has each frame once.
    again = both.items([item["draw"] for item in second])
    assert chosen(again) == chosen(second)
    if isinstance(policy, shortgop.RandomFrames):
        for items in (first, second):
            assert len({(item["video"], item["start"]) for item in items}) == count
    # The first dataset has its clips of the first epoch, and one dataset alone has those of all epochs.
    assert chosen(first) == chosen(parts[0].items(range(count)))
    alone = shortgop.MixedClips(parts[:1])
    assert chosen(alone.items([5 * count])) == chosen(parts[0].items([5 * count]))


def test_epochs_whose_draws_have_more_than_64_bits_are_refused(folder: Path) -> None:
    """They were other clips, or negative draws, where one dataset is much larger than the others."""
    long, short = (
        shortgop.ClipDataset(folder, shortgop.AllClips(1)),
        shortgop.ClipDataset(folder, shortgop.RandomClips(1)),
    )
    both = shortgop.MixedClips([long, *[short] * 7])
    last = (1 << 63) // (8 * len(long)) - 1
    assert both.clip_index.located([last * len(both)]) == [(0, last * 8 * len(long))]
    with pytest.raises(UsageError, match=f"it is of round {last + 1}, and rounds of these datasets count to {last}"):
        both.items([(last + 1) * len(both)])


def test_a_state_of_datasets_that_drew_the_same_is_refused(folder: Path) -> None:
    both = shortgop.MixedClips([shortgop.ClipDataset(folder, shortgop.RandomClips(1)) for _ in range(2)])
    sampler = shortgop.ElasticSampler(both, 2)
    state = sampler.state_dict()
    then = {**state, "clips": state["clips"].removeprefix("rounds for each of ")}
    with pytest.raises(
        UsageError, match="an earlier version drew the clips of each of several datasets otherwise: beg"
    ):
        sampler.load_state_dict(then)
