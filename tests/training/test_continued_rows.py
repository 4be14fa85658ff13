"""Continued: rows of batches that go on in their videos, for models that carry a state from batch to batch. One test
runs the loop of docs/trainers.md."""

from __future__ import annotations

import re
import warnings
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader

import shortgop
from documents import ROOT, section
from shortgop.errors import DatasetWarning, UsageError
from shortgop.training.sampling.continued import Continued
from shortgop.training.which_clips.policies import AllClips, ClipsAt
from shortgop.training.which_clips.table_index import table_index
from test_training_keyed import chi_square_is_ordinary
from test_training_orders import indices
from training_videos import LENGTHS, damaged_copy, make_videos, numbers
from video_tables import clips_of, video_table

TRAINERS = ROOT / "docs" / "trainers.md"
# Windows of four frames that follow one another: 10 of video a, 7 of b, of which the last has one frame, and 3 of c.
WINDOWS = shortgop.AllClips(4, step=4, whole=False, ends="repeat_last")


def rows_of(order: Continued, clips: Any, epoch: int) -> np.ndarray[Any, Any]:
    """The clips of an epoch: (steps, rows)."""
    return np.array(indices(order, clips, epoch)).reshape(-1, order.rows)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 6), st.integers(0, 2**15))
def test_each_row_goes_on_with_the_next_clip_or_begins_a_video(lengths: list[int], rows: int, epoch: int) -> None:
    """Each video has so many clips, or none. Fewer clips than rows are left out, and none comes twice."""
    clips = clips_of(AllClips(1, ends="drop"), lengths)
    if len(clips) < rows:
        return
    found = rows_of(Continued(rows), clips, epoch)
    assert len(set(found.flat)) == found.size == len(clips) // rows * rows
    firsts, lasts = {*clips.firsts[:-1].tolist()}, {*(clips.firsts[1:] - 1).tolist()}
    for before, after in zip(found[:-1].flat, found[1:].flat, strict=True):
        assert after in firsts if before in lasts else after == before + 1


def test_rows_begin_anywhere_and_any_video_follows_another() -> None:
    clips = clips_of(AllClips(1), [4, 7, 9])
    epochs = np.array([rows_of(Continued(2), clips, epoch) for epoch in range(2000)])
    for row in range(2):
        assert chi_square_is_ordinary(np.bincount(epochs[:, 0, row], minlength=20))
    followers = epochs[:, 1:][epochs[:, :-1] == 3]
    assert set(followers.tolist()) == {4, 11}


def test_clips_of_a_table_go_on_as_the_table_has_them() -> None:
    """Its clips are not in the order of videos; those of each video come in the order of its lines."""
    table = ClipsAt(["v1", "v0", "v1", "v0", "v1"], frames=[8, 1, 2, 5, 4])
    clips = table_index(table, video_table([9, 9]), np.array([1, 0, 1, 0, 1]), seed=0)
    found = indices(Continued(1), clips, 0)
    following = [found[(place + 1) % 5] for place in np.argsort(found)]
    assert following == [2, 3, 4, 0, 1]


def test_another_seed_gives_other_rows() -> None:
    """Both what follows what, and where the rows begin."""
    many, one = clips_of(AllClips(1), [2] * 12), clips_of(AllClips(1), [24])
    for clips in (many, one):
        seeds = [indices(Continued(1), clips, 0, seed=seed) for seed in range(4)]
        from_clip_0 = [tuple(np.roll(found, -found.index(0)).tolist()) for found in seeds]
        assert len(set(from_clip_0)) == (4 if clips is many else 1)
        assert len({found[0] for found in seeds}) > 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


