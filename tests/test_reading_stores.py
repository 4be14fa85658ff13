"""A dataset in a store, or behind the local cache, reads as the same dataset on a disk does."""

from __future__ import annotations

import pickle
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import shortgop
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at

Opener = Callable[..., shortgop.Dataset]


@pytest.fixture
def on_disk(three_videos: Path) -> shortgop.Dataset:
    return shortgop.open(three_videos)


@pytest.fixture(params=["memory", "s3", "cached disk", "cached s3"])
def opener(request: pytest.FixtureRequest, three_videos: Path, tmp_path: Path) -> Opener:
    """What opens the dataset in a place that is no disk, or behind the cache."""
    place = str(three_videos)
    if "disk" not in request.param:
        place = f"memory://{uuid.uuid4().hex}" if request.param == "memory" else request.getfixturevalue("s3_url")
        put_up(three_videos, place)
    cached = {"cache_dir": tmp_path / "cache", "cache_bytes": 1 << 30} if "cached" in request.param else {}
    return lambda **options: shortgop.open(place, **{**cached, **options})


def put_up(folder: Path, url: str) -> None:
    """Copy a dataset from a disk into a store."""
    store = storage_at(url)
    for each in DiskStorage(folder).files(""):
        store.put_new_file(each.key, folder / each.key)


def test_any_frames_of_any_videos_are_those_of_the_disk(opener: Opener, on_disk: shortgop.Dataset) -> None:
    dataset = opener(threads=2)
    draws = random.Random(0)
    for _ in range(12):
        video = draws.choice(on_disk.ids)
        frames = [draws.randrange(len(on_disk[video])) for _ in range(draws.randint(1, 40))]
        ours, theirs = dataset[video].get_frames_at(frames), on_disk[video].get_frames_at(frames)
        assert torch.equal(ours.data, theirs.data)
        assert torch.equal(ours.pts_seconds, theirs.pts_seconds)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_whole_video_and_a_batch_are_those_of_the_disk(
    opener: Opener, on_disk: shortgop.Dataset, threads: int
) -> None:
    dataset = opener(threads=threads)
    for video in on_disk.ids:
        assert torch.equal(dataset[video].get_all_frames().data, on_disk[video].get_all_frames().data)
    requests = [("ntsc.mp4", range(start, start + 30, 3)) for start in range(0, 45, 7)]
    assert torch.equal(dataset.get_clips(requests).data, on_disk.get_clips(requests).data)


def test_a_copy_by_pickle_reads_the_same(opener: Opener, on_disk: shortgop.Dataset) -> None:
    copy = pickle.loads(pickle.dumps(opener()))
    assert torch.equal(copy["ntsc.mp4"][::9], on_disk["ntsc.mp4"][::9])
