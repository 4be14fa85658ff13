"""copy and merge into a dataset that has videos already: what was dropped, replaced or labelled since."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from datasets import make_dataset
from moved_datasets import FRAMES, RATE, is_whole, numbers_of
from shortgop.cli.app import app
from shortgop.errors import UsageError
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.dataset_files.parts import finished_parts
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(("a.mp4", "b.mp4", "new.mp4", "newer.mp4")):
        pts = constant_rate_pts(RATE, FRAMES)
        make_video(folder / name, pts=pts, timebase=1 / RATE, first_number=100 * number)
    return folder


@pytest.fixture(scope="module")
def _datasets(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two videos, and a copy of it."""
    root = tmp_path_factory.mktemp("datasets")
    make_dataset([videos / name for name in ("a.mp4", "b.mp4")], root / "dataset")
    annotate(DiskStorage(root / "dataset"), {"b.mp4": {"label": 1}})
    copy_videos([DiskStorage(root / "dataset")], DiskStorage(root / "target"))
    return root


@pytest.fixture
def root(_datasets: Path, tmp_path: Path) -> Path:
    return shutil.copytree(_datasets, tmp_path / "root")


@pytest.fixture
def dataset(root: Path) -> DiskStorage:
    return DiskStorage(root / "dataset")


@pytest.fixture
def target(root: Path) -> DiskStorage:
    return DiskStorage(root / "target")


def content(place: DiskStorage) -> dict[str, tuple[Any, int]]:
    """The label of each video, and the number that its frames show first; all frames are looked at."""
    found = numbers_of(place)
    assert is_whole(place)
    return found


A, B = {"a.mp4": (None, 0)}, {"b.mp4": (1, 100)}


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result


def replace_source(root: Path, dataset: DiskStorage, video: Path) -> None:
    """The source of a.mp4 becomes another video, and the dataset's video is made again."""
    (root / "list.csv").write_text(f"id,path\na.mp4,{video}\n")
    prepare([str(root / "list.csv")], dataset, Profile(), where=Where("inline"), changed="replace")


# Dropped in the target


def test_what_was_dropped_in_the_target_stays_out_and_is_named(dataset: DiskStorage, target: DiskStorage) -> None:
    drop(target, ["b.mp4"])
    parts = finished_parts(target)
    done = copy_videos([dataset], target)
    assert (done.ids, done.already, done.dropped, done.num_bytes) == ((), ("a.mp4",), ("b.mp4",), 0)
    assert content(target) == A
    assert finished_parts(target) == parts
    said = run("copy", dataset, target)
    assert f"1 video left out because it was dropped in {target}: b.mp4; --include-dropped takes" in said.stderr
    assert "0 videos, 0 B copied" in said.stdout
    assert json.loads(run("merge", dataset, "--out", target, "--json").stdout)["dropped"] == ["b.mp4"]


@pytest.mark.first_case_short
@pytest.mark.parametrize("cleaned", [False, True])
def test_it_comes_again_on_request_as_often_as_it_was_dropped(
    dataset: DiskStorage, target: DiskStorage, cleaned: bool
) -> None:
    for _ in range(2):
        drop(target, ["b.mp4"])
        if cleaned:
            collect(target)
        done = copy_videos([dataset], target, include_dropped=True)
        assert (done.ids, done.already, done.dropped) == (("b.mp4",), ("a.mp4",), ())
        assert done.num_bytes > 0
        assert content(target) == {**A, **B}
    assert copy_videos([dataset], target).dropped == ()
    drop(target, ["b.mp4"])
    assert "1 video, " in run("copy", dataset, target, "--include-dropped").stdout
    drop(target, ["b.mp4"])
    assert json.loads(run("merge", dataset, "--out", target, "--include-dropped", "--json").stdout)["ids"] == ["b.mp4"]
    assert content(target) == {**A, **B}


# Dropped in the source


