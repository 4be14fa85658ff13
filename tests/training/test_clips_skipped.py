"""Clips of GOPs that cannot be read: an error, another clip in their place, or the next one."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import DatasetError, DatasetWarning
from training_videos import check_item, damaged_copy, make_videos, read_by


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


@pytest.fixture
def damaged(folder: Path, tmp_path: Path) -> Path:
    """The dataset with a GOP damaged: frames 8 to 15 of a.mp4."""
    return damaged_copy(folder, tmp_path / "copy")


def test_a_bad_gop_is_an_error_or_another_clip(damaged: Path) -> None:
    policy = shortgop.AllClips(1)
    with pytest.raises(DatasetError):
        shortgop.ClipDataset(damaged, policy).__getitems__([3, 10, 60])
    dataset = shortgop.ClipDataset(damaged, policy, on_error="skip")
    draws = [3, 10, 60, 74 + 10]
    with pytest.warns(DatasetWarning, match="draw (10|84) is skipped"):
        items = dataset.__getitems__(draws)
    assert [items[0]["draw"], items[2]["draw"]] == [3, 60]
    assert items[1]["draw"] in {*range(8), *range(16, 74)}
    # In another epoch another one comes in its place.
    assert items[3]["draw"] // 74 == 1
    assert items[3]["draw"] % 74 != items[1]["draw"]
    for item in items:
        check_item(item, dataset.clip_index.clips([item["draw"]])[0])
    assert dataset.skipped == 2
    # A rank that reads it alone takes the same one.
    with pytest.warns(DatasetWarning):
        assert dataset[10]["draw"] == items[1]["draw"]


def test_an_example_counts_and_tells_of_no_bad_clips(damaged: Path) -> None:
    """It is no part of the training."""
    alone = shortgop.ClipDataset(damaged, shortgop.AllClips(1), on_error="skip")
    for dataset in (alone, shortgop.MixedClips([alone])):
        assert dataset.example(10)["draw"] != 10
        assert dataset.skipped == 0
    with pytest.warns(DatasetWarning, match="draw 10 is skipped"):
        alone.__getitems__([10])
    assert alone.skipped == 1


def test_what_comes_in_place_of_a_bad_clip_can_be_chosen(damaged: Path) -> None:
    seen: list[int] = []

    def before(error: Exception, draw: int) -> int:
        seen.append(draw)
        return draw - 1

    dataset = shortgop.ClipDataset(damaged, shortgop.AllClips(1), on_error=before)
    with pytest.warns(DatasetWarning):
        assert dataset[10]["draw"] == 7
    assert seen == [10, 9, 8]


def test_too_many_bad_clips_are_an_error(damaged: Path) -> None:
    dataset = shortgop.ClipDataset(damaged, shortgop.AllClips(1), on_error="skip", max_skipped=5)
    with pytest.warns(DatasetWarning), pytest.raises(DatasetError, match="6 clips could not be read, more than"):
        dataset.__getitems__(list(range(8, 16)))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:draw .* is skipped")
def test_clips_skipped_by_workers_are_counted(damaged: Path) -> None:
    dataset = shortgop.ClipDataset(damaged, shortgop.AllClips(1), on_error="skip", videos=["a.mp4"])
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert len(read_by(loader, dataset)) == 40
    assert dataset.skipped >= 8
