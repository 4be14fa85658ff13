"""ClassBatches: each batch has some clips of each of some classes, for losses that compare clips within a batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import UsageError
from shortgop.training.sampling.bound_order import BoundOrder
from shortgop.training.sampling.class_batches import ClassBatches
from shortgop.training.sampling.orders import Mixture
from shortgop.training.which_clips.mixing import MixedIndex
from shortgop.training.which_clips.policies import AllClips
from test_training_keyed import chi_square_is_ordinary
from test_training_orders import draws
from training_videos import make_videos, numbers
from video_tables import clips_of

Batches = list[list[list[int]]]


def batches_of(order: ClassBatches, clips: Any, epoch: int = 0, seed: int = 0) -> Batches:
    """The draws of an epoch: those of each class of each batch."""
    found = np.array(draws(order, clips, epoch, seed))
    shaped: Batches = found.reshape(-1, order.num_classes, order.clips_per_class).tolist()
    return shaped


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=4, max_size=9), st.data())
def test_a_batch_has_clips_of_different_classes_and_different_clips_of_each(
    videos: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Each video has a label and a number of clips, which may be 0."""
    labels, lengths = map(list, zip(*videos, strict=True))
    clips = clips_of(AllClips(1, ends="drop"), lengths)
    label_of = np.repeat(labels, lengths)
    sizes = Counter(label_of.tolist())
    if not sizes:
        return
    num_classes, each = data.draw(st.integers(1, len(sizes))), data.draw(st.integers(1, 5))
    order, epoch = ClassBatches(labels, num_classes, each, num_batches=7), data.draw(st.integers(0, 2**15))
    batches = batches_of(order, clips, epoch)
    assert len(batches) == 7
    for batch in batches:
        classes = [{int(label_of[draw % len(clips)]) for draw in group} for group in batch]
        assert [len(labels_of_group) for labels_of_group in classes] == [1] * num_classes
        assert len(set.union(*classes)) == num_classes
        for group in batch:
            times = Counter(draw % len(clips) for draw in group)
            size = sizes[int(label_of[group[0] % len(clips)])]
            assert len(times) == min(each, size)
            assert max(times.values()) - min(times.values()) <= 1
    # A clip that comes again has other random choices, and no draw is one of the next epoch.
    drawn = [draw for batch in batches for group in batch for draw in group]
    assert len(set(drawn)) == len(drawn)
    assert not set(drawn) & set(draws(order, clips, epoch + 1))


def test_classes_and_clips_come_in_turn() -> None:
    """Four classes of 6, 4, 2 and 8 clips, two of each in a batch of two classes: in four batches each class came
    twice, and its four clips are different ones if it has as many."""
    labels, lengths = ["a", "b", "c", "d"], [6, 4, 2, 8]
    clips = clips_of(AllClips(1), lengths)
    label_of = np.repeat(labels, lengths)
    for epoch in range(20):
        batches = batches_of(ClassBatches(labels, 2, 2, num_batches=4), clips, epoch)
        for turn in (batches[:2], batches[2:]):
            assert Counter(label_of[draw % 20] for batch in turn for group in batch for draw in group) == dict.fromkeys(
                labels, 2
            )
        times = Counter(draw % 20 for batch in batches for group in batch for draw in group)
        assert [sorted(times[clip] for clip in range(20) if label_of[clip] == label) for label in labels] == [
            [0, 0, 1, 1, 1, 1], [1, 1, 1, 1], [2, 2], [0, 0, 0, 0, 1, 1, 1, 1],
        ]  # fmt: skip


def test_each_class_and_each_clip_of_a_class_is_as_likely() -> None:
    """Of three classes two are in a batch, so that one of three is left out each time; of five clips two are."""
    labels, lengths = [0, 1, 2], [5, 5, 5]
    clips = clips_of(AllClips(1), lengths)
    first = [
        [group[0] % 15 for group in batch]
        for epoch in range(2000)
        for batch in batches_of(ClassBatches(labels, 2, 2, num_batches=2), clips, epoch)
    ]
    for place in range(2):
        counts = np.bincount([batch[place] for batch in first], minlength=15)
        chi_square_is_ordinary(counts)


def test_an_epoch_has_as_many_clips_as_there_are() -> None:
    clips = clips_of(AllClips(1), [10, 3, 9])
    assert len(batches_of(ClassBatches([0, 1, 0], 2, 4), clips)) == 2
    assert len(batches_of(ClassBatches([0, 1, 0], 2, 40), clips)) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def test_ranks_have_whole_classes_and_a_run_goes_on_in_mid_epoch(folder: Path) -> None:
    """Video a.mp4 is a cat, and the other two are dogs."""
    clips = shortgop.ClipDataset(folder, shortgop.RandomClips(2), metadata=["kind"])
    order = shortgop.ClassBatches(clips.column("kind"), num_classes=2, clips_per_class=3, num_batches=4)

    def sampler_of(rank: int, world_size: int) -> shortgop.ElasticSampler:
        return shortgop.ElasticSampler(clips, 6, order=order, rank=rank, world_size=world_size)

    samplers = [sampler_of(rank, 2) for rank in range(2)]
    batches = [list(DataLoader(clips, 3, sampler=sampler)) for sampler in samplers]
    for parts in zip(*batches, strict=True):
        assert sorted(part["kind"] for part in parts) == [["cat"] * 3, ["dog"] * 3]
        for part in parts:
            for video, start, frames in zip(*(part[name] for name in ("video", "start", "frames")), strict=True):
                assert numbers(frames) == [1000 * video + start, 1000 * video + start + 1]
        # The cat is one video, from which three different clips are taken.
        assert len({*torch_draws(parts[0]), *torch_draws(parts[1])}) == 6
    alone = sampler_of(0, 1)
    alone.load_state_dict(samplers[0].state_after(2))
    left = [torch_draws(batch) for batch in shortgop.ClipLoader(clips, alone, workers=0)]
    assert left == [torch_draws(one) + torch_draws(other) for one, other in zip(*batches, strict=True)][2:]


