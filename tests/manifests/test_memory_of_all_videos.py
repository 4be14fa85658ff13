"""Commands that look at all videos of two snapshots take some numbers of memory for each, and no object."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scale_data
from scale_data import made_up

from shortgop.manifests import matching
from shortgop.manifests.dataset_files import publish as publish_module
from shortgop.manifests.dataset_files.layout import shard_key
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import Root
from shortgop.manifests.layering import layers, row_runs
from shortgop.manifests.operations import copying, rollback, summary
from shortgop.manifests.operations.copy_plan import COPIED, plan_copy
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.history import Difference, history
from shortgop.manifests.operations.moving import in_shards, put_together
from shortgop.manifests.operations.stored_bytes import live_bytes
from shortgop.manifests.operations.summary import summarize
from shortgop.manifests.shared_memory import scratch_arrays
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.manifests.tables import empty
from shortgop.manifests.zarr_files import zarr_sizes
from shortgop.storage.disk import DiskStorage

pytestmark = pytest.mark.long

FEW, MANY = 5_000, 25_000
# With dicts of all ids it were 600 to 1,400. Opening a snapshot takes 40 to 60.
MOST_BYTES_A_VIDEO = 200


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some ten thousand videos are many, and their tables lie in files."""
    monkeypatch.setattr(layers, "MIN_ROWS", 1)
    monkeypatch.setattr(matching, "_BLOCK_ROWS", 1 << 10)
    monkeypatch.setattr(scratch_arrays, "_MIN_BYTES", 1)
    monkeypatch.setattr(zarr_sizes, "CHUNK_ROWS", 1 << 13)
    monkeypatch.setattr(zarr_sizes, "SHARD_CHUNKS", 1 << 3)
    monkeypatch.setattr(zarr_sizes, "BLOCK_ROWS", 1 << 16)
    monkeypatch.setattr(row_runs, "BLOCK_ROWS", 1 << 13)
    monkeypatch.setattr(scale_data, "SHARD_BYTES", 16_000_000)
    for module in (copying, rollback, publish_module, summary):
        monkeypatch.setattr(module, "copies_in", lambda _: HostCopies(tmp_path / "copies", min_bytes=1))


def dataset_of(path: Path, count: int) -> DiskStorage:
    """A dataset of so many videos, to which 1 % more came in a second snapshot."""
    dataset = scale_data.make(path, count, timeline=True)
    scale_data.write_more(dataset, count)
    came = made_up(np.arange(count, count + count // 100), name=f"v{0:07x}").shards
    for name, length in zip(came.name.texts(), came.length.tolist(), strict=True):
        with (dataset / shard_key(name)).open("wb") as file:
            file.truncate(length)
    publish(DiskStorage(dataset))
    return DiskStorage(dataset)


def peak_of(work: Callable[[], Any]) -> tuple[Any, int]:
    """What it returns, and the most bytes that Python and numpy take for it."""
    tracemalloc.start()
    try:
        result = work()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def bytes_a_video(work: Callable[[DiskStorage, int], Any], tmp_path: Path) -> float:
    """How much more memory some work takes for each video more. The first of three times loads what it needs."""
    peaks = []
    for number, count in enumerate((FEW // 10, FEW, MANY)):
        dataset = dataset_of(tmp_path / str(number), count)
        peaks.append(peak_of(partial(work, dataset, count))[1])
    return (peaks[2] - peaks[1]) / (MANY - FEW)


def test_listing_snapshots(tmp_path: Path) -> None:
    def work(dataset: DiskStorage, count: int) -> None:
        _, second = history(dataset)
        assert second.difference == Difference(added=count // 100)

    assert bytes_a_video(work, tmp_path) < MOST_BYTES_A_VIDEO


def test_a_summary_with_the_first_videos(tmp_path: Path) -> None:
    def work(dataset: DiskStorage, count: int) -> None:
        found = summarize(dataset, max_videos=20)
        assert (found.num_videos, len(found.videos)) == (count + count // 100, 20)
        assert found.duration_seconds == pytest.approx(found.num_frames / 30)

    assert bytes_a_video(work, tmp_path) < MOST_BYTES_A_VIDEO


def test_going_back(tmp_path: Path) -> None:
    """What is dropped takes objects, so nothing is but one video in a hundred."""

    def work(dataset: DiskStorage, count: int) -> None:
        done = rollback.rollback(dataset, "000001", dry_run=True)
        assert (len(done.dropped), done.restored, done.relabelled) == (count // 100, (), ())
        assert done.dropped[0] == f"{count:09}.mp4"

    assert bytes_a_video(work, tmp_path) < MOST_BYTES_A_VIDEO


def test_copying_to_where_all_videos_are(tmp_path: Path) -> None:
    def work(dataset: DiskStorage, count: int) -> None:
        target = DiskStorage(tmp_path / f"target{count}")
        shutil.copytree(dataset.url, target.url, ignore=shutil.ignore_patterns("shards"))
        (tmp_path / f"target{count}/shards").symlink_to(f"{dataset.url}/shards")
        done = copy_videos([dataset], target)
        assert (len(done.already), len(done.ids), len(done.other_columns)) == (count + count // 100, 0, 0)

    assert bytes_a_video(work, tmp_path) < MOST_BYTES_A_VIDEO


def test_planning_to_copy_all_videos(tmp_path: Path) -> None:
    """Made up rows take no files, so they may be more than what is looked at at a time."""
    peaks, counts = [], (20 * FEW, 20 * MANY)
    for count in counts:
        manifest = made_up(np.arange(count))
        opened = [(DiskStorage(tmp_path / "source"), Root({}, "000001"), manifest)]

        def work(opened: Any = opened, manifest: Any = manifest) -> int:
            (source,) = plan_copy(opened, DiskStorage(tmp_path / "target"), empty(), update=True, include_dropped=False)
            lying = in_shards(manifest, source.rows(COPIED))
            return sum(len(move.videos) for move in put_together(lying, live_bytes(manifest), 64_000_000))

        num_videos, peak = peak_of(work)
        assert num_videos >= count
        peaks.append(peak)
    assert (peaks[1] - peaks[0]) / (counts[1] - counts[0]) < MOST_BYTES_A_VIDEO / 2
