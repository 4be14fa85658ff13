"""A dataset that lost shards: the other videos are read, and reading a lost one is an error that says what to do."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shortgop
from dataset_paths import shard_path
from dataset_places import Places, copied
from datasets import make_dataset
from shortgop.cli import app
from shortgop.errors import CorruptDataError, DatasetError, MissingDataError
from shortgop.manifests.dataset_files.layout import shard_key
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.lost import lost_shards
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from synthetic import constant_rate_pts, make_video, read_number
from web_server import web_server

REMEDY = (
    r"run `shortgop prep` on the same sources again, or `shortgop verify .* --repair SOURCES`, or copy the shard to"
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset of two videos, a shard each."""
    root = tmp_path_factory.mktemp("lost")
    for name, first in (("a.mp4", 0), ("b.mp4", 100)):
        pts = constant_rate_pts(Fraction(30), 20)
        make_video(root / name, pts=pts, timebase=Fraction(1, 30), first_number=first)
        make_dataset([root / name], root / "dataset")
    return root / "dataset"


def remove(shard: Path) -> None:
    shard.unlink()


def cut(shard: Path) -> None:
    os.truncate(shard, 100)


def lengthen(shard: Path) -> None:
    os.truncate(shard, 1_000_000)


@pytest.fixture
def dataset(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "dataset")
    return tmp_path / "dataset"


def shard_of(dataset: Path, video_id: str) -> Path:
    _, manifest = open_current(DiskStorage(dataset))
    segment = manifest.video(manifest.row_of(video_id)).first_segment
    return shard_path(dataset, manifest.shards.name.text(int(manifest.segments.shard[segment])))


@pytest.mark.parametrize("damage", [remove, cut])
def test_one_lost_shard_leaves_the_other_videos_readable(damage: Callable[[Path], None], dataset: Path) -> None:
    damage(shard_of(dataset, "b.mp4"))
    with pytest.warns(shortgop.DatasetWarning, match=f"^1 of 2 videos of {dataset} cannot be read.*{REMEDY}") as caught:
        opened = shortgop.open(dataset)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert opened.lost_ids == ("b.mp4",)
    assert [read_number(frame) for frame in opened["a.mp4"].get_frames_at([0, 19]).data] == [0, 19]
    with pytest.raises(shortgop.MissingDataError, match="b.mp4") as lost:
        opened["b.mp4"].get_frame_at(3)
    assert (lost.value.video, lost.value.file) == ("b.mp4", str(shard_of(dataset, "b.mp4")))


def assert_told(place: Storage, shard: str, expected: type[DatasetError]) -> None:
    """That the shard of b.mp4, and no other, is told to have another length."""
    _, manifest = open_current(place)
    ((row, error),) = lost_shards(place, manifest).items()
    assert (manifest.shards.name.text(row), type(error)) == (shard, expected)
    assert error.message.startswith(f"{place.place(shard_key(shard))} has ")
    assert f" bytes, the manifest says {manifest.shards.length[row]}; " in error.message


@pytest.mark.parametrize(("damage", "expected"), [(cut, MissingDataError), (lengthen, CorruptDataError)])
def test_a_store_tells_of_a_shard_of_another_length(
    damage: Callable[[Path], None], expected: type[DatasetError], dataset: Path, s3_places: Places
) -> None:
    shard = shard_of(dataset, "b.mp4")
    damage(shard)
    assert_told(copied(dataset, s3_places.new()), shard.name, expected)
    # It lists nothing, so each shard is asked for.
    with web_server(dataset, "") as server:
        assert_told(storage_at(server.root), shard.name, expected)


def test_a_shard_of_another_length_is_read_where_its_bytes_are_as_they_were(dataset: Path) -> None:
    lengthen(shard_of(dataset, "b.mp4"))
    with pytest.warns(shortgop.DatasetWarning, match="has 1000000 bytes, the manifest says"):
        opened = shortgop.open(dataset)
    assert read_number(opened["b.mp4"][3]) == 103


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(remove, shortgop.MissingDataError), (cut, shortgop.MissingDataError), (lengthen, shortgop.CorruptDataError)],
)
def test_strict_is_an_error_right_away(
    damage: Callable[[Path], None], kind: type[shortgop.DatasetError], dataset: Path
) -> None:
    shard = shard_of(dataset, "b.mp4")
    damage(shard)
    with pytest.raises(kind, match=REMEDY) as caught:
        shortgop.open(dataset, strict=True)
    assert caught.value.file == str(shard)


