"""copy, merge, compact and rollback: videos are moved without being encoded, on a disk and to and from a store."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shortgop
from dataset_paths import shard_path
from dataset_places import Places, copied, names
from datasets import current_manifest, make_dataset
from shortgop.cli import app
from shortgop.errors import CorruptDataError, MissingDataError, UsageError
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.dataset_files.parts import finished_parts
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.moving import VideosInShards, sharing_videos, videos_of
from shortgop.manifests.operations.rollback import rollback
from shortgop.manifests.operations.verify import verify
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
FRAMES = 20
NAMES = ("a.mp4", "b.mp4", "c.mp4", "d.mp4")


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(NAMES):
        pts = constant_rate_pts(RATE, FRAMES)
        make_video(folder / name, pts=pts, timebase=1 / RATE, first_number=100 * number)
    (folder / "broken.mp4").write_text("not a video")
    return folder


@pytest.fixture(scope="module")
def original(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs, so two shards; labels, a video that was dropped, and a source that failed."""
    path = tmp_path_factory.mktemp("original") / "dataset"
    make_dataset([videos / "a.mp4", videos / "broken.mp4"], path)
    make_dataset([videos / "b.mp4", videos / "c.mp4"], path)
    annotate(DiskStorage(path), {"a.mp4": {"label": 3}, "b.mp4": {"label": "x"}})
    drop(DiskStorage(path), ["c.mp4"])
    return path


@pytest.fixture
def dataset(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "dataset")


def numbers_of(place: Storage) -> dict[str, tuple[Any, int]]:
    """The label of each video, and the number that its first frame shows; all frames are looked at."""
    found = {}
    for video in shortgop.open(place.url):
        numbers = [read_number(picture) for picture in video[:]]
        assert numbers == list(range(numbers[0], numbers[0] + FRAMES))
        found[video.id] = video.attributes.get("label"), numbers[0]
    return found


def current(place: Storage) -> str:
    return str(open_current(place)[0].snapshot)


def is_whole(place: Storage) -> bool:
    root, manifest = open_current(place)
    return list(verify(place, manifest, snapshot=root.snapshot)) == []


CONTENT = {"a.mp4": (3, 0), "b.mp4": ("x", 100)}


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

    def test_a_dataset_goes_back_to_a_snapshot_and_forth_again(self, place: Storage, videos: Path) -> None:
        then = current(place)
        make_dataset([videos / "d.mp4"], place)
        drop(place, ["a.mp4"])
        annotate(place, {"b.mp4": {"label": "y", "more": 1}})
        now = current(place)
        changed = numbers_of(place)
        foreseen = rollback(place, then, dry_run=True)
        done = rollback(place, then)
        assert (done.dropped, done.restored, done.relabelled) == (("d.mp4",), ("a.mp4",), ("b.mp4",))
        assert (foreseen.dropped, foreseen.restored) == (done.dropped, done.restored)
        assert foreseen.relabelled == done.relabelled
        assert numbers_of(place) == CONTENT
        assert shortgop.open(place.url)["b.mp4"].attributes == {"label": "x"}
        assert is_whole(place)
        assert rollback(place, then).dropped == ()
        rollback(place, now)
        assert numbers_of(place) == changed
        assert shortgop.open(place.url)["b.mp4"].attributes == {"label": "y", "more": 1}
        # What went with it is left out by jobs, as what was dropped.
        rollback(place, then)
        assert make_dataset([videos / "d.mp4"], place).dropped == ("d.mp4",)

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


# Going back


def test_a_source_that_was_replaced_comes_back(videos: Path, tmp_path: Path) -> None:
    place = DiskStorage(tmp_path / "dataset")
    source = tmp_path / "a.mp4"
    shutil.copy(videos / "a.mp4", source)
    make_dataset([source], tmp_path / "dataset")
    then = current(place)
    shutil.copy(videos / "d.mp4", source)
    prepare([str(source)], place, Profile(), where=Where("inline"), changed="replace")
    assert numbers_of(place) == {"a.mp4": (None, 300)}
    assert rollback(place, then).restored == ("a.mp4",)
    assert numbers_of(place) == {"a.mp4": (None, 0)}
    assert is_whole(place)


