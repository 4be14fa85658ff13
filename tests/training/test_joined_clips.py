"""Several clips of a video: one from each of its parts, and all of them as one item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shortgop
from training_videos import make_videos, numbers
from video_tables import clips_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 50))
def test_spread_clips_start_each_in_a_part_of_the_starts(starts: int, count: int, epoch: int) -> None:
    index = clips_of(shortgop.RandomClips(3, clips_per_video=count, spread=True), [starts + 2])
    found = [clip.start for clip in index.clips(range(epoch * count, (epoch + 1) * count))]
    for clip, start in enumerate(found):
        assert clip * starts // count <= start < max((clip + 1) * starts / count, clip * starts // count + 1)


def test_all_starts_of_a_part_are_as_likely() -> None:
    """mmaction2 leaves out the last starts where the parts do not divide them."""
    policy = shortgop.RandomClips(3, clips_per_video=3, spread=True)
    found = np.bincount([clip.start for clip in clips_of(policy, [10]).clips(range(30_000))], minlength=8)
    assert len(found) == 8
    assert (abs(found - 3750) < 200).all()
    assert clips_of(policy, [10]).fingerprint != clips_of(shortgop.RandomClips(3, clips_per_video=3), [10]).fingerprint


POLICIES = [
    shortgop.RandomClips(2, stride=3, clips_per_video=4, spread=True, joined=True),
    shortgop.RandomClips(3, fps=5, clips_per_video=2, joined=True, jitter=0.1, ends="black"),
    shortgop.UniformClips(3, stride=5, clips_per_video=3, joined=True, ends="drop"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_the_clips_of_a_video_as_one_item(folder: Path, policy: Any) -> None:
    """Those that the policy makes of the same video by itself, one after the other, in every epoch."""
    apart = type(policy)(**{**vars(policy), "joined": False})
    joined = shortgop.ClipDataset(folder, policy, size=(64, 96), metadata=["label"])
    single = shortgop.ClipDataset(folder, apart, size=(64, 96))
    count = policy.clips_per_video
    assert len(joined) * count == len(single)
    assert joined.too_short == single.too_short
    for epoch in range(2):
        sampler = shortgop.ElasticSampler(joined, len(joined), order=shortgop.Sequential())
        sampler.set_epoch(epoch)
        (batch,) = DataLoader(joined, batch_size=len(joined), sampler=sampler)
        (ours,) = shortgop.ClipLoader(joined, sampler, workers=0)
        assert (ours["frames"] == batch["frames"]).all()
        for row, draw in enumerate(batch["draw"].tolist()):
            items = single.items([draw * count + part for part in range(count)])
            clips = batch["frames"][row].unflatten(0, (count, -1))
            assert [numbers(clip) for clip in clips if clip.any()] == [
                numbers(item["frames"]) for item in items if item["frames"].any()
            ]
            assert (batch["frame_numbers"][row] == torch.cat([item["frame_numbers"] for item in items])).all()
            assert batch["video"][row] == items[0]["video"]
            if "mask" in items[0]:
                assert (batch["mask"][row] == torch.cat([item["mask"] for item in items])).all()
    table = joined.clip_table()
    assert [clip.tolist() for clip in table.frames] == [
        clip.frames.tolist() for clip in joined.clip_index.clips(range(len(joined)))
    ]


def test_each_video_counts_as_one_clip_for_orders(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, shortgop.RandomClips(2, clips_per_video=5, joined=True))
    order = shortgop.ClassBalanced(clips.column("kind"), num_samples=8)
    items = clips.items(list(shortgop.ElasticSampler(clips, 8, order=order)))
    assert sorted(item["video"] for item in items) == [0, 0, 0, 0, 1, 1, 2, 2]
    parts = shortgop.Stretches(["a.mp4", "a.mp4"], frames=[(0, 10), (30, 40)])
    within = shortgop.ClipDataset(folder, shortgop.RandomClips(2, clips_per_video=5, joined=True), videos=parts)
    for item in within.items(range(20)):
        assert item["frame_numbers"].min() // 30 == item["frame_numbers"].max() // 30 == item["stretch"]


def test_states_of_joined_clips_are_refused_by_others(folder: Path) -> None:
    policies: list[Any] = [POLICIES[0], shortgop.RandomClips(2, stride=3, clips_per_video=4, spread=True)]
    samplers = [
        shortgop.ElasticSampler(shortgop.ClipDataset(folder, policy), 2, order=shortgop.OneClipPerVideo())
        for policy in policies
    ]
    with pytest.raises(shortgop.UsageError, match="another policy"):
        samplers[0].load_state_dict(samplers[1].state_dict())
