"""SegmentFrames: clips that are spread over whole videos, one frame of each of some equal segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import DatasetWarning, UsageError
from shortgop.training.which_clips.policies import SegmentFrames
from shortgop.training.which_clips.segments import SegmentIndex
from video_tables import listed, video_table


@given(st.lists(st.integers(1, 70), min_size=1, max_size=5), st.integers(1, 20), st.integers(0, 100))
def test_each_segment_gives_one_frame_of_its_own(lengths: list[int], count: int, epoch: int) -> None:
    table = video_table(lengths)
    draws = [epoch * len(lengths) + video for video in range(len(lengths))]
    drawn = listed(SegmentIndex(SegmentFrames(count, place="random"), table, 0), draws)
    middles = listed(SegmentIndex(SegmentFrames(count, place="middle"), table, 0))
    assert [video for video, _ in drawn] == list(range(len(lengths)))
    for (_, random), (_, middle), length in zip(drawn, middles, lengths, strict=True):
        # What mmaction2 calls bids and bsize, in UniformSampleFrames.
        bounds = [segment * length // count for segment in range(count + 1)]
        for segment, (low, high) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
            assert low <= random[segment] < max(high, low + 1)
        assert middle == [int((segment + 0.5) * length / count) for segment in range(count)]


def test_all_frames_of_a_segment_are_as_likely_and_drawn_for_each_segment() -> None:
    index = SegmentIndex(SegmentFrames(3, place="random"), video_table([12]), seed=1)
    frames = np.array([clip.frames for clip in index.clips(range(6000))])
    for segment in range(3):
        counts = np.bincount(frames[:, segment] - 4 * segment, minlength=4)
        assert len(counts) == 4
        assert ((counts > 1350) & (counts < 1650)).all()
    assert abs(np.corrcoef(frames.T)[np.triu_indices(3, 1)]).max() < 0.05
    other = SegmentIndex(SegmentFrames(3, place="random"), video_table([12]), seed=2)
    assert listed(other, range(20)) != listed(index, range(20))
    assert other.fingerprint != index.fingerprint


def test_what_it_cannot_be_told() -> None:
    with pytest.raises(UsageError, match="num_frames is 0"):
        SegmentFrames(0, place="middle")
    with pytest.raises(UsageError, match='"random", for training, or "middle"'):
        SegmentFrames(8, place=cast(Any, "centre"))


def test_a_dataset_of_them_is_read_by_all_loaders(clips_folder: Path) -> None:
    """New frames in each epoch, the same ones for any loader, and without an epoch a warning."""
    clips = shortgop.ClipDataset(clips_folder, shortgop.SegmentFrames(5, place="random"), size=(32, 32))
    assert len(clips) == len(clips.source)
    sampler = shortgop.ElasticSampler(clips, 2)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        ours = [batch["frame_numbers"].tolist() for batch in shortgop.ClipLoader(clips, sampler, workers=0)]
        theirs = [batch["frame_numbers"].tolist() for batch in DataLoader(clips, batch_size=2, sampler=sampler)]
        assert ours == theirs
        epochs.append(sorted(frames for batch in ours for frames in batch))
    assert epochs[0] != epochs[1]
    for _ in range(2):
        list(DataLoader(clips, batch_size=2))
    with pytest.warns(DatasetWarning, match=r"call dataset.set_epoch"):
        list(DataLoader(clips, batch_size=2))


def test_a_draw_has_the_same_frames_whatever_integer_it_is(clips_folder: Path) -> None:
    """Those of a sampler and of numpy had others than those that equal them."""
    segments = shortgop.ClipDataset(clips_folder, shortgop.SegmentFrames(5, place="random"), size=(32, 32))
    jittered = shortgop.ClipDataset(clips_folder, shortgop.AllClips(3, stride=4, jitter=3), size=(32, 32))
    for clips in (segments, jittered):
        sampler = shortgop.ElasticSampler(clips, 1)
        draws = list(sampler)[:6]
        expected = [clips.items([int(draw)])[0]["frame_numbers"].tolist() for draw in draws]
        for same in (draws, cast(Any, np.array(draws))):
            assert [item["frame_numbers"].tolist() for item in clips.items(same)] == expected


def test_segments_of_stretches_lie_in_them(clips_folder: Path) -> None:
    videos = shortgop.Stretches([0, 0, 1], frames=[(10, 22), (2, 5), (0, None)])
    clips = shortgop.ClipDataset(clips_folder, shortgop.SegmentFrames(3, place="middle"), videos=videos)
    assert [clips[draw]["frame_numbers"].tolist() for draw in range(2)] == [[12, 16, 20], [2, 3, 4]]
    assert [clips[draw]["stretch"] for draw in range(3)] == [0, 1, 2]
    assert clips.too_short == ()
