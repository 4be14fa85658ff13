"""Videos of several shapes in a MixedClips, for tests of BucketSampler: what there is, and what a batch has to show."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import shortgop
from datasets import make_dataset
from synthetic import constant_rate_pts, make_video, read_number

# (width, height) of the videos, which have 30 frames each and show the numbers from 1000 * video on.
SIZES = [(96, 64), (64, 96), (96, 64), (96, 96)]
FRAMES = 30
# A dataset for each shape: the videos, frames of a clip, and clips of a batch.
BUCKETS = [([0, 2], 4, 6), ([1], 2, 10), ([3], 1, 2)]
BATCH_SIZES = [size for *_, size in BUCKETS]
BATCHES = [9, 2, 15]
"""How many whole batches each has in an epoch."""
# Options for evaluation. These leave over 6, 9 and 2 clips: 9 come first, and of 2 the third of three ranks has none.
EVALUATED: dict[str, Any] = {"batch_sizes": [8, 10, 4], "orders": shortgop.Sequential(), "drop_last": False}


def make_bucket_videos(root: Path) -> Path:
    """The folder of a dataset of the videos."""
    paths = [root / f"{number}.mp4" for number in range(len(SIZES))]
    for number, (path, size) in enumerate(zip(paths, SIZES, strict=True)):
        pts = constant_rate_pts(Fraction(30), FRAMES)
        make_video(path, pts=pts, timebase=Fraction(1, 30), size=size, first_number=1000 * number)
    assert make_dataset(paths, root / "dataset", gop_frames=8).failures == ()
    return root / "dataset"


def mixed(dataset: str | Path | shortgop.Dataset) -> shortgop.MixedClips:
    """A dataset of clips for each of the buckets."""
    videos = shortgop.open(dataset) if not isinstance(dataset, shortgop.Dataset) else dataset
    return shortgop.MixedClips(
        [
            shortgop.ClipDataset(videos, shortgop.AllClips(frames), videos=numbers, metadata=["id"])
            for numbers, frames, _ in BUCKETS
        ]
    )


def shown(batch: Any, size: int | None = None) -> list[int]:
    """The draws of a batch, whose frames have to be those of its dataset's clips."""
    (dataset,) = set(batch["dataset"].tolist())
    videos, frames, whole = BUCKETS[dataset]
    width, height = SIZES[videos[0]]
    size = whole if size is None else size
    assert batch["frames"].shape == (size, frames, 3, height, width)
    assert len(batch["id"]) == size
    for clip, video, start in zip(batch["frames"], batch["video"].tolist(), batch["start"].tolist(), strict=True):
        assert video in videos
        assert [read_number(frame) for frame in clip] == [1000 * video + start + frame for frame in range(frames)]
    draws: list[int] = batch["draw"].tolist()
    return draws


def of_epochs(dataset: shortgop.MixedClips, epochs: int) -> list[list[int]]:
    """All batches of so many epochs."""
    sampler = shortgop.BucketSampler(dataset, BATCH_SIZES)
    batches: list[list[int]] = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        batches += list(sampler)
    return batches