def test_a_source_that_was_replaced_and_then_dropped_comes_back_as_a_later_revision(
    videos: Path, tmp_path: Path
) -> None:
    """Later than any that copies of the dataset may have; also where other videos get back columns."""
    place = DiskStorage(tmp_path / "dataset")
    sources = [tmp_path / "a.mp4", tmp_path / "b.mp4"]
    for source in sources:
        shutil.copy(videos / source.name, source)
    make_dataset(sources, tmp_path / "dataset")
    annotate(place, {"b.mp4": {"label": 1}})
    then, content = current(place), numbers_of(place)
    for name in ("d.mp4", "b.mp4"):
        shutil.copy(videos / name, sources[0])
        prepare([str(sources[0])], place, Profile(), where=Where("inline"), changed="replace")
    replaced = current_manifest(tmp_path / "dataset").videos.revision[0]
    annotate(place, {"b.mp4": {"more": 2}})
    drop(place, ["a.mp4"])
    done = rollback(place, then)
    assert (done.restored, done.relabelled) == (("a.mp4",), ("b.mp4",))
    assert numbers_of(place) == content
    assert current_manifest(tmp_path / "dataset").videos.revision[0] > replaced
    assert is_whole(place)


def test_videos_that_moved_to_other_shards_are_as_they_were(dataset: Path) -> None:
    place, then = DiskStorage(dataset), current(DiskStorage(dataset))
    collect(place, keep_snapshots_seconds=3600)
    compact(place)
    assert rollback(place, then, dry_run=True).restored == ()


def test_a_snapshot_that_is_gone_is_named(dataset: Path) -> None:
    with pytest.raises(UsageError, match="has no snapshot '000099'; it has 000001, 000002"):
        rollback(DiskStorage(dataset), "000099")


def test_a_snapshot_is_named_by_how_far_back_it_is(dataset: Path) -> None:
    place = DiskStorage(dataset)
    then = current(place)
    annotate(place, {"b.mp4": {"label": "y"}})
    annotate(place, {"b.mp4": {"label": "z"}})
    changed = current(place)
    invoke = CliRunner().invoke
    assert f"as it was in snapshot {then}" in invoke(app, ["rollback", str(dataset), "--back", "2", "--dry-run"]).stdout
    assert current(place) == changed
    went = invoke(app, ["rollback", str(dataset), "--back", "2"])
    assert went.exit_code == 0
    assert f"as it was in snapshot {then}" in went.stdout
    assert shortgop.open(place.url)["b.mp4"].attributes == {"label": "x"}
    # That was a snapshot too.
    assert rollback(place, 1).to == changed
    assert shortgop.open(place.url)["b.mp4"].attributes == {"label": "z"}
    with pytest.raises(UsageError, match=r"has \d snapshots before the current one, 0\d+, and 99 back is none of them"):
        rollback(place, 99)
    for arguments in ([], [then, "--back", "1"]):
        refused = invoke(app, ["rollback", str(dataset), *arguments])
        assert refused.exit_code == 2
        assert "rollback takes the name of one snapshot, or --back N" in refused.stderr


def test_videos_whose_shards_are_gone_cannot_come_back(dataset: Path) -> None:
    place, then = DiskStorage(dataset), current(DiskStorage(dataset))
    drop(place, ["a.mp4"])
    named = current_manifest(dataset).shards.name.texts()
    for file in (dataset / "shards").iterdir():
        if file.name not in named:
            file.unlink()
    with pytest.raises(MissingDataError, match=f"shards of snapshot {then} of .* are gone"):
        rollback(place, then)
