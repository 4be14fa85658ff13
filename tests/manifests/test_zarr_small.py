"""A small manifest is written without zarr, and has the very files that zarr writes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from example_manifests import failure, video
from shortgop.manifests.label_columns import LabelColumn
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.parsed_columns import derived_columns
from shortgop.manifests.ragged import Array, from_texts
from shortgop.manifests.tables import Manifest, empty
from shortgop.manifests.zarr_files import zarr_sizes
from shortgop.manifests.zarr_files.zarr_small import is_small, small_files
from shortgop.manifests.zarr_files.zarr_write import write_manifest
from sweep import SWEEP

Labels = Mapping[str, LabelColumn] | None


def files_by_zarr(manifest: Manifest, timeline: list[Array] | None = None, labels: Labels = None) -> dict[str, bytes]:
    files: dict[str, Any] = {}
    write_manifest(MemoryStore(files), manifest, {"parts": ["u1", "ü2"], "none": None}, timeline, labels)
    return {name: data.to_bytes() for name, data in files.items()}


def files_without_zarr(
    manifest: Manifest, timeline: list[Array] | None = None, labels: Labels = None
) -> dict[str, bytes]:
    return small_files(manifest, {"parts": ["u1", "ü2"], "none": None}, timeline, labels)


@pytest.mark.long
@settings(max_examples=30 if SWEEP else 12)
@given(
    frames=st.lists(st.integers(1, 70), min_size=0, max_size=4),
    failures=st.lists(st.text(max_size=9), max_size=2),
)
def test_the_files_are_those_of_zarr(frames: list[int], failures: list[str]) -> None:
    videos = [video(f"v{number}", shard=f"{number}.shard", frames=count) for number, count in enumerate(frames)]
    manifest = merge([*videos, *(failure(f"f{number}", reason) for number, reason in enumerate(failures))])
    assert files_without_zarr(manifest) == files_by_zarr(manifest)


def test_of_no_rows_as_well() -> None:
    assert files_without_zarr(empty()) == files_by_zarr(empty())


def test_a_timeline_may_come_in_blocks() -> None:
    manifest = video("a", frames=20)
    assert manifest.timeline is not None
    pts = manifest.timeline.pts
    assert files_without_zarr(replace(manifest, timeline=None), [pts[:7], pts[7:]]) == files_by_zarr(manifest)


@pytest.mark.parametrize(
    "texts", [[], ["{}"], ['{"a": 1, "b/ü": "text", "c": null}', '{"c": [1], "d": 0.5, "e": true}']]
)
def test_label_columns_too(texts: list[str]) -> None:
    labels = derived_columns(from_texts(texts))
    files = files_without_zarr(empty(), labels=labels)
    assert files == files_by_zarr(empty(), labels=labels)
    assert files.keys() - files_without_zarr(empty()).keys() >= {"columns/zarr.json"}


def test_what_is_larger_than_a_chunk_is_not_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_sizes, "CHUNK_ROWS", 200)
    manifest = video("a", frames=200)
    # The rows of a timeline count, whether the manifest holds them or not.
    for each in (manifest, replace(manifest, timeline=None)):
        assert is_small(each)
    for frames in (201, 500):
        assert not is_small(replace(video("a", frames=frames), timeline=None))
    assert not is_small(failure("f", "x" * 201))
    assert not is_small(manifest, derived_columns(from_texts([f'{{"a": "{"x" * 201}"}}'])))


def test_a_small_dataset_is_published_without_importing_zarr(tmp_path: Path) -> None:
    code = f"""
import sys
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.tables import empty
from shortgop.storage.disk import DiskStorage
dataset = DiskStorage({str(tmp_path / "d")!r})
create(dataset, {{}})
write_part(dataset, "u1", empty())
assert publish(dataset) == "000001"
assert "zarr" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
