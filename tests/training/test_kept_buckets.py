"""Buckets among which videos are dealt anew in each epoch, by chance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from datasets import make_dataset
from shortgop.errors import UsageError
from shortgop.training.sampling.buckets import BatchOrder
from shortgop.training.sampling.kept_buckets import kept_clips
from shortgop.training.which_clips.mixing import MixedIndex
from shortgop.training.which_clips.policies import AllClips, RandomClips
from synthetic import constant_rate_pts, make_video, read_number
from test_training_keyed import chi_square_is_ordinary
from video_tables import clips_of

pytestmark = pytest.mark.usefixtures("one_torch_thread")

PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"


def dealing(members: Sequence[Sequence[int]], keep: Any, seed: int = 0) -> Callable[[int], list[list[int]]]:
    """A function of an epoch: the videos that each dataset has, of those in `members`."""
    parts = [clips_of(RandomClips(1), [9] * len(each)) for each in members]
    orders = kept_clips(parts, [np.array(each) for each in members], keep)
    bound = [order.bound(part, seed) for order, part in zip(orders, parts, strict=True)]

    def dealt(epoch: int) -> list[list[int]]:
        draws = [each.draws(epoch, np.arange(each.length)) for each in bound]
        assert all((found // len(part) == epoch).all() for found, part in zip(draws, parts, strict=True))
        return [[own[clip] for clip in (found % len(own)).tolist()] for found, own in zip(draws, members, strict=True)]

    return dealt


@given(
    st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=1, max_size=4),
    st.lists(st.sampled_from([0, 0.2, 0.5, 1]), min_size=4, max_size=4),
    st.integers(0, 3),
)
def test_a_video_is_in_one_dataset_at_most_and_datasets_have_as_many_in_each_epoch(
    sets: list[set[int]], keep: list[float], epoch: int
) -> None:
    members = [sorted(each, key=lambda video: video * 17 % 41) for each in sets]
    deal = dealing(members, keep[: len(members)])
    found = deal(epoch)
    everywhere = [video for each in found for video in each]
    assert len(set(everywhere)) == len(everywhere)
    assert all(set(each) <= set(own) for each, own in zip(found, members, strict=True))
    assert [len(each) for each in deal(epoch + 1)] == [len(each) for each in found]
    # All but a remainder for each class and dataset.
    classes = Counter(tuple(video in own for own in members) for video in set().union(*map(set, members)))
    for number, each in enumerate(found):
        expected = Fraction(0)
        for among, count in classes.items():
            left = Fraction(1)
            for earlier in range(number):
                left *= 1 - Fraction(str(keep[earlier])) * among[earlier]
            expected += count * left * Fraction(str(keep[number])) * among[number]
        assert expected - len(classes) < len(each) <= expected


@pytest.mark.long
def test_each_dataset_has_each_video_as_often_as_its_probability_says() -> None:
    """Videos 0 to 9 are in all three, 10 to 15 in the last two: a half, a quarter, a quarter; and a half each."""
    members = [list(range(10)), list(range(16)), [*range(10, 16), *range(10)]]
    epochs, deal = 2000, dealing(members, [0.5, 0.5, 1])
    counts = np.zeros((3, 16), dtype=np.int64)
    together = np.zeros((10, 10), dtype=np.int64)
    for epoch in range(epochs):
        for dataset, videos in enumerate(deal(epoch)):
            counts[dataset, videos] += 1
            if dataset == 0:
                together[np.ix_(videos, videos)] += 1
    assert counts[0, :10].sum() == 5 * epochs
    assert not counts[0, 10:].any()
    for row in (counts[0, :10], counts[1, :10], counts[1, 10:], counts[2, :10], counts[2, 10:]):
        assert chi_square_is_ordinary(row)
    # Two videos meet as often as any other two.
    pairs = together[np.triu_indices(10, 1)]
    assert chi_square_is_ordinary(pairs)
    # Of six that are in two datasets each has three; of ten, two or three go to the second and the third.
    assert counts[1].sum() == counts[2].sum() == (3 + 2) * epochs
    assert deal(1) != deal(2)
    assert dealing(members, [0.5, 0.5, 1], seed=1)(1) != deal(1)


def test_what_is_beyond_the_whole_batches_is_left_out_evenly() -> None:
    """Of three videos with a half each dataset has one in every epoch, and each is as often left out."""
    counts, deal = np.zeros(3, dtype=np.int64), dealing([[0, 1, 2], [0, 1, 2]], [0.5, 1])
    for epoch in range(1500):
        first, second = deal(epoch)
        assert len(first) == len(second) == 1
        counts[[*first, *second]] += 1
    assert chi_square_is_ordinary(counts)


def test_states_tell_other_probabilities_and_other_videos() -> None:
    def fingerprint(members: Sequence[Sequence[int]], keep: Any) -> str:
        parts = [clips_of(RandomClips(1), [9] * len(each)) for each in members]
        orders = kept_clips(parts, [np.array(each) for each in members], keep)
        return BatchOrder((1,) * len(parts), tuple(orders)).bound(MixedIndex(tuple(parts)), 0).fingerprint

    members = [[0, 1, 2, 3], [3, 2, 1, 0]]
    found = {fingerprint(members, [0.5, 1]), fingerprint(members, [0.25, 1]), fingerprint([[0, 1, 2, 3]] * 2, [0.5, 1])}
    assert len(found) == 3
    assert fingerprint(members, (Fraction(1, 2), 1)) == fingerprint(members, [0.5, 1.0])


@pytest.mark.parametrize(
    ("policy", "members", "keep", "message"),
    [
        (AllClips(1), [[0, 1]], 0.5, "dataset 0 of MixedClips has 9 clips of video 'v0', .*RandomClips"),
        (RandomClips(1), [[0, 1], [2, 2]], 0.5, "dataset 1 of MixedClips has a video twice"),
        (RandomClips(1), [[0, 1]], [0.5, 0.5], "keep has 2 for 1 dataset; each has one"),
        (RandomClips(1), [[0, 1]], 1.5, "keep has 1.5; each is a probability"),
    ],
)
def test_what_cannot_be_dealt(policy: Any, members: list[list[int]], keep: Any, message: str) -> None:
    parts = [clips_of(policy, [9] * len(each)) for each in members]
    with pytest.raises(UsageError, match=message):
        kept_clips(parts, [np.array(each) for each in members], keep)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight videos of 40 frames, two of which have 12."""
    root = tmp_path_factory.mktemp("kept")
    for number in range(8):
        pts = constant_rate_pts(Fraction(30), 40 if number < 6 else 12)
        make_video(root / f"{number}.mp4", pts=pts, timebase=Fraction(1, 30), size=(64, 64), first_number=100 * number)
    make_dataset(sorted(root.glob("*.mp4")), root / "dataset")
    return root / "dataset"


