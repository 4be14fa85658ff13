"""Columns in the items of ClipDataset: labels of the source list, and what the dataset says of its videos."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import DatasetWarning, UsageError
from training_videos import LENGTHS, make_videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def test_labels_that_are_missing_are_told_when_the_dataset_is_made(folder: Path, tmp_path: Path) -> None:
    """They came up in the middle of an epoch, in a worker, as torch's complaint about None."""
    dataset = shutil.copytree(folder, tmp_path / "dataset")
    shortgop.annotate(dataset, {"a.mp4": {"known": 7, "part": 1}, "b.mp4": {"known": 8}, "c.mp4": {"known": None}})
    with pytest.warns(DatasetWarning, match="1 of 3 videos have no 'known': 'c.mp4'; items of theirs have None there"):
        some = shortgop.ClipDataset(dataset, shortgop.CenterClips(2), metadata=["known"])
    assert [item["known"] for item in some] == [7, 8, None]
    with pytest.warns(DatasetWarning, match="2 of 3 videos have no 'part': 'b.mp4', 'c.mp4'"):
        few = shortgop.ClipDataset(dataset, shortgop.CenterClips(2), metadata=["part"])
    # What no list spoke of is None too, as in columns, and not an error in mid-epoch.
    assert [item["part"] for item in few] == [1, None, None]
    assert few.column("part") == [1, None, None]

    videos = shortgop.open(dataset)
    with pytest.warns(DatasetWarning, match="1 of 2 videos have no 'known': 'c.mp4'"):
        shortgop.ClipDataset(dataset, shortgop.CenterClips(2), videos=["c.mp4", "a.mp4"], metadata=["known"])
    labelled = videos.where(lambda columns: columns.present("known"))
    # Warnings are errors in these tests.
    assert [item["known"] for item in shortgop.ClipDataset(labelled, shortgop.CenterClips(2), metadata=["known"])] == [
        7,
        8,
    ]


def test_integers_that_no_tensor_holds_are_told_with_their_column(folder: Path, tmp_path: Path) -> None:
    """It was an overflow without a name, of which nobody could tell where it came from."""
    dataset = shutil.copytree(folder, tmp_path / "dataset")
    shortgop.annotate(dataset, {"a.mp4": {"hash": 2**64 - 1}, "b.mp4": {"hash": 1}, "c.mp4": {"hash": -(2**63)}})
    clips = shortgop.ClipDataset(dataset, shortgop.CenterClips(2), metadata=["hash"])
    assert [item["hash"] for item in clips] == [2**64 - 1, 1, -(2**63)]
    for order, message in (([0, 1, 2], "'hash' .* integers that 64 bits do not hold"), ([2, 1, 0], "'hash' is int")):
        with pytest.raises(UsageError, match=message):
            list(shortgop.ClipLoader(clips, order, batch_size=3, workers=0))
    assert len(list(shortgop.ClipLoader(clips, [2, 1], batch_size=2, workers=0))) == 1


def test_items_have_what_the_dataset_says_of_their_videos(folder: Path, tmp_path: Path) -> None:
    own = ["id", "fps", "num_frames", "duration_seconds", "width", "codec", "label"]
    clips = shortgop.ClipDataset(folder, shortgop.CenterClips(2), metadata=own)
    batch = next(iter(DataLoader(clips, batch_size=3)))
    assert batch["id"] == ["a.mp4", "b.mp4", "c.mp4"]
    assert batch["codec"] == ["h264"] * 3
    assert batch["num_frames"].tolist() == LENGTHS
    assert batch["num_frames"].dtype == batch["width"].dtype == torch.int64
    assert batch["fps"].tolist() == [10, 30, 10]
    assert batch["duration_seconds"].tolist() == [4, 25 / 30, 0.9]
    assert batch["label"].tolist() == [0, 1, 1]
    # As in columns, a list's column of that name stands in its place, also for videos of which it says nothing.
    dataset = shutil.copytree(folder, tmp_path / "dataset")
    with pytest.warns(DatasetWarning, match="column 'fps' of the list takes the place of the dataset's own"):
        shortgop.annotate(dataset, {"b.mp4": {"fps": "slow"}})
    with pytest.warns(DatasetWarning, match="2 of 3 videos have no 'fps'"):
        listed = shortgop.ClipDataset(dataset, shortgop.CenterClips(2), metadata=["fps"])
    assert [item["fps"] for item in listed] == [None, "slow", None] == listed.column("fps")


def test_mixed_items_of_which_some_lack_a_column_are_told(folder: Path) -> None:
    """A batch that began with one that lacks the label had none at all, without a word."""
    policy = shortgop.CenterClips(2)
    plain, labelled = shortgop.ClipDataset(folder, policy), shortgop.ClipDataset(folder, policy, metadata=["label"])
    mixed = shortgop.MixedClips([plain, labelled])
    with pytest.warns(DatasetWarning, match="items of dataset 1 have 'label', and those of dataset 0 do not"):
        items = mixed.__getitems__([0, 3, 4])
    assert ["label" in item for item in items] == [False, True, True]
    # Once, and not where the items have the same entries: warnings are errors in these tests.
    mixed.__getitems__([0, 3])
    shortgop.MixedClips([labelled, labelled]).__getitems__([0, 3])
    shortgop.MixedClips([plain, labelled]).__getitems__([0, 1])