def torch_draws(batch: Any) -> list[int]:
    drawn: list[int] = batch["draw"].tolist()
    return drawn


def test_other_batches_are_refused(folder: Path) -> None:
    """The classes of a batch would be others than those that the order put together."""
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(1), metadata=["kind"])
    order = shortgop.ClassBatches(clips.column("kind"), 2, 3)
    said = r"is 4, and the order is ClassBatches, of batches of 6 clips \(num_classes \* clips_per_class\): make it 6"
    with pytest.raises(UsageError, match=f"global_batch_size {said}"):
        shortgop.ElasticSampler(clips, 4, order=order)
    both = shortgop.MixedClips([clips, clips])
    with pytest.raises(UsageError, match=f"the batch size of dataset 1 of MixedClips {said}"):
        shortgop.BucketSampler(both, [6, 4], orders=order)
    with pytest.raises(UsageError, match=f"a quota of the mixture {said}"):
        shortgop.ElasticSampler(both, 10, order=Mixture([6, 4], [order, order]))
    assert Mixture([6, 4], [order, shortgop.Shuffled()]).bound(both.clip_index, 0).batch == 10
    shortgop.ElasticSampler(clips, 12, order=order)
    of_a_user = BoundOrder(10, lambda _, positions: positions, "InFives()", batch=5)
    with pytest.raises(UsageError, match=r"^a batch is 4, and the order is InFives\(\): make it 5, or a multiple$"):
        of_a_user.check_batch(4, "a batch")


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (
            lambda: ClassBatches([0, 1, 0], 3, 2),
            "num_classes is 3, and the clips have 2 labels: the classes of a batch .*; give 2",
        ),
        (lambda: ClassBatches([0, 1, None], 2, 2), "1 of 3 labels is missing"),
        (lambda: ClassBatches([0, 1], 2, 2), "2 labels and 3 videos; each has one$"),
        (lambda: ClassBatches([0] * 9, 2, 2), r"9 labels and 3 videos; each has one; those of clips take of='clips'"),
        (lambda: ClassBatches([0, 1, 0], 2, 2, of="clips"), "3 labels and 9 clips; each has one$"),
        (lambda: ClassBatches([0, 1] * 4 + [None], 2, 2, of="clips"), "1 of 9 labels is missing .* that of clip 8;"),
        (lambda: ClassBatches([0, 1, 0], 2, 2, of="frames"), "of is 'frames'; labels are of \"videos\" or of"),
        (lambda: ClassBatches([0, 1, 0], 0, 2), "num_classes is 0"),
        (lambda: ClassBatches([0, 1, 0], 2, 2, num_batches=0), "num_batches is 0"),
    ],
)
def test_what_makes_no_batches_is_refused(order: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        order().bound(clips_of(AllClips(1), [3, 3, 3]), 0)


def test_labels_may_be_of_clips(folder: Path) -> None:
    """Clips of a table, which are not in the order of the videos: each label is that of its row."""
    videos, starts = ["c.mp4", "a.mp4", "b.mp4", "a.mp4", "a.mp4", "c.mp4"], [3, 30, 8, 5, 11, 0]
    labels = ["jump", "run", "run", "jump", "jump", "jump"]
    clips = shortgop.ClipDataset(folder, shortgop.ClipsAt(videos, frames=starts))
    row_of = {
        1000 * "abc".index(video[0]) + start: row for row, (video, start) in enumerate(zip(videos, starts, strict=True))
    }
    for order in (
        shortgop.ClassBatches(labels, 2, 2, num_batches=40, of="clips"),
        shortgop.ClassBalanced(labels, 160, of="clips"),
    ):
        times: Counter[int] = Counter()
        for batch in DataLoader(clips, 4, sampler=shortgop.ElasticSampler(clips, 4, order=order)):
            rows = [row_of[numbers(frames)[0]] for frames in batch["frames"]]
            assert (batch["draw"] % len(clips)).tolist() == rows
            if isinstance(order, ClassBatches):
                assert [[labels[row] for row in pair] for pair in (rows[:2], rows[2:])] in (
                    [["run"] * 2, ["jump"] * 2], [["jump"] * 2, ["run"] * 2],
                )  # fmt: skip
            times.update(rows)
        assert [times[row] for row in range(6)] == [20, 40, 40, 20, 20, 20]


def test_a_mixture_keeps_batches_of_classes_together() -> None:
    """Of each ten positions six are one batch of the first dataset."""
    parts = [clips_of(AllClips(1), [4, 5, 6]) for _ in range(2)]
    bound = Mixture([6, 4], [ClassBatches([0, 1, 2], 2, 3), ClassBatches([0, 1, 2], 2, 2)]).bound(
        MixedIndex(tuple(parts)), 0
    )
    label_of = np.tile(np.repeat([0, 1, 2], [4, 5, 6]), 2)
    for block in (bound.draws(3, np.arange(bound.length)) % 30).reshape(-1, 10):
        for own, each in ((block[block < 15], 3), (block[block >= 15], 2)):
            assert sorted(Counter(label_of[own].tolist()).values()) == [each] * 2
