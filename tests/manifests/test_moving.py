"""copy, merge and compact: videos are moved without being encoded, on a disk and to and from a store."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from dataset_paths import shard_path
from dataset_places import Places, copied, names
from datasets import current_manifest, make_dataset
from moved_datasets import CONTENT, current, is_whole, make_original, make_sources, numbers_of
from shortgop.errors import CorruptDataError, MissingDataError, UsageError
from shortgop.manifests.dataset_files.parts import finished_parts
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.moving import VideosInShards, sharing_videos, videos_of
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from sweep import only_in_a_sweep
from synthetic import read_number


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sources(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="module")
def original(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_original(videos, tmp_path_factory.mktemp("original") / "dataset")


@pytest.fixture
def dataset(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "dataset")


class Copying:
    """What holds wherever a copy lies."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> Storage:
        raise NotImplementedError

    def test_a_copy_has_the_frames_the_labels_and_nothing_of_what_was_dropped(
        self, original: Path, target: Storage
    ) -> None:
        done = copy_videos([DiskStorage(original)], target)
        assert (done.ids, done.already) == (("a.mp4", "b.mp4"), ())
        assert numbers_of(target) == CONTENT
        assert is_whole(target)
        copied, manifest = open_current(target)[1], current_manifest(original)
        assert copied.gops.crc32.tolist() == manifest.gops.crc32.tolist()
        assert copied.failures.id.texts() == ["broken.mp4"]
        assert copied.drops.id.texts() == ["c.mp4"]
        # One small shard instead of two, without the bytes of what was dropped.
        assert copied.shards.length.tolist() == [done.num_bytes]
        assert done.num_bytes < int(manifest.shards.length.sum())
        times = [shortgop.open(place)["b.mp4"].source_pts([0, 7]).tolist() for place in (original, target.url)]
        assert times[0] == times[1]

    def test_a_copy_again_brings_what_is_new(self, dataset: Path, videos: Path, target: Storage) -> None:
        copy_videos([DiskStorage(dataset)], target)
        assert copy_videos([DiskStorage(dataset)], target).ids == ()
        make_dataset([videos / "d.mp4"], dataset)
        done = copy_videos([DiskStorage(dataset)], target)
        assert (done.ids, done.already) == (("d.mp4",), ("a.mp4", "b.mp4"))
        assert numbers_of(target) == {**CONTENT, "d.mp4": (None, 300)}
        assert is_whole(target)

    def test_a_copy_of_the_copy_is_the_same_and_jobs_go_on_with_it(
        self, original: Path, videos: Path, target: Storage, tmp_path: Path
    ) -> None:
        copy_videos([DiskStorage(original)], target)
        back = DiskStorage(tmp_path / "back")
        copy_videos([target], back)
        assert numbers_of(back) == CONTENT
        report = make_dataset([videos / "a.mp4", videos / "c.mp4", videos / "d.mp4"], tmp_path / "back")
        assert (report.already_there, report.videos_added, report.dropped) == (1, 1, ("c.mp4",))

    def test_damage_is_noticed_and_a_copy_goes_on_when_it_is_mended(
        self, dataset: Path, videos: Path, target: Storage
    ) -> None:
        manifest = current_manifest(dataset)
        shard = shard_path(dataset, manifest.shards.name.text(1))
        good = shard.read_bytes()
        middle = int(manifest.gops.offset[manifest.first_gops[1]]) + 500
        shard.write_bytes(good[:middle] + bytes(100) + good[middle + 100 :])
        with pytest.raises(CorruptDataError, match="CRC-32 differs"):
            copy_videos([DiskStorage(dataset)], target)
        shard.write_bytes(good)
        copy_videos([DiskStorage(dataset)], target)
        assert numbers_of(target) == CONTENT
        assert is_whole(target)


class TestCopyingToADisk(Copying):
    @pytest.fixture
    def target(self, tmp_path: Path) -> Storage:
        return DiskStorage(tmp_path / "target")


class TestCopyingToS3(Copying):
    @pytest.fixture
    def target(self, s3_url: str) -> Storage:
        return storage_at(s3_url)


# What holds wherever the datasets lie


class Moving:
    where: str

    @pytest.fixture
    def place(self, original: Path, places: Places) -> Storage:
        return copied(original, places.new())

    def test_datasets_become_one(self, place: Storage, videos: Path, places: Places) -> None:
        other, target = places.new(), places.new()
        make_dataset([videos / "d.mp4"], other)
        annotate(other, {"d.mp4": {"label": 9}})
        done = copy_videos([place, other], target)
        assert done.ids == ("a.mp4", "b.mp4", "d.mp4")
        assert numbers_of(target) == {**CONTENT, "d.mp4": (9, 300)}
        assert is_whole(target)

    def test_small_shards_become_one_and_videos_keep_their_bytes(self, place: Storage) -> None:
        before = current_manifest(place)
        reader = shortgop.open(place.url)
        foreseen = compact(place, dry_run=True)
        done = compact(place)
        assert (done.shards, done.new_shards) == (foreseen.shards, foreseen.new_shards) == (2, 1)
        after = current_manifest(place)
        assert len(after.shards) == 1
        assert after.gops.crc32.tolist() == before.gops.crc32.tolist()
        assert numbers_of(place) == CONTENT
        assert is_whole(place)
        # A reader of the snapshot before goes on, until that is removed.
        assert read_number(reader["a.mp4"][3]) == 3
        assert compact(place).shards == 0
        collect(place)
        assert names(place, "shards") == set(after.shards.name.texts())

    def test_a_dataset_is_copied_within_a_store(self, place: Storage, places: Places) -> None:
        target = places.new()
        copy_videos([place], target)
        assert numbers_of(target) == CONTENT
        parts, snapshot = finished_parts(target), current(target)
        assert copy_videos([place], target).ids == ()
        assert (finished_parts(target), current(target)) == (parts, snapshot)
        assert is_whole(target)


