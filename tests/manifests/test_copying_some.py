"""Some videos of a dataset are copied: what else comes along, what is refused, and how long the new shards become."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from dataset_paths import shard_path
from datasets import current_manifest, make_dataset
from example_manifests import video
from moved_datasets import is_whole, make_original, make_sources, numbers_of
from shortgop.cli.app import app
from shortgop.errors import MissingDataError, UsageError
from shortgop.manifests.dataset_files.parts import finished_parts
from shortgop.manifests.dataset_files.root_file import read_root, set_profile
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.stored_bytes import live_bytes
from shortgop.storage.disk import DiskStorage


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sources(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="module")
def original(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.mp4 lies in one shard and b.mp4 in another one; c.mp4 was dropped, and broken.mp4 is a failure."""
    return make_original(videos, tmp_path_factory.mktemp("original") / "dataset")


@pytest.fixture
def dataset(original: Path, tmp_path: Path) -> DiskStorage:
    return DiskStorage(shutil.copytree(original, tmp_path / "dataset"))


@pytest.fixture
def target(tmp_path: Path) -> DiskStorage:
    return DiskStorage(tmp_path / "target")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


A = {"a.mp4": (3, 0)}


# What comes along


def test_what_was_dropped_stays_out_of_the_target_also_if_others_were_asked_for(
    dataset: DiskStorage, videos: Path, target: DiskStorage
) -> None:
    collect(dataset)
    copy_videos([dataset], target, ids=["a.mp4"])
    report = make_dataset([videos / "a.mp4", videos / "c.mp4"], target)
    assert (report.dropped, report.videos_added) == (("c.mp4",), 0)
    assert numbers_of(target) == A
    assert is_whole(target)
    # It comes along once.
    parts = finished_parts(target)
    copy_videos([dataset], target, ids=["a.mp4"])
    assert finished_parts(target) == parts


@pytest.mark.parametrize(("ids", "failures"), [(["a.mp4"], []), (["a.mp4", "broken.mp4"], ["broken.mp4"])])
def test_of_failures_those_come_that_were_asked_for(
    dataset: DiskStorage, target: DiskStorage, ids: list[str], failures: list[str]
) -> None:
    copy_videos([dataset], target, ids=ids)
    assert current_manifest(target).failures.id.texts() == failures


@pytest.mark.parametrize("word", ["c.mp4", "c*", "broken.mp4", "br*"])
def test_what_was_dropped_or_not_prepared_is_known(dataset: DiskStorage, target: DiskStorage, word: str) -> None:
    video_id = "c.mp4" if word[0] == "c" else "broken.mp4"
    done = copy_videos([dataset], target, patterns=[word])
    assert (done.ids, done.without_video, done.unknown) == ((), (video_id,), ())
    result = run("copy", dataset, target, "--videos", word)
    assert result.exit_code == 0
    assert f"1 id has no video in {dataset}, dropped or not prepared: {video_id}\n" in result.stderr


def test_what_others_were_dropped_in_the_source_is_not_told(dataset: DiskStorage, target: DiskStorage) -> None:
    copy_videos([dataset], target)
    drop(dataset, ["b.mp4"])
    assert copy_videos([dataset], target, ids=["a.mp4"]).dropped_in_source == ()
    assert copy_videos([dataset], target, ids=["a.mp4", "b.mp4"]).dropped_in_source == ("b.mp4",)


def test_no_ids_are_no_videos(dataset: DiskStorage, target: DiskStorage) -> None:
    assert copy_videos([dataset], target, ids=[]).ids == ()
    assert copy_videos([dataset], target).ids == ("a.mp4", "b.mp4")


# What is refused


@pytest.mark.parametrize("there", [False, True])
def test_ids_none_of_which_is_known_leave_the_target_as_it_is(
    dataset: DiskStorage, target: DiskStorage, there: bool
) -> None:
    if there:
        copy_videos([dataset], target, ids=["b.mp4"])
    before = sorted(target.folder.rglob("*"))
    message = r"none of 2 ids, the first 'a\.mpg', is in the dataset; `shortgop info .*` .* mean 'a\.mp4'"
    with pytest.raises(UsageError, match=message):
        copy_videos([dataset], target, ids=["a.mpg"], patterns=["x/*"])
    result = run("copy", dataset, target, "--videos", "a.mpg")
    assert result.exit_code == 2
    assert "'a.mpg' is not in the dataset; " in result.stderr
    assert sorted(target.folder.rglob("*")) == before
    assert target.folder.exists() == there


def test_the_pattern_for_a_folder_is_told(videos: Path, target: DiskStorage, tmp_path: Path) -> None:
    (tmp_path / "sources" / "kitchen").mkdir(parents=True)
    for name in ("a.mp4", "b.mp4"):
        shutil.copy(videos / name, tmp_path / "sources" / "kitchen")
    make_dataset([tmp_path / "sources"], tmp_path / "kitchens")
    hint = "; 'kitchen/**' stands for those below kitchen. Did you mean"
    result = run("copy", tmp_path / "kitchens", target, "--videos", "kitchen")
    assert result.exit_code == 2
    assert hint in result.stderr
    result = run("copy", tmp_path / "kitchens", target, "--videos", "kitchen", "--videos", "kitchen/a.mp4")
    assert result.exit_code == 3
    assert hint in result.stderr


def test_lost_shards_of_other_videos_do_not_matter(dataset: DiskStorage, target: DiskStorage) -> None:
    manifest = current_manifest(dataset)
    shard = manifest.shards.name.text(int(manifest.segments.shard[manifest.first_segments[1]]))
    shard_path(dataset.folder, shard).unlink()
    with pytest.raises(MissingDataError, match="1 of 2 videos .*cannot be read, or only in part"):
        copy_videos([dataset], target, ids=["b.mp4"])
    assert not target.folder.exists()
    copy_videos([dataset], target, ids=["a.mp4"])
    assert numbers_of(target) == A


# How much is put together


def test_new_shards_become_as_long_as_shards_of_the_profile(videos: Path, target: DiskStorage, tmp_path: Path) -> None:
    """Both shards are full, and one of the two videos of each is copied."""
    dataset = DiskStorage(tmp_path / "dataset")
    make_dataset([videos / "a.mp4", videos / "b.mp4"], dataset)
    make_dataset([videos / "c.mp4", videos / "d.mp4"], dataset)
    lengths = current_manifest(dataset).shards.length.tolist()
    set_profile(dataset, read_root(dataset).profile | {"shard_bytes": max(lengths)})
    copy_videos([dataset], target, ids=["a.mp4", "c.mp4"])
    assert len(lengths) == 2
    assert len(current_manifest(target).shards) == 1
    assert numbers_of(target) == {"a.mp4": (None, 0), "c.mp4": (None, 200)}


def test_bytes_of_shards_are_counted_for_some_videos() -> None:
    manifest = merge([video("a"), video("b", offset=5000), video("c", shard="unit-1.shard", frames=4)])
    of_each = [live_bytes(manifest, np.arange(3) == row).tolist() for row in range(3)]
    assert of_each == [[3200, 0], [3200, 0], [0, 1100]]
    assert live_bytes(manifest).tolist() == [6400, 1100]