def mixed(folder: Path) -> shortgop.MixedClips:
    """Long clips of one half of the size, and short ones; those of the second in another order, of a part."""
    videos = shortgop.open(folder)
    lengths = videos.columns["num_frames"]
    long_ones, parts = videos.where(lambda _: lengths > 20), []
    for chosen, frames, size in ((long_ones, 16, 64), (videos, 4, 32)):
        output = shortgop.Output(size=(size, size))
        parts.append(
            shortgop.ClipDataset(chosen, shortgop.RandomClips(frames), outputs={"frames": output}, metadata=["id"])
        )
    return shortgop.MixedClips(parts)


def videos_of(batches: Any) -> list[tuple[int, str]]:
    """(dataset, id) of each clip of the batches, whose frames have to be those of the video."""
    found = []
    for batch in batches:
        (dataset,) = set(batch["dataset"].tolist())
        for clip, start, name in zip(batch["frames"], batch["start"].tolist(), batch["id"], strict=True):
            assert read_number(clip[-1]) == 100 * int(name[0]) + start + (15, 3)[dataset]
            found.append((dataset, name))
    return found


def test_batches_of_an_epoch_have_each_video_once_and_other_ones_in_the_next(folder: Path) -> None:
    dataset = mixed(folder)
    sampler = shortgop.BucketSampler(dataset, [1, 2], keep=[0.5, 1])
    loader = shortgop.ClipLoader(dataset, sampler, workers=0)
    epochs, large = [], set()
    for epoch in range(6):
        sampler.set_epoch(epoch)
        found = videos_of(loader)
        # Three of the six long ones, and the other three with the two short ones, of which one makes no batch.
        assert Counter(dataset for dataset, _ in found) == {0: 3, 1: 4}
        assert len({name for _, name in found}) == 7
        large |= {name for dataset, name in found if dataset == 0}
        epochs.append(sorted(found))
    assert len({tuple(each) for each in epochs}) > 3
    assert large == {f"{number}.mp4" for number in range(6)}


