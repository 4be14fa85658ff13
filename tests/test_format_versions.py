"""Datasets of an earlier version of the format stay readable, and may grow."""

from __future__ import annotations

import json
import shutil
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from datasets import as_folder, make_dataset
from shortgop.manifests.layout import open_current, part_path
from shortgop.manifests.records import SourceChanges
from shortgop.manifests.tables import SCHEMA
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
NEW_COLUMNS = [
    f"{table}/{name}{part}"
    for table, columns in SCHEMA.items()
    for name, column in columns.items()
    if column.since > 1
    for part in ("", "_offsets")
]


def _says_version_1(document: bytes) -> bytes:
    content: Any = json.loads(document)
    content["attributes"]["shortgop"]["format_version"] = 1
    return json.dumps(content).encode()


def _as_version_1(dataset: Path) -> None:
    """Turn a dataset into what the version before wrote: without the columns that it did not know."""
    snapshot = as_folder(dataset, "000001")
    for column in NEW_COLUMNS:
        shutil.rmtree(snapshot / column, ignore_errors=True)
    for file in (dataset / "zarr.json", snapshot / "zarr.json"):
        file.write_bytes(_says_version_1(file.read_bytes()))
    for part in (dataset / "parts").iterdir():
        with zipfile.ZipFile(part) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(part_path(dataset, part.stem), "w") as archive:
            for name, data in files.items():
                if not any(name.startswith(f"{column}/") for column in NEW_COLUMNS):
                    archive.writestr(name, _says_version_1(data) if name == "zarr.json" else data)


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(RATE, 40), timebase=1 / RATE)
    make_dataset([tmp_path / "a.mp4"], tmp_path / "dataset")
    _as_version_1(tmp_path / "dataset")
    return tmp_path / "dataset"


def test_a_dataset_of_version_1_is_read_and_what_it_did_not_know_is_unknown(version_1: Path) -> None:
    video = shortgop.open(version_1)["a.mp4"]
    assert [read_number(frame) for frame in video[::13]] == [0, 13, 26, 39]
    assert video.changes == SourceChanges(dropped=None, repeated=None)
    assert video.source_path == ""


def test_a_dataset_of_version_1_grows_into_one_of_version_2(version_1: Path, tmp_path: Path) -> None:
    before = shortgop.open(version_1).metadata.format_version
    make_video(tmp_path / "b.mp4", pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100)
    make_dataset([tmp_path / "b.mp4"], version_1)
    dataset = shortgop.open(version_1)
    assert (before, dataset.metadata.format_version) == (1, 2)
    assert [read_number(dataset[name][0]) for name in ("a.mp4", "b.mp4")] == [0, 100]
    assert [Path(video.source_path).name for video in dataset] == ["", "b.mp4"]
    assert len(open_current(version_1)[1].videos) == 2