class TestMovingOnADisk(Moving):
    where = "disk"


class TestMovingInS3(Moving):
    where = "s3"


# It is the same store.
@only_in_a_sweep
class TestMovingOverAFlakyNetwork(Moving):
    where = "flaky"


# Merging datasets


def test_what_one_dataset_dropped_and_another_has_is_there(original: Path, videos: Path, tmp_path: Path) -> None:
    make_dataset([videos / "c.mp4"], tmp_path / "other")
    target = DiskStorage(tmp_path / "both")
    copy_videos([DiskStorage(original), DiskStorage(tmp_path / "other")], target)
    assert numbers_of(target) == {**CONTENT, "c.mp4": (None, 200)}


def test_an_id_that_means_two_videos_is_refused_before_anything_is_written(
    original: Path, videos: Path, tmp_path: Path
) -> None:
    (tmp_path / "others").mkdir()
    shutil.copy(videos / "d.mp4", tmp_path / "others" / "a.mp4")
    make_dataset([tmp_path / "others" / "a.mp4"], tmp_path / "other")
    target = DiskStorage(tmp_path / "both")
    with pytest.raises(UsageError, match=r"1 id means two videos: 'a\.mp4' of .*original.* and of .*other; drop one"):
        copy_videos([DiskStorage(original), DiskStorage(tmp_path / "other")], target)
    assert not list(target.files("shards"))


def test_other_profiles_are_refused(original: Path, videos: Path, tmp_path: Path) -> None:
    make_dataset([videos / "d.mp4"], tmp_path / "other", gop_frames=8)
    with pytest.raises(UsageError, match=r"prepared with other options \(gop_frames 16 and 8\)"):
        copy_videos([DiskStorage(original), DiskStorage(tmp_path / "other")], DiskStorage(tmp_path / "both"))


def test_a_dataset_is_not_copied_into_itself(original: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(original)
    for inside in (original / "copy", original / "shards" / "copy", tmp_path / "link" / "copy"):
        with pytest.raises(UsageError, match="lies inside the dataset .*; name a place that is not inside it"):
            copy_videos([DiskStorage(original)], DiskStorage(inside))
        assert not inside.exists()
    # Places whose names begin like the dataset's are others.
    first = DiskStorage(tmp_path / "copy")
    assert copy_videos([DiskStorage(original)], first).ids
    for beside in (f"{first}-again", f"{first}/../once-more"):
        assert copy_videos([first], DiskStorage(beside)).ids


def test_a_dataset_with_lost_shards_is_not_copied(dataset: Path, tmp_path: Path) -> None:
    next((dataset / "shards").iterdir()).unlink()
    with pytest.raises(MissingDataError, match="cannot be read, or only in part"):
        copy_videos([DiskStorage(dataset)], DiskStorage(tmp_path / "copy"))


# Compacting


def test_shards_that_are_long_enough_stay(dataset: Path) -> None:
    before = current_manifest(dataset).shards.name.texts()
    assert compact(DiskStorage(dataset), shard_bytes=1000).shards == 0
    assert current_manifest(dataset).shards.name.texts() == before


@given(st.dictionaries(st.integers(0, 30), st.lists(st.integers(0, 30), min_size=1, max_size=4)))
def test_shards_that_share_videos_are_together(shards_of: dict[int, list[int]]) -> None:
    pairs = sorted({(video, shard) for video, its in shards_of.items() for shard in its})
    lying = VideosInShards(*np.array(pairs, np.int64).reshape(-1, 2).T)
    groups = sharing_videos(lying)
    assert groups == sorted(map(sorted, groups))
    assert [each.tolist() for each in videos_of(groups, lying)] == [
        sorted(video for video, its in shards_of.items() if set(its) & set(group)) for group in groups
    ]
    assert sorted(shard for group in groups for shard in group) == sorted(
        {s for its in shards_of.values() for s in its}
    )
    where = {shard: number for number, group in enumerate(groups) for shard in group}
    assert all(len({where[shard] for shard in shards}) == 1 for shards in shards_of.values())
    # And no others: each two shards of a group are linked by videos.
    for group in groups:
        reached, more = set[int](), {group[0]}
        while more - reached:
            reached |= more
            more = {shard for its in shards_of.values() if reached & set(its) for shard in its}
        assert reached == set(group)
