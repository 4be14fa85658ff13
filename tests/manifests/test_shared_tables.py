"""Processes that are started by "spawn" or "forkserver" map the tables of the process that starts them."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from example_manifests import failure, rows, video
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.shared_memory.shared_tables import TablesToShare
from sweep import sample
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux alone has such files")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shared")
    for number in range(3):
        pts = constant_rate_pts(Fraction(30), 20)
        make_video(root / f"{number}.mp4", pts=pts, timebase=Fraction(1, 30), first_number=100 * number)
    make_dataset(sorted(root.glob("*.mp4")), root / "dataset", gop_frames=8)
    return root / "dataset"


@pytest.mark.long
@pytest.mark.parametrize("method", sample(["spawn"], more=["forkserver"]))
def test_workers_read_on_when_a_job_has_removed_the_snapshot(path: Path, tmp_path: Path, method: str) -> None:
    """They need no table of the dataset's files."""
    copy = tmp_path / "dataset"
    shutil.copytree(path, copy)
    dataset = shortgop.ClipDataset(copy, shortgop.AllClips(2, step=3), size=(64, 96))
    shutil.rmtree(copy / "manifest")
    shown = [
        read_number(frame)
        for batch in DataLoader(dataset, batch_size=7, num_workers=2, multiprocessing_context=method)
        for clip in batch["frames"]
        for frame in clip
    ]
    assert shown == [100 * video + start + place for video in range(3) for start in range(0, 19, 3) for place in (0, 1)]


def columns(manifest: Any, derived: tuple[str, ...]) -> dict[str, Any]:
    return {**rows(manifest), **{name: getattr(manifest, name).tolist() for name in derived}}


def send_columns(queue: Any, manifest: Any, derived: tuple[str, ...]) -> None:
    writeable = [name for name in derived if getattr(manifest, name).flags.writeable]
    queue.put((columns(manifest, derived), manifest.row_of("b.mp4"), writeable))


@pytest.mark.long
def test_every_column_arrives_and_nobody_can_write_there() -> None:
    """Empty ones too, and what is worked out of them."""
    manifest = merge([video("b.mp4", offset=9000), video("a.mp4", frames=3), failure("c.mp4", "lost")])
    derived = ("first_gops", "first_segments", "first_frames")
    context = multiprocessing.get_context("spawn")
    queue: Any = context.SimpleQueue()
    tables: Any = TablesToShare(manifest)
    process = context.Process(target=send_columns, args=(queue, tables, derived))
    process.start()
    arrived, row, writeable = queue.get()
    process.join()
    assert arrived == columns(manifest, derived)
    assert row == 1
    assert writeable == []


def test_a_copy_for_another_time_has_no_part_of_the_memory() -> None:
    """The process that unpickles it may run on another machine."""
    assert not TablesToShare(merge([video("a.mp4")])).are_wanted