class Recurrent:
    """What a training loop with a state does, as the docstring of Continued has it: for each row it keeps which frame
    it saw last, and forgets it where the next clip does not go on there. `of` is what tells videos apart."""

    def __init__(self, rows: int, of: str = "video") -> None:
        self.state = self.video = self.start = torch.full((rows,), -1)
        self.seen: list[list[int]] = [[] for _ in range(rows)]
        self.carried, self.of = 0, of

    def train(self, batch: Any) -> None:
        state = self.state.clone()
        state[(batch[self.of] != self.video) | (batch["start"] != self.start + 4)] = -1
        self.video, self.start = batch[self.of], batch["start"]
        for row, frames in enumerate(batch["frames"]):
            shown = numbers(frames[batch["mask"][row]] if "mask" in batch else frames)
            goes_on = bool(self.seen[row]) and shown[0] == self.seen[row][-1] + 1
            assert goes_on == bool(state[row] >= 0)
            self.carried += goes_on
            state[row] = shown[-1]
            self.seen[row].extend(shown)
        self.state = state


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_state_is_carried_from_batch_to_batch_on_each_rank(folder: Path, world_size: int) -> None:
    """By the loop of the page. 20 windows in 4 rows of 5: every frame of all videos comes once in an epoch."""
    (block,) = re.findall(r"```python\n(.*?)```", section(TRAINERS, "Rows that go on in their videos"), re.DOTALL)
    for there, here in (
        ('"DATASET"', repr(str(folder))), ("(16, step=16", "(4, step=4"), ("64, 64", "64, 96"), ("s, 64,", "s, 4,"),
        ("Continued(64))", "Continued(4), rank=rank, world_size=world_size)"), ("64 //", "4 //"),
        ("start + 16", "start + 4"), ("clips, sampler)", "clips, sampler, workers=1)"),
    ):  # fmt: skip
        assert there in block
        block = block.replace(there, here)
    epochs: list[list[int]] = [[], []]

    def train(frames: torch.Tensor, mask: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """The state is the number of the last frame of each row, and 1; or zeros, where a video begins."""
        shown = [numbers(clip[seen]) for clip, seen in zip(frames, mask, strict=True)]
        for clip, (before, goes_on) in zip(shown, state.tolist(), strict=True):
            assert clip[0] == before + 1 if goes_on else before == 0
        names["carried"] += int(state[:, 1].sum())
        epochs[names["epoch"]].extend(frame for clip in shown for frame in clip)
        return torch.tensor([[clip[-1], 1] for clip in shown], dtype=torch.float32)

    names: dict[str, Any] = {"shortgop": shortgop, "torch": torch, "width": 2, "epochs": 2, "train": train}
    names["carried"] = 0
    for rank in range(world_size):
        names |= {"rank": rank, "world_size": world_size}
        exec(block, names)
        names["loader"].close()
    every = [1000 * video + frame for video, length in enumerate(LENGTHS) for frame in range(length)]
    assert [sorted(frames) for frames in epochs] == [every, every]
    # Of the 20 windows of an epoch, 4 begin a row, and two or three more a video.
    assert names["carried"] >= 2 * (20 - 4 - 3)


def test_a_state_is_carried_where_clips_go_on_wherever_videos_begin(folder: Path, tmp_path: Path) -> None:
    """Their first clips start elsewhere than at frame 0, or other clips stand in for some; epochs follow each other."""
    stretches = shortgop.Stretches(["a.mp4"] * 3 + ["b.mp4"], frames=[(3, 13), (14, 22), (23, 33), (1, 9)])
    skipping = shortgop.AllClips(4, step=4, whole=False, ends="repeat_last", skip=(2, 0))
    from_before = shortgop.AllClips(shortgop.Offsets(frames=[-1, 0, 1, 2]), step=4, ends="drop")
    for clips in (
        shortgop.ClipDataset(folder, WINDOWS),
        shortgop.ClipDataset(folder, WINDOWS, videos=stretches),
        shortgop.ClipDataset(folder, skipping),
        shortgop.ClipDataset(folder, from_before),
        shortgop.ClipDataset(damaged_copy(folder, tmp_path / "damaged"), WINDOWS, on_error="skip"),
    ):
        sampler = shortgop.ElasticSampler(clips, 2, order=Continued(2))
        model = Recurrent(2, "stretch" if "stretch" in clips[0] else "video")
        with warnings.catch_warnings():
            # It tells which clips are skipped.
            warnings.simplefilter("ignore", DatasetWarning)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in DataLoader(clips, 2, sampler=sampler):
                    model.train(batch)
        assert model.carried > 3 * (len(clips) - 12)


class Around(torch.utils.data.Dataset[Any]):
    """A dataset of the user's own, which asks for one clip at a time."""

    def __init__(self, clips: shortgop.ClipDataset) -> None:
        self.clips = clips

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, draw: int) -> Any:
        return self.clips[draw]


def test_a_dataset_around_clips_reads_them_one_by_one(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, WINDOWS)
    sampler = shortgop.ElasticSampler(clips, 4, order=Continued(4))
    model = Recurrent(4)
    for batch in DataLoader(Around(clips), 4, sampler=sampler):
        model.train(batch)
    assert model.carried >= 20 - 4 - 3