def test_what_was_dropped_in_the_source_stays_in_the_target_and_is_named(
    dataset: DiskStorage, target: DiskStorage
) -> None:
    drop(dataset, ["b.mp4"])
    done = copy_videos([dataset], target)
    assert (done.already, done.dropped_in_source) == (("a.mp4",), ("b.mp4",))
    assert content(target) == {**A, **B}
    said = run("copy", dataset, target).stderr
    assert f"1 video of {target} was dropped in {dataset}: b.mp4; `shortgop drop {target} ID ...` takes" in said
    run("drop", target, "b.mp4")
    assert copy_videos([dataset], target).dropped_in_source == ()


def test_what_one_source_dropped_and_another_has_is_not_named(
    root: Path, dataset: DiskStorage, target: DiskStorage
) -> None:
    other = DiskStorage(shutil.copytree(root / "dataset", root / "other"))
    drop(dataset, ["b.mp4"])
    assert copy_videos([dataset, other], target).dropped_in_source == ()


def test_a_drop_comes_along_once(root: Path, dataset: DiskStorage) -> None:
    drop(dataset, ["b.mp4"])
    new = DiskStorage(root / "new")
    snapshot = copy_videos([dataset], new).snapshot
    assert copy_videos([dataset], new).snapshot == snapshot


# Replaced in the source


def test_a_video_that_was_made_again_takes_the_place_of_its_earlier_revision(
    root: Path, videos: Path, dataset: DiskStorage, target: DiskStorage
) -> None:
    # Columns of the earlier video do not become those of the later one.
    annotate(target, {"a.mp4": {"label": "old"}})
    replace_source(root, dataset, videos / "new.mp4")
    done = copy_videos([dataset], target, update=True)
    assert (done.ids, done.replaced, done.already) == (("a.mp4",), ("a.mp4",), ("b.mp4",))
    assert content(target) == {"a.mp4": (None, 200), **B}
    assert copy_videos([dataset], target, update=True).already == ("a.mp4", "b.mp4")
    replace_source(root, dataset, videos / "newer.mp4")
    assert "copied to" in (said := run("copy", dataset, target).stdout)
    assert "1 of them in place of an earlier revision" in said
    assert content(target) == {"a.mp4": (None, 300), **B}


def test_it_stays_an_error_to_merge_it(root: Path, videos: Path, dataset: DiskStorage, target: DiskStorage) -> None:
    replace_source(root, dataset, videos / "new.mp4")
    result = CliRunner().invoke(app, ["merge", str(dataset), "--out", str(target)])
    assert result.exit_code != 0
    assert "1 id means two videos" in result.stderr
    assert content(target) == {**A, **B}


def test_other_frames_without_a_greater_revision_are_an_error_and_its_remedy_works(
    root: Path, videos: Path, dataset: DiskStorage, target: DiskStorage
) -> None:
    replace_source(root, target, videos / "new.mp4")
    with pytest.raises(UsageError, match=rf"1 id means two videos.*`shortgop drop {target} a\.mp4` and then the same"):
        copy_videos([dataset], target, update=True)
    assert content(target) == {"a.mp4": (None, 200), **B}
    run("drop", target, "a.mp4")
    run("copy", dataset, target, "--include-dropped")
    assert content(target) == {**A, **B}


def test_a_replaced_video_that_the_target_dropped_stays_out(
    root: Path, videos: Path, dataset: DiskStorage, target: DiskStorage
) -> None:
    drop(target, ["a.mp4"])
    replace_source(root, dataset, videos / "new.mp4")
    assert copy_videos([dataset], target, update=True).dropped == ("a.mp4",)
    assert content(target) == B
    assert copy_videos([dataset], target, update=True, include_dropped=True).ids == ("a.mp4",)
    assert content(target) == {"a.mp4": (None, 200), **B}


# The rest


