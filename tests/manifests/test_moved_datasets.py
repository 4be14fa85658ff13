"""A dataset that is moved or removed while it is open: errors say so, and not that one of its files is missing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import shortgop
from dataset_places import Places, copied, names
from shortgop.errors import MissingDataError
from shortgop.storage.interface import Storage
from synthetic import read_number


@pytest.fixture
def dataset(three_videos: Path, places: Places) -> Storage:
    return copied(three_videos, places.new())


def move_away(dataset: Storage) -> None:
    """What is left at its place is nothing."""
    if dataset.folder is not None:
        dataset.folder.rename(dataset.folder.parent / "elsewhere")
    for each in [*dataset.files("")]:
        dataset.remove(each.key)


def frames(opened: shortgop.Dataset) -> object:
    return opened["film.mkv"][0]


def source_pts(opened: shortgop.Dataset) -> object:
    """They are in the snapshot's file, and not in shards."""
    return opened["film.mkv"].source_pts([0])


def a_pickled_copy(opened: shortgop.Dataset) -> object:
    """As a worker process gets it."""
    return len(pickle.loads(pickle.dumps(opened)))


class Moved:
    where: str

    @pytest.mark.parametrize("read", [frames, source_pts, a_pickled_copy])
    def test_what_is_read_says_that_the_dataset_is_gone(
        self, dataset: Storage, read: Callable[[shortgop.Dataset], object]
    ) -> None:
        opened = shortgop.open(dataset.url)
        move_away(dataset)
        with pytest.raises(MissingDataError, match=f"{dataset} is no longer there.*open it where it is now"):
            read(opened)

    def test_a_dataset_that_lacks_a_shard_is_still_there(self, dataset: Storage) -> None:
        opened = shortgop.open(dataset.url)
        for shard in names(dataset, "shards"):
            dataset.remove(f"shards/{shard}")
        with pytest.raises(MissingDataError, match=r"shard is missing; run `shortgop prep` on the same sources again"):
            frames(opened)


class TestInAFolder(Moved):
    where = "disk"

    def test_a_folder_that_comes_back_is_read_again(self, dataset: Storage) -> None:
        """As one on a disk that was away for a while."""
        assert dataset.folder is not None
        opened = shortgop.open(dataset.url)
        away = dataset.folder.rename(dataset.folder.parent / "elsewhere")
        with pytest.raises(MissingDataError, match="is no longer there"):
            frames(opened)
        away.rename(dataset.folder)
        assert read_number(opened["film.mkv"][0]) == 0


class TestInS3(Moved):
    where = "s3"