def test_a_run_goes_on_with_what_was_left_of_the_epoch_on_other_ranks(folder: Path) -> None:
    dataset = mixed(folder)
    options: dict[str, Any] = {"keep": [0.5, 1], "seed": 3}
    whole = shortgop.BucketSampler(dataset, 2, **options)
    whole.set_epoch(4)
    batches = list(whole)
    assert len(batches) == 1 + 2
    first = shortgop.BucketSampler(dataset, 2, **options)
    first.set_epoch(4)
    taken = iter(first)
    assert next(taken) == batches[0]
    rest = []
    for rank in range(2):
        sampler = shortgop.BucketSampler(dataset, 2, rank=rank, world_size=2, **options)
        sampler.load_state_dict(first.state_after(1))
        rest.append(list(sampler))
    assert [one + other for one, other in zip(*rest, strict=True)] == batches[1:]
    with pytest.raises(UsageError):
        shortgop.BucketSampler(dataset, 2, keep=[0.25, 1], seed=3).load_state_dict(first.state_after(1))


def test_stretches_and_videos_of_other_datasets_are_told_apart(folder: Path, tmp_path: Path) -> None:
    """Two stretches of a video are two, and the same video of another dataset is another one."""
    shortgop_copy = tmp_path / "copy"
    shortgop_copy.symlink_to(folder)
    halves = shortgop.Stretches([0, 0, 1, 1], frames=[(0, 20), (20, 40)] * 2)
    parts = [shortgop.ClipDataset(folder, shortgop.RandomClips(frames), videos=halves, size=32) for frames in (8, 4)]
    sampler = shortgop.BucketSampler(shortgop.MixedClips(parts), 1, keep=[0.5, 1])
    assert len(list(sampler)) == 4
    other = [shortgop.ClipDataset(path, shortgop.RandomClips(4), size=32) for path in (folder, shortgop_copy)]
    assert len(list(shortgop.BucketSampler(shortgop.MixedClips(other), 1, keep=1))) == 16


def test_the_page_has_as_many_batches_of_each_size_of_a_multigrid() -> None:
    shown = re.search(r"batches of (\d+), (\d+) and (\d+),\s`keep=(\[4/7, .*?\])`", PAGE.read_text())
    assert shown is not None
    sizes = [int(size) for size in shown.groups()[:3]]
    found = dealing([list(range(56 * 7))] * 3, eval(shown[4]))(0)
    assert [len(each) // size for each, size in zip(found, sizes, strict=True)] == [7, 7, 7]


def test_options_that_do_not_go_together(folder: Path) -> None:
    dataset = mixed(folder)
    with pytest.raises(UsageError, match="leave orders out"):
        shortgop.BucketSampler(dataset, 1, keep=0.5, orders=shortgop.Shuffled())
    with pytest.raises(UsageError, match="for evaluation leave it out"):
        shortgop.BucketSampler(dataset, 1, keep=0.5, drop_last=False)
    with pytest.raises(UsageError, match=r"dataset 1 of MixedClips has 0 samples in an epoch, .*never be read"):
        shortgop.BucketSampler(dataset, 1, keep=[1, 0])


def test_the_page_says_it_as_open_sora_does(folder: Path) -> None:
    shown = re.search(r"`(shortgop\.BucketSampler\(mixed, batch_sizes, keep=keep\))`", PAGE.read_text())
    assert shown is not None
    names = {"shortgop": shortgop, "mixed": mixed(folder), "batch_sizes": [1, 2], "keep": [0.5, 1]}
    assert len(eval(shown[1], names)) == 3 + 2