def test_a_whole_dataset_opens_without_a_word(dataset: Path) -> None:
    assert shortgop.open(dataset, strict=True).lost_ids == ()


@pytest.mark.long
def test_copies_and_workers_do_not_warn_again(dataset: Path) -> None:
    shard_of(dataset, "b.mp4").unlink()
    with pytest.warns(shortgop.DatasetWarning):
        opened = shortgop.open(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy = pickle.loads(pickle.dumps(opened))
        assert copy.lost_ids == ("b.mp4",)
        assert read_number(copy["a.mp4"][5]) == 5
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(_warnings_while_reading, (opened,)) == (5, [])


def _warnings_while_reading(opened: shortgop.Dataset) -> tuple[int, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        number = read_number(opened["a.mp4"][5])
    return number, [str(each.message) for each in caught if issubclass(each.category, shortgop.DatasetWarning)]


def test_info_says_what_is_lost_and_what_to_do(dataset: Path) -> None:
    shard_of(dataset, "b.mp4").unlink()
    result = CliRunner().invoke(app, ["info", str(dataset)])
    assert result.exit_code == 0
    assert "a.mp4" in result.stdout
    assert "cannot be read" in next(line for line in result.stdout.splitlines() if "b.mp4" in line)
    assert "1 of 2 videos" in result.stderr
    assert "is missing" in result.stderr
    assert "copy the shard to the dataset again" in result.stderr
    summary = json.loads(CliRunner().invoke(app, ["info", str(dataset), "--json"]).stdout)
    assert [(video["id"], video["lost"]) for video in summary["videos"]] == [("a.mp4", False), ("b.mp4", True)]
    assert "1 of 2 videos" in summary["trouble"]


def test_export_of_a_lost_video_names_it_and_the_remedy(dataset: Path, tmp_path: Path) -> None:
    shard_of(dataset, "b.mp4").unlink()
    result = CliRunner().invoke(app, ["export", str(dataset), "b.mp4", str(tmp_path / "out.mp4")])
    assert result.exit_code == 1
    assert "video 'b.mp4'" in result.stderr
    assert "is missing; run `shortgop prep` on the same sources" in result.stderr
    assert not (tmp_path / "out.mp4").exists()


def test_read_of_a_video_beside_a_lost_one_says_nothing_of_it(dataset: Path, tmp_path: Path) -> None:
    shard_of(dataset, "b.mp4").unlink()
    arguments = ["--frames", "0", "--out"]
    result = CliRunner().invoke(app, ["read", str(dataset), "a.mp4", *arguments, str(tmp_path / "a.png")])
    assert (result.exit_code, result.stderr) == (0, "")
    lost = CliRunner().invoke(app, ["read", str(dataset), "b.mp4", *arguments, str(tmp_path / "b.png")])
    assert lost.exit_code == 1
    assert "b.mp4" in lost.stderr


def test_looking_at_many_shards_takes_one_look_each(whole: Path, tmp_path: Path) -> None:
    """Twenty thousand shards are 5 TB; their names and lengths are all that is asked for."""
    import dataclasses
    import time

    from shortgop.manifests.ragged import from_texts

    _, manifest = open_current(DiskStorage(whole))
    names = [f"{number:016x}-0.shard" for number in range(20_000)]
    (tmp_path / "shards").mkdir()
    for name in names:
        (tmp_path / "shards" / name).touch()
    shards = dataclasses.replace(manifest.shards, name=from_texts(names), length=np.zeros(len(names), dtype="<i8"))
    started = time.process_time()
    assert lost_shards(DiskStorage(tmp_path), dataclasses.replace(manifest, shards=shards)) == {}
    assert time.process_time() - started < 1
