"""Datasets of an earlier version of the format stay readable, and may grow."""

from __future__ import annotations

import json
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from dataset_paths import snapshot_path
from datasets import as_folder, make_dataset
from example_manifests import drop, edit, rows
from layers_everywhere import layers_everywhere
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.dataset_files.snapshot_files import layers_below
from shortgop.manifests.dataset_files.snapshots import open_current, open_manifest
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.drop import drop as drop_videos
from shortgop.manifests.operations.lost_root import restore_root
from shortgop.manifests.records import SourceChanges
from shortgop.manifests.schema import SCHEMA, tables_of
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)


def _newer(version: int) -> list[str]:
    """The groups and arrays that a manifest of this version does not have."""
    columns = [
        f"{table}/{name}{part}/"
        for table, columns in SCHEMA.items()
        for name, column in columns.items()
        if column.since > version
        for part in ("", "_offsets")
    ]
    return columns + [f"{table}/" for table in SCHEMA.keys() - tables_of(version).keys()]


def _says(document: bytes, version: int) -> bytes:
    content: Any = json.loads(document)
    content["attributes"]["shortgop"]["format_version"] = version
    return json.dumps(content).encode()


def _as_written_by(file: Path, version: int) -> None:
    """Turn a snapshot or a part into what an earlier version wrote: without what that did not know."""
    newer = tuple(_newer(version))
    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.startswith(newer)}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, _says(data, version) if name == "zarr.json" else data)


def _as_version(dataset: Path, version: int) -> None:
    for file in (snapshot_path(dataset, "000001"), *(dataset / "parts").iterdir()):
        _as_written_by(file, version)
    (dataset / "zarr.json").write_bytes(_says((dataset / "zarr.json").read_bytes(), version))
    if version == 1:
        as_folder(dataset, "000001")


def _stated(dataset: Path) -> set[int]:
    """The versions that the files of a dataset state."""
    documents = [(dataset / "zarr.json").read_bytes()]
    for file in (*(dataset / "parts").iterdir(), *(dataset / "manifest").iterdir()):
        with zipfile.ZipFile(file) as archive:
            documents.append(archive.read("zarr.json"))
    return {json.loads(document)["attributes"]["shortgop"]["format_version"] for document in documents}


@pytest.mark.first_case_short
@pytest.mark.parametrize(("codec", "version"), [("h264", 4), ("hevc", 4), ("av1", 5)])
def test_only_av1_asks_for_readers_of_version_5(codec: str, version: int, tmp_path: Path) -> None:
    """Whoever read a dataset before goes on reading it after this shortgop added to it, relabelled it, and so on. Parts
    without videos say 4 in any dataset."""
    path = tmp_path / "dataset"
    for name in ("a.mp4", "b.mp4"):
        make_video(tmp_path / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE)
        make_dataset([tmp_path / name], path, codec=codec)
    assert _stated(path) == {version}
    assert shortgop.open(path).metadata.format_version == version
    labels = tmp_path / "labels.csv"
    labels.write_text("id,label\na.mp4,1\n")
    shortgop.annotate(path, labels)
    drop_videos(DiskStorage(path), ["b.mp4"])
    assert read_root(DiskStorage(path)).format_version == version
    assert _stated(path) == {4, version}
    (path / "zarr.json").unlink()
    restore_root(DiskStorage(path))
    assert read_root(DiskStorage(path)).format_version == version
    assert [video.id for video in shortgop.open(path)] == ["a.mp4"]


def test_a_dataset_without_videos_states_the_version_of_its_new_profile(tmp_path: Path) -> None:
    """All of its sources failed, so it may get another codec."""
    (tmp_path / "no.mp4").write_text("no video")
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(RATE, 20), timebase=1 / RATE)
    make_dataset([tmp_path / "no.mp4"], tmp_path / "dataset")
    assert read_root(DiskStorage(tmp_path / "dataset")).format_version == 4
    make_dataset([tmp_path / "a.mp4"], tmp_path / "dataset", codec="av1")
    assert read_root(DiskStorage(tmp_path / "dataset")).format_version == 5
    assert read_number(shortgop.open(tmp_path / "dataset")["a.mp4"][7]) == 7


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(RATE, 40), timebase=1 / RATE)
    make_dataset([tmp_path / "a.mp4"], tmp_path / "dataset")
    _as_version(tmp_path / "dataset", 1)
    return tmp_path / "dataset"


def test_a_dataset_of_version_1_is_read_and_what_it_did_not_know_is_unknown(version_1: Path) -> None:
    video = shortgop.open(version_1)["a.mp4"]
    assert [read_number(frame) for frame in video[::13]] == [0, 13, 26, 39]
    assert video.changes == SourceChanges(dropped=None, repeated=None)
    assert video.source_path == ""


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_dataset_of_an_earlier_version_grows_into_one_of_this(version: int, tmp_path: Path) -> None:
    path = tmp_path / "dataset"
    for name, number in (("a.mp4", 0), ("b.mp4", 100)):
        make_video(tmp_path / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=number)
    make_dataset([tmp_path / "a.mp4"], path)
    _as_version(path, version)
    before = shortgop.open(path).metadata.format_version
    make_dataset([tmp_path / "b.mp4"], path)
    dataset = shortgop.open(path)
    assert (before, dataset.metadata.format_version) == (version, 4)
    assert [read_number(dataset[name][0]) for name in ("a.mp4", "b.mp4")] == [0, 100]
    assert [Path(video.source_path).name for video in dataset] == ["" if version == 1 else "a.mp4", "b.mp4"]
    assert open_current(DiskStorage(path))[1].videos.after_edit.tolist() == [0, 0]


def test_a_snapshot_of_version_2_has_no_edits_and_takes_them(published: Path) -> None:
    _as_version(published, 2)
    assert len(open_current(DiskStorage(published))[1].edits) == 0
    write_part(DiskStorage(published), "e1", merge([edit("a", 1, label=3), drop("b", 2)]))
    publish(DiskStorage(published))
    manifest = open_current(DiskStorage(published))[1]
    assert manifest.ids == ["a", "c"]
    assert manifest.video(0).attributes == {"label": 3}


def test_a_snapshot_of_version_2_may_be_the_oldest_layer(published: Path, tmp_path: Path) -> None:
    _as_version(published, 2)
    dataset = DiskStorage(published)
    with layers_everywhere():
        write_part(dataset, "e1", merge([edit("a", 1, label=3), drop("b", 2)]))
        snapshot = publish(dataset) or ""
    assert layers_below(dataset, snapshot) == ("000001",)
    # Decoded column by column, and all at once.
    copied = open_manifest(dataset, snapshot, copies=HostCopies(tmp_path / "copies", min_bytes=0))
    assert rows(copied) == rows(open_manifest(dataset, snapshot))
    assert copied.ids == ["a", "c"]