def test_a_dataset_that_is_named_twice_counts_once(root: Path, dataset: DiskStorage) -> None:
    new = DiskStorage(root / "new")
    done = copy_videos([dataset, DiskStorage(root / "dataset")], new)
    assert (done.ids, done.already) == (("a.mp4", "b.mp4"), ())
    assert copy_videos([dataset, dataset], new).already == ("a.mp4", "b.mp4")


def test_columns_that_differ_stay_and_are_named(dataset: DiskStorage, target: DiskStorage) -> None:
    assert copy_videos([dataset], target).other_columns == ()
    annotate(dataset, {"a.mp4": {"label": 7}, "b.mp4": {"label": "1"}})
    done = copy_videos([dataset], target)
    assert (done.already, done.other_columns) == (("a.mp4", "b.mp4"), ("a.mp4", "b.mp4"))
    assert content(target) == {**A, **B}
    said = run("copy", dataset, target).stderr
    assert f"columns of 2 videos differ from {dataset} and stay as they are: a.mp4, b.mp4" in said
    annotate(target, {"a.mp4": {"label": 7}, "b.mp4": {"label": "1"}})
    assert copy_videos([dataset], target).other_columns == ()


# Some of the videos


def test_some_videos_are_copied_by_ids_and_patterns(videos: Path, dataset: DiskStorage, tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_text("not a video")
    make_dataset([videos / "new.mp4", videos / "newer.mp4", tmp_path / "broken.mp4"], dataset.folder)
    drop(dataset, ["newer.mp4"])
    some = DiskStorage(tmp_path / "some")
    (tmp_path / "ids.txt").write_text("b.mp4\n")
    command = ["copy", dataset, some, "--from", tmp_path / "ids.txt", "--videos", "n*.mp4"]
    assert "2 videos, " in run(*command).stdout
    assert content(some) == {**B, "new.mp4": (None, 200)}
    assert "0 videos, 0 B copied" in run(*command).stdout
    # They come without the failures of others, which come with all the rest.
    _, manifest = open_current(some)
    assert (len(manifest.failures), len(manifest.drops)) == (0, 1)
    copy_videos([dataset], some)
    assert content(some) == {**A, **B, "new.mp4": (None, 200)}
    _, manifest = open_current(some)
    assert (len(manifest.failures), len(manifest.drops)) == (1, 1)


def test_of_some_videos_what_the_dataset_does_not_have_is_named(dataset: DiskStorage, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("*.mp4\nb.mp3\na.mp4\n")
    command = ["copy", str(dataset), str(tmp_path / "some"), "--from", str(tmp_path / "ids.txt"), "--videos", "x/*"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 3
    assert "3 ids not in the dataset: *.mp4, b.mp3, x/*; " in result.stderr
    assert content(DiskStorage(tmp_path / "some")) == A
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["unknown"] == ["*.mp4", "b.mp3", "x/*"]
    (tmp_path / "ids.txt").write_text("\n")
    result = CliRunner().invoke(app, ["copy", str(dataset), str(tmp_path / "all"), "--from", str(tmp_path / "ids.txt")])
    assert result.exit_code == 2
    assert "ids.txt has no ids; give a text file with an id on each line" in result.stderr
    assert not (tmp_path / "all").exists()


def test_of_some_videos_another_one_of_the_target_is_replaced_or_stays(
    videos: Path, root: Path, dataset: DiskStorage, target: DiskStorage
) -> None:
    replace_source(root, dataset, videos / "new.mp4")
    annotate(dataset, {"b.mp4": {"label": 2}})
    done = copy_videos([dataset], target, ids=["b.mp4"], update=True)
    assert (done.ids, done.already, done.other_columns) == ((), ("b.mp4",), ("b.mp4",))
    assert content(target) == {**A, **B}
    done = copy_videos([dataset], target, ids=["a.mp4"], update=True)
    assert (done.ids, done.replaced, done.already, done.other_columns) == (("a.mp4",), ("a.mp4",), (), ())
    assert content(target) == {"a.mp4": (None, 200), **B}