def test_a_run_goes_on_in_mid_epoch_in_either_loader(folder: Path) -> None:
    """From what the first batches left as state and as `batch.state` the same batches follow."""
    clips = shortgop.ClipDataset(folder, WINDOWS)

    def sampler() -> shortgop.ElasticSampler:
        return shortgop.ElasticSampler(clips, 4, order=Continued(4), seed=5)

    batches = list(shortgop.ClipLoader(clips, sampler(), workers=0))
    state = batches[1].state
    assert state is not None
    resumed = sampler()
    resumed.load_state_dict(state)
    rest = list(DataLoader(clips, 4, sampler=resumed))
    assert [batch["draw"].tolist() for batch in rest] == [batch["draw"].tolist() for batch in batches[2:]]
    model = Recurrent(4)
    for batch in [*batches[:2], *rest]:
        model.train(batch)
    # It depends on no labels and no weights.
    said = r"another order: 'Continued\(rows=4\)', now 'Continued\(rows=2\)'.* as they were then, or begin without it"
    with pytest.raises(UsageError, match=said):
        shortgop.ElasticSampler(clips, 2, order=Continued(2), seed=5).load_state_dict(state)


def test_a_loader_whose_batches_are_not_all_rows_of_the_rank_is_refused(folder: Path) -> None:
    """Their rows would be parts of batches, and each other row would be another one."""
    clips = shortgop.ClipDataset(folder, WINDOWS)
    for batch_size, world_size, drop_last in ((2, 1, True), (3, 1, False), (1, 2, True), (4, 2, True)):
        sampler = shortgop.ElasticSampler(
            clips, 4, order=Continued(4), rank=0, world_size=world_size, drop_last=drop_last
        )
        rows = 4 // world_size
        said = f"a batch of {batch_size} clips? .* rank 0 of {world_size} has {rows} rows .* batch_size={rows}. Grad"
        with pytest.raises(UsageError, match=said):
            next(iter(DataLoader(clips, batch_size, sampler=sampler)))
    # One of three ranks has two of four rows.
    for rank, rows in enumerate((1, 1, 2)):
        sampler = shortgop.ElasticSampler(clips, 4, order=Continued(4), rank=rank, world_size=3, drop_last=False)
        model = Recurrent(rows)
        for batch in DataLoader(clips, rows, sampler=sampler):
            model.train(batch)


def test_batches_that_come_in_another_order_are_refused(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, WINDOWS)
    sampler = shortgop.ElasticSampler(clips, 4, order=Continued(4))
    # A DataLoader that fails as it begins leaves its thread with an error now and then: here it has begun.
    batches = chain([[0, 1, 2, 3]], BatchSampler(sampler, 4, drop_last=True))
    loader = iter(DataLoader(clips, batch_sampler=batches, num_workers=1, prefetch_factor=1, in_order=False))
    with pytest.raises(UsageError, match="Continued, of 4 rows, .* in_order=False, .*: leave in_order out"):
        next(loader)


@pytest.mark.parametrize(
    "policy",
    [
        shortgop.RandomClips(4),
        shortgop.RandomClips(4, clips_per_video=2),
        shortgop.RandomClips(4, clips_per_video=2, joined=True),
        shortgop.RandomFrames(),
    ],
)
def test_random_clips_which_do_not_follow_one_another_are_refused(folder: Path, policy: Any) -> None:
    """Each row began anew in each batch, without a word."""
    random, windows = shortgop.ClipDataset(folder, policy), shortgop.ClipDataset(folder, WINDOWS)
    for clips in (random, shortgop.MixedClips([windows, random])):
        with pytest.raises(UsageError, match="Continued, and the clips of a video do not follow .*: take AllClips"):
            shortgop.ElasticSampler(clips, 2, order=Continued(2))
    in_order = shortgop.ClipDataset(folder, shortgop.RandomClips(4, clips_per_video=2, spread=True))
    shortgop.ElasticSampler(in_order, 2, order=Continued(2))


def test_a_state_within_a_batch_is_refused(folder: Path) -> None:
    """The rows of the next batch would be parts of two."""
    clips = shortgop.ClipDataset(folder, WINDOWS)
    sampler = shortgop.ElasticSampler(clips, 4, order=Continued(4))
    draws = iter(sampler)
    for _ in range(6):
        next(draws)
    with pytest.raises(UsageError, match="inside a global batch, and the batches of the order go on .* row by row"):
        shortgop.ElasticSampler(clips, 4, order=Continued(4)).load_state_dict(sampler.state_dict())


