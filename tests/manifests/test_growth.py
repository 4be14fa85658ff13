"""Writing all layers of a dataset as one again takes memory for what came, and hardly for what is there."""

from __future__ import annotations

import shutil
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from scale_data import made_up, numbered

from shortgop.manifests import parsed_columns
from shortgop.manifests.dataset_files import publish as publish_module
from shortgop.manifests.dataset_files.layout import snapshots
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshot_columns import open_own_columns
from shortgop.manifests.dataset_files.snapshot_files import layers_below
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.manifests.layering import layers, row_runs
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.ragged import Array
from shortgop.manifests.shared_memory import scratch_arrays
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.manifests.shared_memory.mapped_tables import arrays_of
from shortgop.manifests.tables import Manifest, Timeline
from shortgop.manifests.zarr_files import zarr_sizes
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage

pytestmark = pytest.mark.long


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets of some thousand videos have layers, and are long beside a block."""
    monkeypatch.setattr(layers, "MIN_ROWS", 1)
    # The chunks of what is read.
    monkeypatch.setattr(row_runs, "BLOCK_ROWS", 1 << 14)
    monkeypatch.setattr(parsed_columns, "PARSED_ROWS", 1 << 10)
    monkeypatch.setattr(scratch_arrays, "_MIN_BYTES", 1)
    monkeypatch.setattr(zarr_sizes, "CHUNK_ROWS", 1 << 14)
    monkeypatch.setattr(zarr_sizes, "SHARD_CHUNKS", 1 << 3)
    monkeypatch.setattr(zarr_sizes, "BLOCK_ROWS", 1 << 17)


def with_timeline(rows: Manifest) -> Manifest:
    return replace(rows, timeline=Timeline(pts=512 * np.arange(int(rows.first_frames[-1]), dtype="<i8")))


def between(numbers: Array) -> Manifest:
    """Videos whose ids come right after those of these numbers."""
    rows = made_up(numbers, name="between")
    return with_timeline(replace(rows, videos=replace(rows.videos, id=numbered("", numbers, ".mp4x"))))


def in_layers(path: Path, num_videos: int) -> tuple[Storage, list[Manifest]]:
    """A dataset of so many videos, with one in a hundred more in a layer on top; and what it was made of."""
    dataset = DiskStorage(path)
    create(dataset, {})
    parts = [merge([with_timeline(made_up(np.arange(num_videos)))]), between(np.arange(3, num_videos, 100))]
    for number, part in enumerate(parts):
        write_part(dataset, f"{number:016x}", part)
        publish(dataset)
    assert layers_below(dataset, "000002") == ("000001",)
    return dataset, parts


def peak_of_writing(dataset: Storage) -> int:
    """The most bytes that Python and numpy take while a snapshot is written whole."""
    tracemalloc.start()
    try:
        publish(dataset, whole=True)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("small_blocks")
def test_merging_all_layers_takes_little_memory_for_each_row(tmp_path: Path) -> None:
    (small, _), (large, _) = in_layers(tmp_path / "small", 2_000), in_layers(tmp_path / "large", 10_000)
    # Whatever is loaded once.
    publish(in_layers(tmp_path / "first", 100)[0], whole=True)
    grew = peak_of_writing(large) - peak_of_writing(small)
    tables = open_manifest(large, "000003")
    in_tables = sum(array.nbytes for array in arrays_of(tables).values())
    # Running sums and label columns are in memory, the tables and the timeline are not.
    assert grew < in_tables / 2


@pytest.mark.usefixtures("small_blocks")
def test_the_result_is_that_of_merging_everything_at_once(tmp_path: Path) -> None:
    dataset, parts = in_layers(tmp_path / "dataset", 2_000)
    copied = open_manifest(dataset, "000002", copies=HostCopies(tmp_path / "copies", min_bytes=0))
    publish(dataset, whole=True)
    found, expected = open_manifest(dataset, "000003", timeline=True), merge(parts)
    for table in fields(expected):
        one, other = getattr(found, table.name), getattr(expected, table.name)
        assert one is other is None or one.same_rows(other), table.name
        # The host's copy of the layers was decoded chunk by chunk.
        assert one is None or table.name == "timeline" or getattr(copied, table.name).same_rows(one), table.name
    with open_own_columns(dataset, "000003") as columns:
        labels = (columns or {})["label"].between(0, len(found.videos))
    assert labels.array().tolist() == sorted([*range(10**9, 10**9 + 2000), *range(10**9 + 3, 10**9 + 2000, 100)])
    # No scratch file is left.
    assert not list((tmp_path / "dataset" / ".tmp").iterdir())


def peak_of_publishing(dataset: Storage) -> int:
    """The most bytes that Python and numpy take while all parts are published."""
    tracemalloc.start()
    try:
        publish(dataset)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_very_many_parts_are_published_in_several_snapshots(
    small_blocks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job left that could not publish. Each snapshot has more of them, and memory does not grow with all."""
    at_once, in_turns = (DiskStorage(tmp_path / name) for name in ("at-once", "in-turns"))
    create(at_once, {})
    for at in range(0, 10_000, 500):
        part = with_timeline(made_up(np.arange(at, at + 500), name=f"part{at}"))
        write_part(at_once, f"{at:016x}", part)
    shutil.copytree(at_once.url, in_turns.url)
    most_bytes = peak_of_publishing(at_once)
    assert sorted(snapshots(at_once)) == ["000001"]
    monkeypatch.setattr(publish_module, "_MOST_ROWS", 15_000)
    bytes_in_turns = peak_of_publishing(in_turns)
    names = sorted(snapshots(in_turns))
    assert len(names) == 4
    counts = [len(open_manifest(in_turns, name).videos) for name in names]
    assert counts == sorted(set(counts))
    assert bytes_in_turns < most_bytes / 2
    one, other = (arrays_of(open_manifest(dataset, max(snapshots(dataset)))) for dataset in (at_once, in_turns))
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], name)
    assert publish(in_turns) == names[-1]
