"""Orders of an epoch: each against an obvious reference, and what is random about them by chi-square."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from shortgop.training.sampling.class_batches import ClassBatches
from shortgop.training.sampling.continued import Continued
from shortgop.training.sampling.orders import (
    Chunked,
    ClassBalanced,
    Mixture,
    OneClipPerVideo,
    Sequential,
    Shuffled,
    Systematic,
    Weighted,
)
from shortgop.training.sampling.weights import systematic_points
from shortgop.training.which_clips.keyed import below, hashes, key, permuted
from shortgop.training.which_clips.mixing import MixedIndex
from shortgop.training.which_clips.policies import AllClips, ClipsAt, RandomClips
from shortgop.training.which_clips.table_index import table_index
from test_training_keyed import chi_square_is_ordinary
from video_tables import clips_of, video_table

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=6)
EPOCHS = st.integers(0, 2**15)


def draws(order: Any, clips: Any, epoch: int, seed: int = 0) -> list[int]:
    bound = order.bound(clips, seed)
    return list(bound.draws(epoch, np.arange(bound.length)).tolist())


def indices(order: Any, clips: Any, epoch: int, seed: int = 0) -> list[int]:
    return [draw % len(clips) for draw in draws(order, clips, epoch, seed)]


def every_order(videos: int) -> list[Any]:
    weights = [1 + video % 3 for video in range(videos)]
    return [
        Sequential(), Shuffled(), Chunked(3), Chunked(3, window=7), OneClipPerVideo(), Weighted(weights),
        Systematic(weights), Systematic(weights, num_samples=40), ClassBalanced(weights), Mixture([3]),
        ClassBatches([0] * videos, 1, 3), Continued(1),
    ]  # fmt: skip


@given(LENGTHS, EPOCHS, st.integers(0, 5), st.data())
def test_any_positions_can_be_had_alone(lengths: list[int], epoch: int, seed: int, data: st.DataObject) -> None:
    clips = clips_of(AllClips(1), lengths)
    for order in every_order(len(lengths)):
        bound = order.bound(clips, seed)
        whole = bound.draws(epoch, np.arange(bound.length))
        places = data.draw(st.lists(st.integers(0, bound.length - 1), min_size=1, max_size=8))
        assert bound.draws(epoch, np.array(places)).tolist() == whole[places].tolist()


@given(LENGTHS, EPOCHS)
def test_no_draw_comes_twice_in_any_epoch(lengths: list[int], epoch: int) -> None:
    """Not even where a clip does: each time its random choices are others."""
    clips = clips_of(RandomClips(1, clips_per_video=2, spread=True), lengths)
    for order in every_order(len(lengths)):
        two_epochs = [*draws(order, clips, epoch), *draws(order, clips, epoch + 1)]
        assert len(set(two_epochs)) == len(two_epochs)
        assert min(two_epochs) >= 0


@given(LENGTHS, EPOCHS)
def test_an_epoch_has_every_clip_once(lengths: list[int], epoch: int) -> None:
    clips = clips_of(AllClips(1), lengths)
    assert indices(Sequential(), clips, epoch) == list(range(len(clips)))
    for order in (Shuffled(), Chunked(4), Chunked(4, window=6), Mixture([1]), Continued(1)):
        found = indices(order, clips, epoch)
        assert sorted(found) == list(range(len(clips)))


@pytest.mark.long
def test_every_clip_is_as_likely_at_every_position() -> None:
    """11 clips in chunks of 3 leave two over; even so each clip is at each position in one of 11 epochs."""
    clips = clips_of(AllClips(1), [4, 7])
    for order in (Shuffled(), Chunked(3), Chunked(3, window=4), Systematic([1, 1]), Continued(1)):
        seen = np.array([indices(order, clips, epoch) for epoch in range(3000)])
        for position in (0, 5, 10):
            assert chi_square_is_ordinary(np.bincount(seen[:, position], minlength=11)), (order, position)


@given(LENGTHS, st.integers(1, 8), EPOCHS)
def test_chunks_are_runs_on_a_circle(lengths: list[int], chunk: int, epoch: int) -> None:
    clips = clips_of(AllClips(1), lengths)
    count = len(clips)
    phase = int(below(hashes(key(0, "phase"), epoch), count))
    circle = [(phase + step) % count for step in range(count)]
    whole = count // chunk
    chunks = [circle[first : first + chunk] for first in range(0, whole * chunk, chunk)]
    shuffled = permuted(key(0, "chunks", epoch), whole, np.arange(whole)).tolist()
    expected = [*(chunks[number] for number in shuffled), circle[whole * chunk :]]
    found = indices(Chunked(chunk), clips, epoch)
    assert [sorted(found[first : first + chunk]) for first in range(0, whole * chunk + 1, chunk)] == [
        sorted(each) for each in expected
    ]


def test_within_a_chunk_every_order_is_as_likely() -> None:
    clips = clips_of(AllClips(1), [12])
    found = []
    for epoch in range(2000):
        first = indices(Chunked(3), clips, epoch)[:3]
        found.append(tuple(np.argsort(np.argsort([(clip - first[0] + 6) % 12 for clip in first])).tolist()))
    assert chi_square_is_ordinary(np.bincount([hash_of(order) for order in found], minlength=6))


def hash_of(order: tuple[int, ...]) -> int:
    return sorted(permutations(range(3))).index(order)


@given(LENGTHS, st.integers(1, 5), st.integers(1, 9))
def test_a_window_moves_nothing_further_than_itself(lengths: list[int], chunk: int, window: int) -> None:
    clips = clips_of(AllClips(1), lengths)
    plain, mixed = (indices(order, clips, 3) for order in (Chunked(chunk), Chunked(chunk, window=window)))
    for first in range(0, len(plain), window):
        assert sorted(plain[first : first + window]) == sorted(mixed[first : first + window])


def test_one_clip_per_video_takes_each_of_its_clips_equally_often() -> None:
    clips = clips_of(AllClips(4, ends="drop"), [9, 2, 4, 11])
    epochs = [indices(OneClipPerVideo(), clips, epoch) for epoch in range(3000)]
    videos = np.searchsorted(clips.firsts, np.array(epochs), side="right") - 1
    assert all(sorted(each) == [0, 2, 3] for each in videos.tolist())
    found = np.bincount(np.array(epochs).ravel(), minlength=15)
    assert chi_square_is_ordinary(found[:6])
    assert found[6] == 3000
    assert chi_square_is_ordinary(found[7:])


@pytest.mark.parametrize("weights", [[1, 0, 3], [0.1, 0.0, 0.3], np.array([5.5, 0, 16.5], dtype=np.float32)])
def test_weighted_draws_are_in_proportion_and_independent(weights: Any) -> None:
    clips = clips_of(AllClips(1), [3, 4, 3])
    found = np.array([indices(Weighted(weights, num_samples=40), clips, epoch) for epoch in range(500)]).ravel()
    counts = np.bincount(found, minlength=10)
    assert counts[3:7].tolist() == [0] * 4
    # A clip of the last video weighs as much as the whole first one.
    assert chi_square_is_ordinary(np.array([counts[:3].sum(), *counts[7:]]))
    pairs = Counter(zip((found[::2] >= 7).tolist(), (found[1::2] >= 7).tolist(), strict=True))
    expected = {(a, b): 10_000 * (9 if a else 3) * (9 if b else 3) / 144 for a in (False, True) for b in (False, True)}
    assert all(abs(pairs[pair] - count) < 4 * count**0.5 for pair, count in expected.items())


def test_weights_of_clips() -> None:
    clips = clips_of(AllClips(1), [2, 2])
    found = indices(Systematic([1, 2, 0, 5], of="clips", num_samples=80), clips, 0)
    assert np.bincount(found, minlength=4).tolist() == [10, 20, 0, 50]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any), st.integers(1, 60), EPOCHS, st.data())
def test_systematic_draws_each_clip_as_often_as_its_weight_to_within_one(
    weights: list[int], samples: int, epoch: int, data: st.DataObject
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=len(weights), max_size=len(weights)))
    clips = clips_of(AllClips(1), lengths)
    each = [weight for weight, length in zip(weights, lengths, strict=True) for _ in range(length)]
    found = Counter(indices(Systematic(weights, num_samples=samples), clips, epoch))
    for clip, weight in enumerate(each):
        assert abs(found[clip] - samples * weight / sum(each)) < 1


def test_systematic_is_right_on_average() -> None:
    clips = clips_of(AllClips(1), [1, 1, 1])
    found = np.concatenate(
        [indices(Systematic([1, 2, 3], num_samples=4), clips, epoch, seed=1) for epoch in range(3000)]
    )
    assert np.allclose(np.bincount(found) / 3000, [4 / 6, 8 / 6, 12 / 6], atol=0.04)


@given(LENGTHS, EPOCHS)
def test_systematic_with_equal_weights_has_every_clip_once(lengths: list[int], epoch: int) -> None:
    clips = clips_of(AllClips(1), lengths)
    assert sorted(draws(Systematic([0.1] * len(lengths)), clips, epoch)) == [
        epoch * len(clips) + clip for clip in range(len(clips))
    ]


@given(st.integers(1, 2**61), st.integers(1, 2**31 - 1), st.data())
def test_systematic_points_are_exact(total: int, slots: int, data: st.DataObject) -> None:
    phase = data.draw(st.integers(0, total - 1))
    slot = data.draw(st.lists(st.integers(0, slots - 1), min_size=1, max_size=5))
    expected = [(each * total + phase) // slots for each in slot]
    assert systematic_points(total, phase, np.array(slot), slots).tolist() == expected


@given(LENGTHS, EPOCHS, st.data())
def test_classes_come_equally_often(lengths: list[int], epoch: int, data: st.DataObject) -> None:
    labels = data.draw(st.lists(st.sampled_from(["cat", "dog", "owl"]), min_size=len(lengths), max_size=len(lengths)))
    clips = clips_of(AllClips(1), lengths)
    found = indices(ClassBalanced(labels, num_samples=50), clips, epoch)
    videos = np.searchsorted(clips.firsts, found, side="right") - 1
    per_class = Counter(labels[video] for video in videos)
    for label in set(labels):
        assert abs(per_class[label] - 50 / len(set(labels))) <= 1 + 1e-9
        of_class = [clip for clip in range(len(clips)) if labels[video_of(clips, clip)] == label]
        times = [found.count(clip) for clip in of_class]
        assert max(times) - min(times) <= 1


def video_of(clips: Any, clip: int) -> int:
    return int(np.searchsorted(clips.firsts, clip, side="right")) - 1


def test_a_table_in_any_order_is_weighted_by_its_videos() -> None:
    """Clips 0 and 2 are of video 1, clip 1 of video 0."""
    policy = ClipsAt([1, 0, 1], frames=[0, 0, 5])
    clips = table_index(policy, video_table([9, 9]), np.array([1, 0, 1]), 0)
    by_video = indices(Systematic([0, 1], num_samples=2), clips, 0)
    assert sorted(by_video) == [0, 2]
    by_clip = indices(Systematic([0, 1, 0], of="clips", num_samples=2), clips, 0)
    assert by_clip == [1, 1]
    assert set(indices(OneClipPerVideo(), clips, 0)) in ({0, 1}, {1, 2})


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    """Not seed + epoch, which makes seed 0's epoch 1 seed 1's epoch 0."""
    clips = clips_of(AllClips(1), [50])
    found = {(seed, epoch): tuple(indices(Shuffled(), clips, epoch, seed)) for seed in range(4) for epoch in range(4)}
    assert len(set(found.values())) == 16


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (Weighted([1, 2]), "2 weights and 3 videos"),
        (Weighted([1, -1, 1]), "finite and 0 or more"),
        (Weighted([0, 0, 0]), "one of them more than 0"),
        (Weighted([1, float("inf"), 1]), "finite"),
        (Weighted([1, 2, 3], of="frames"), "of is 'frames'"),
        (ClassBalanced(["a"]), "1 labels and 3 videos"),
        (Mixture([1, 1]), "2 quotas for 1 dataset; each has one"),
        (Mixture([1], orders=[Shuffled(), Shuffled()]), "orders has 2 for 1 dataset; each has one"),
        (Mixture([1], orders=cast(Any, [Shuffled])), r"an order is <class .*; it is an order such as"),
        (Systematic([1, 1, 1], num_samples=2**31), "less than 2"),
    ],
)
def test_what_does_not_fit_the_dataset_is_refused(order: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        order.bound(clips_of(AllClips(1), [3, 3, 3]), 0)


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 2, None],
        [1.0, float("nan"), 2.0, np.float32("nan")],
        np.array([1, np.nan, 2, np.nan]),
        np.array([1, None, 2, None], dtype=object),
        ["cat", None, "dog", float("nan")],
        np.array(["cat", np.nan, "dog", np.nan], dtype=np.dtypes.StringDType(na_object=np.nan)),
    ],
)
def test_missing_labels_and_weights_are_refused_with_their_number_and_the_first_video(values: Any) -> None:
    """NaN was a class of its own, and None no error of this package."""
    clips = clips_of(AllClips(1), [3, 3, 3, 3])
    remedy = r"'v1'; .* dataset.where\(lambda columns: columns.present\(name\)"
    with pytest.raises(
        UsageError, match=rf"2 of 4 labels are missing \(None or NaN\), the first that of video {remedy}"
    ):
        ClassBalanced(values).bound(clips, 0)
    for order in (Weighted(values), Systematic(values)):
        with pytest.raises(UsageError, match=rf"2 of 4 weights are missing .* video {remedy}"):
            order.bound(clips, 0)
    with pytest.raises(UsageError, match="the first that of clip 1;"):
        Weighted(values, of="clips").bound(clips_of(AllClips(1), [4]), 0)


def test_the_first_video_without_a_label_is_named_in_joined_datasets_and_tables() -> None:
    joined = MixedIndex((clips_of(AllClips(1), [3, 3]), clips_of(AllClips(1), [3, 3, 3])))
    with pytest.raises(UsageError, match="1 of 5 labels is missing .* video 'v1';"):
        ClassBalanced([0, 1, 0, None, 1]).bound(joined, 0)
    table = table_index(ClipsAt([1, 0], frames=[0, 0]), video_table([3, 3]), np.array([1, 0]), 0)
    with pytest.raises(UsageError, match="1 of 2 labels is missing .* video 'v1';"):
        ClassBalanced([0, None]).bound(table, 0)


def test_labels_of_several_kinds_are_refused() -> None:
    with pytest.raises(UsageError, match="labels have to be all numbers or all texts"):
        ClassBalanced(np.array([1, "a"], dtype=object)).bound(clips_of(AllClips(1), [3, 3]), 0)


def test_empty_texts_among_labels_are_told() -> None:
    """Empty cells of a CSV list are these: videos that nobody labelled were a class as large as each other one."""
    clips = clips_of(AllClips(1), [1, 2, 3])
    for labels in (["", "cat", "dog"], np.array(["", "cat", "dog"], dtype=np.dtypes.StringDType())):
        with pytest.warns(DatasetWarning, match=r"1 of 3 labels is an empty text, .* columns\[name\] != ''"):
            ClassBalanced(labels).bound(clips, 0)
    ClassBalanced(["", "", ""]).bound(clips, 0)
    ClassBalanced([0, 1, 0]).bound(clips, 0)


def test_labels_that_differ_are_different_classes() -> None:
    """Those of a list became an array first, in which 1 and "1" are one text, and large integers one float."""
    clips = clips_of(AllClips(1), [1, 2, 3])
    for labels in ([2**63, 2**63 + 1, -1], [0.5, 2**60, 2**60 + 1], [torch.tensor(2), np.int64(3), 4]):
        assert np.bincount(indices(ClassBalanced(labels, num_samples=30), clips, 0), minlength=6)[0] == 10, labels
    with pytest.raises(WrongTypeError, match="labels have to be all numbers or all texts"):
        ClassBalanced([1, "1", 2]).bound(clips, 0)


def test_positions_of_a_billion_clips_cost_nothing_that_grows() -> None:
    clips = clips_of(AllClips(1), [10**9])
    for order in (Shuffled(), Chunked(16), OneClipPerVideo(), Weighted([1]), Sequential(), Chunked(16, window=1024)):
        bound = order.bound(clips, 0)
        some: Sequence[int] = bound.draws(5, np.arange(min(bound.length, 4096))).tolist()
        assert len(set(some)) == len(some)