def test_batches_that_would_not_go_on_are_refused(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, WINDOWS)
    for size in (2, 8):
        with pytest.raises(UsageError, match=f"global_batch_size is {size}, and the order is Continued, .* make it 4$"):
            shortgop.ElasticSampler(clips, size, order=Continued(4))
    with pytest.raises(UsageError, match="rows is 21, and there are 20 clips"):
        shortgop.ElasticSampler(clips, 21, order=Continued(21))
    with pytest.raises(UsageError, match="rows is 0"):
        Continued(0)
    two = shortgop.MixedClips([clips, clips])
    with pytest.raises(UsageError, match="3 ranks do not divide evenly; give a multiple of 3, and Continued as many"):
        shortgop.ElasticSampler(clips, 4, order=Continued(4), rank=0, world_size=3)
    with pytest.raises(UsageError, match="3 ranks do not divide evenly; give a multiple of 3$"):
        shortgop.ElasticSampler(clips, 4, rank=0, world_size=3)
    with pytest.raises(UsageError, match="Continued, of 3 rows, and in a Mixture clips come in another order"):
        shortgop.ElasticSampler(two, 4, order=shortgop.Mixture([3, 1], [Continued(3), shortgop.Shuffled()]))
    with pytest.raises(UsageError, match="Continued, of 4 rows, and in buckets clips come in another order"):
        shortgop.BucketSampler(two, 4, orders=Continued(4))
    # Videos of several datasets go on in one order of all of them.
    assert shortgop.ElasticSampler(two, 4, order=Continued(4)).num_batches == 10


def test_clips_of_a_video_share_their_crop_and_flip_in_an_epoch(folder: Path) -> None:
    """Otherwise a state would be carried into a picture that is mirrored, or of another part."""
    frames = shortgop.Output(size=(32, 48), crop="random", flip=0.5, same_for="video")
    small = shortgop.Output(size=(16, 24), shared="frames")
    clips = shortgop.ClipDataset(folder, WINDOWS, outputs={"frames": frames, "small": small})
    sampler = shortgop.ElasticSampler(clips, 4, order=Continued(4))
    views = []
    for loader in (shortgop.ClipLoader(clips, sampler, workers=0), DataLoader(clips, 4, sampler=sampler)):
        found: dict[tuple[int, int], set[tuple[int, ...]]] = {}
        for epoch in range(8):
            sampler.set_epoch(epoch)
            for batch in loader:
                for video, crop, flip in zip(
                    *(batch[name].tolist() for name in ("video", "crop", "flip")), strict=True
                ):
                    found.setdefault((epoch, video), set()).add((*crop, flip))
        views.append(found)
    assert views[0] == views[1]
    assert {len(each) for each in found.values()} == {1}
    assert len({each for (_, video), of_one in found.items() if video == 0 for each in of_one}) > 4
    assert len({each for (epoch, _), of_all in found.items() if epoch == 0 for each in of_all}) == 3


def test_each_stretch_has_a_crop_of_its_own(folder: Path) -> None:
    stretches = shortgop.Stretches(["a.mp4"] * 5, frames=[(first, first + 8) for first in range(0, 40, 8)])
    frames = shortgop.Output(size=(32, 48), crop="random", same_for="video")
    clips = shortgop.ClipDataset(folder, WINDOWS, outputs={"frames": frames}, videos=stretches)
    crops = [tuple(item["crop"].tolist()) for item in clips.items(range(10))]
    assert crops[::2] == crops[1::2]
    assert len(set(crops)) == 5


def test_datasets_with_one_seed_have_the_same_crops(folder: Path, tmp_path: Path) -> None:
    """As pictures and their masks, which have other ids."""
    frames = shortgop.Output(size=(32, 48), crop="random", flip=0.5, same_for="video")
    masks = make_videos(tmp_path / "masks", prefix="mask-")
    seen = [
        [(*item["crop"].tolist(), item["flip"].item()) for item in clips.items(range(40))]
        for clips in (shortgop.ClipDataset(each, WINDOWS, outputs={"frames": frames}) for each in (folder, masks))
    ]
    assert seen[0] == seen[1]
    # Of each video in each of two epochs.
    assert len(set(seen[0])) == 6


def test_what_crops_are_drawn_for_is_checked() -> None:
    with pytest.raises(UsageError, match="same_for is 'epoch'; it can be"):
        shortgop.Output(same_for="epoch")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="shared='frames' takes crop and flip of that output: leave same_for out"):
        shortgop.Output(shared="frames", same_for="video")
