"""Batches: what an index makes of them, empty ones, and where their times are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shortgop
from example_manifests import failure
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.readers.decoder_trial import try_decoders
from shortgop.storage.disk import DiskStorage


@pytest.fixture(scope="module")
def dataset(three_videos: Path) -> shortgop.Dataset:
    return shortgop.open(three_videos)


@pytest.fixture(scope="module")
def clips(dataset: shortgop.Dataset) -> shortgop.ClipBatch:
    return dataset.get_clips([("ntsc.mp4", range(start, start + 4)) for start in (0, 20, 40, 60)])


CLIP_KEYS: list[Any] = [
    slice(0, 2),
    slice(None, None, 2),
    slice(3, 1),
    [0, 2],
    [-1],
    [],
    range(2),
    torch.tensor([3, 0]),
    torch.tensor([], dtype=torch.int64),
    torch.tensor([True, False, False, True]),
    np.array([1, 1]),
]


@pytest.mark.parametrize("key", CLIP_KEYS, ids=repr)
def test_several_clips_of_a_batch_are_a_batch_of_clips(clips: shortgop.ClipBatch, key: Any) -> None:
    part = clips[key]
    assert type(part) is shortgop.ClipBatch
    rows = torch.arange(4)[torch.tensor(key, dtype=torch.int64) if isinstance(key, (list, range)) else key]
    assert torch.equal(part.data, clips.data[rows])
    assert torch.equal(part.pts_seconds, clips.pts_seconds[rows])
    assert torch.equal(part.duration_seconds, clips.duration_seconds[rows])
    assert len(part) == len(rows)


@pytest.mark.parametrize("key", [2, -2, np.int64(2), np.uint8(2), torch.tensor(2)], ids=repr)
def test_one_clip_of_a_batch_is_a_batch_of_frames(clips: shortgop.ClipBatch, key: Any) -> None:
    clip = clips[key]
    assert type(clip) is shortgop.FrameBatch
    assert torch.equal(clip.data, clips.data[2])
    assert clip.pts_seconds.shape == (4,)


def test_a_second_index_goes_along_the_frames(clips: shortgop.ClipBatch) -> None:
    firsts = clips[:, 0]
    assert type(firsts) is shortgop.FrameBatch
    assert torch.equal(firsts.data, clips.data[:, 0])
    assert firsts.pts_seconds.tolist() == [frame * 1001 / 30000 for frame in (0, 20, 40, 60)]
    half = clips[:, 1:3]
    assert type(half) is shortgop.ClipBatch
    assert half.data.shape[:2] == (4, 2)
    assert clips[1, 2].pts_seconds.item() == 22 * 1001 / 30000
    assert [type(clip) for clip in clips] == [shortgop.FrameBatch] * 4


def test_frames_of_a_batch(clips: shortgop.ClipBatch) -> None:
    frames = clips[0]
    for key in (slice(1, 3), [1, 2], range(1, 3), torch.tensor([1, 2]), torch.tensor([False, True, True, False])):
        part = frames[key]
        assert type(part) is shortgop.FrameBatch
        assert torch.equal(part.data, frames.data[1:3])
        assert torch.equal(part.pts_seconds, frames.pts_seconds[1:3])
    assert len(frames[[]]) == 0
    assert frames[1].pts_seconds.ndim == 0


@pytest.mark.parametrize(
    "key", [True, np.bool_(True), torch.tensor(True), [True, False, True, False], ["0"], [0.5], None, "0", 1.0]
)
def test_what_no_batch_is_indexed_by(clips: shortgop.ClipBatch, key: Any) -> None:
    for batch in (clips, clips[0]):
        with pytest.raises(shortgop.WrongTypeError, match="a batch is indexed by"):
            batch[key]


@pytest.mark.parametrize("key", [4, -5, [4], torch.tensor([9]), (0, 0, 0)], ids=repr)
def test_an_index_that_is_not_there(clips: shortgop.ClipBatch, key: Any) -> None:
    with pytest.raises(IndexError):
        clips[key]


def test_a_batch_of_frames_has_four_dimensions(clips: shortgop.ClipBatch) -> None:
    with pytest.raises(ValueError, match="the times of a FrameBatch have 1 dimensions, not 2"):
        shortgop.FrameBatch(clips.data, clips.pts_seconds, clips.duration_seconds)
    with pytest.raises(ValueError, match="the times of a ClipBatch have 2 dimensions, not 1"):
        shortgop.ClipBatch(clips.data[0], clips.pts_seconds[0], clips.duration_seconds[0])


OUTPUTS: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({}, (3, 0, 0)),
    ({"dimension_order": "NHWC"}, (0, 0, 3)),
    ({"crop": (2, 4, 20, 30)}, (3, 20, 30)),
    ({"crop": (2, 4, 5000, 30)}, (3, 5000, 30)),
    ({"crop": (2, 4, 20, 40), "size": 10}, (3, 10, 20)),
    ({"size": 32}, (3, 0, 0)),
    ({"size": (10, 20)}, (3, 10, 20)),
    ({"size": (10, 20), "crop": "center", "dimension_order": "NHWC"}, (10, 20, 3)),
    ({"size": (10, 20), "crop": (0, 0, 900, 900)}, (3, 10, 20)),
    ({"color": "yuv420"}, (1, 0, 0)),
    ({"color": "yuv420", "crop": (2, 4, 20, 30)}, (1, 30, 30)),
    ({"color": "yuv420", "size": (12, 20)}, (1, 18, 20)),
    ({"dtype": torch.float16, "normalize": ((0, 0, 0), (1, 1, 1))}, (3, 0, 0)),
]


@pytest.mark.parametrize(("options", "frame"), OUTPUTS, ids=str)
def test_no_clips_are_an_empty_batch(three_videos: Path, options: dict[str, Any], frame: tuple[int, ...]) -> None:
    batch = shortgop.open(three_videos, **options).get_clips([])
    assert type(batch) is shortgop.ClipBatch
    assert batch.data.shape == (0, 0, *frame)
    assert batch.data.dtype == options.get("dtype", torch.uint8)
    assert batch.pts_seconds.shape == batch.duration_seconds.shape == (0, 0)
    assert list(batch) == []


def test_no_clips_of_videos_that_are_alike_have_their_shape(three_videos: Path) -> None:
    dataset = shortgop.open(three_videos, crop=(0, 0, 40, 60))
    assert dataset.get_clips([]).data.shape[2:] == dataset[0][0].shape == (3, 40, 60)
    assert dataset.get_clips([], out=torch.empty((0, 0, 3, 40, 60), dtype=torch.uint8)).data.numel() == 0


def test_no_clips_of_a_dataset_without_videos(tmp_path: Path) -> None:
    create(DiskStorage(tmp_path / "d"), {"gop_frames": 4})
    write_part(DiskStorage(tmp_path / "d"), "u1", failure("a", "cut short"))
    publish(DiskStorage(tmp_path / "d"))
    for options in ({}, {"crop": (2, 2, 8, 8)}):
        dataset = shortgop.open(tmp_path / "d", **options)  # type: ignore[arg-type]
        assert len(dataset.get_clips([])) == 0
        assert list(dataset) == []
        assert dataset.metadata.num_frames == 0


# The others' crops are larger than these videos.
FITTING = [options for options, _ in OUTPUTS if options.get("crop") not in ((2, 4, 5000, 30), (0, 0, 900, 900))]


@pytest.mark.parametrize("options", FITTING, ids=str)
def test_no_frames_are_an_empty_batch(three_videos: Path, options: dict[str, Any]) -> None:
    dataset = shortgop.open(three_videos, **options)
    video = dataset["ntsc.mp4"]
    frame = video[0].shape
    for batch in (
        video.get_frames_at([]),
        video.get_frames_at(torch.tensor([])),
        video.get_frames_at(np.array([])),
        video.get_frames_at(iter([])),
        video.get_frames_in_range(5, 5),
        video.get_frames_in_range(9, 2),
        video.get_frames_played_at([]),
        video.get_frames_played_at(torch.tensor([])),
        video.get_frames_played_in_range(0.5, 0.5),
        video.get_frames_played_in_range(0.5, 0.5, fps=10),
        video.get_all_frames(fps=1e-9),
    ):
        assert batch.data.shape == (0, *frame)
        assert batch.pts_seconds.shape == batch.duration_seconds.shape == (0,)
        assert batch.pts_seconds.dtype == torch.float64
    assert video[3:3].shape == (0, *frame)
    assert dataset.get_clips([("ntsc.mp4", [])] * 2).data.shape == (2, 0, *frame)
    assert video.source_pts([]).shape == video.source_seconds([]).shape == (0,)
    assert video.source_pts([]).dtype == torch.int64


def test_frames_and_their_times_are_on_the_cpu_whatever_torch_takes_by_default(
    three_videos: Path,
) -> None:
    expected = shortgop.open(three_videos)
    torch.set_default_device("meta")
    try:
        dataset = shortgop.open(three_videos)
        video = dataset["ntsc.mp4"]
        clips = dataset.get_clips([("ntsc.mp4", [3, 3]), ("ntsc.mp4", [9, 1])])
        batches: list[Any] = [
            clips,
            clips[[0]],
            clips[0:1],
            clips[0],
            clips[0][[1]],
            video.get_frames_at([1, 2]),
            video.get_frames_played_in_range(0.1, 0.5, fps=10),
            video.get_frames_played_at([0.1]),
        ]
        tensors = [each for batch in batches for each in (batch.data, batch.pts_seconds, batch.duration_seconds)]
        tensors += [video.source_seconds([1, 2]), video.source_pts([1]), video[0], next(iter(video))]
        assert all(trial.works for trial in try_decoders())
    finally:
        torch.set_default_device(None)
    assert {each.device.type for each in tensors} == {"cpu"}
    assert torch.equal(clips.data, expected.get_clips([("ntsc.mp4", [3, 3]), ("ntsc.mp4", [9, 1])]).data)
    assert batches[5].pts_seconds.tolist() == [1001 / 30000, 2002 / 30000]


@settings(max_examples=50, deadline=None)
@given(
    first=st.slices(4) | st.integers(-4, 3) | st.lists(st.integers(-4, 3), max_size=4),
    second=st.slices(4) | st.integers(-4, 3),
)
def test_an_index_does_to_times_what_it_does_to_frames(clips: shortgop.ClipBatch, first: Any, second: Any) -> None:
    for key in (first, (first, second)):
        if "step=-" in repr(key) or any(isinstance(k, slice) and (k.step or 1) < 0 for k in (first, second)):
            continue  # torch has no negative steps
        part = clips[key]
        times = clips.pts_seconds.numpy()[np.array(key, dtype=int) if isinstance(key, list) else key]
        assert part.pts_seconds.numpy().tolist() == times.tolist()
        assert part.data.shape[: times.ndim] == times.shape
        assert isinstance(part, shortgop.ClipBatch if times.ndim == 2 else shortgop.FrameBatch)
