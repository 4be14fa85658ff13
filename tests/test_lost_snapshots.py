"""A snapshot that is lost or damaged is made again of the parts, as the error and docs/format.md say."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset, rows_of
from shortgop.errors import DatasetError
from shortgop.jobs.labels import annotate
from shortgop.manifests.dataset_files.layout import read_root
from shortgop.manifests.operations.drop import drop
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video


@pytest.mark.parametrize("is_damaged", [False, True], ids=["lost", "damaged"])
def test_a_lost_snapshot_is_made_of_the_parts_and_nothing_is_encoded(is_damaged: bool, tmp_path: Path) -> None:
    sources, dataset = tmp_path / "sources", tmp_path / "dataset"
    sources.mkdir()
    for name in ("a", "b", "c"):
        make_video(sources / f"{name}.mp4", pts=constant_rate_pts(Fraction(30), 8), timebase=Fraction(1, 30))
    make_dataset([sources], dataset)
    annotate(dataset, {"a.mp4": {"label": 3}})
    drop(DiskStorage(dataset), ["b.mp4"])
    before = rows_of(dataset)
    current = dataset / f"manifest/{read_root(DiskStorage(dataset)).snapshot}.zip"
    if is_damaged:
        current.write_bytes(current.read_bytes()[:100])
    else:
        current.unlink()

    with pytest.raises(
        DatasetError, match="move the dataset's folder `manifest` away, set `snapshot` in its zarr.json"
    ):
        make_dataset([sources], dataset)
    (dataset / "manifest").rename(tmp_path / "away")
    root = json.loads((dataset / "zarr.json").read_text())
    root["attributes"]["shortgop"]["snapshot"] = None
    (dataset / "zarr.json").write_text(json.dumps(root))

    report = make_dataset([sources], dataset)
    assert report.frames_added == 0
    assert shortgop.open(dataset).ids == ["a.mp4", "c.mp4"]
    assert rows_of(dataset) == before
