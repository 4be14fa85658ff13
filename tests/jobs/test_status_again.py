"""The second job over the same sources says how many of them the dataset had before."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shortgop.cli import app
from shortgop.jobs.outcome import Report
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.job_status import read_status
from shortgop.jobs.sources.changed import Changed
from shortgop.manifests.operations.drop import drop
from shortgop.prep.profile import Profile
from shortgop.reporting.dataset_report import read_page
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video


def make(file: Path, frames: int = 20) -> None:
    make_video(file, pts=constant_rate_pts(Fraction(30), frames), timebase=Fraction(1, 30))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a dataset of three videos, and beside their sources a new one and one that is broken."""
    (tmp_path / "sources").mkdir()
    for number in range(3):
        make(tmp_path / "sources" / f"{number}.mp4")
    run(tmp_path)
    make(tmp_path / "sources" / "new.mp4")
    (tmp_path / "sources" / "broken.mp4").write_text("not a video")
    return tmp_path


def run(root: Path, changed: Changed = "keep", window_sources: int = 10_000) -> Report:
    return prepare(
        [str(root / "sources")], DiskStorage(root / "dataset"), Profile(), where=Where("inline"), changed=changed,
        window_sources=window_sources,
    )  # fmt: skip


def line(root: Path) -> str:
    said = CliRunner().invoke(app, ["status", str(root / "dataset")]).output
    return next(each for each in said.splitlines() if "done" in each)


@pytest.mark.parametrize("window_sources", [10_000, 1])
def test_status_and_report_say_what_was_there(root: Path, window_sources: int) -> None:
    assert line(root) == "3 of 3 sources done"
    report = run(root, window_sources=window_sources)
    assert read_status(DiskStorage(root / "dataset")).sources_there == report.already_there == 3
    assert line(root) == "2 of 2 sources done, 1 of them failed, 3 others were in the dataset before"
    verdict = read_page(str(root / "dataset"), clips=0, seed=0).verdict
    assert verdict.sentence == "The job finished: 1 of 2 sources failed, 3 others were in the dataset before"
    (root / "sources" / "broken.mp4").unlink()
    make(root / "sources" / "newer.mp4")
    run(root, window_sources=window_sources)
    verdict = read_page(str(root / "dataset"), clips=0, seed=0).verdict
    assert verdict.sentence == "The job finished: all 5 sources are in the dataset"
    assert "4 sources were in the dataset before, and the job prepared 1" in verdict.details


@pytest.mark.parametrize("window_sources", [10_000, 1])
def test_a_source_that_has_changed_and_is_prepared_again_is_none_of_them(root: Path, window_sources: int) -> None:
    make(root / "sources" / "1.mp4", frames=25)
    report = run(root, "replace", window_sources)
    assert line(root) == "3 of 3 sources done, 1 of them failed, 2 others were in the dataset before"
    assert (report.already_there, report.replaced) == (2, ("1.mp4",))


def test_what_was_dropped_is_none_of_them(root: Path) -> None:
    drop(DiskStorage(root / "dataset"), ["0.mp4"])
    run(root)
    assert line(root) == "2 of 2 sources done, 1 of them failed, 2 others were in the dataset before"


def test_what_is_lost_is_none_of_them(root: Path) -> None:
    shutil.rmtree(root / "dataset" / "shards")
    run(root)
    assert line(root) == "5 of 5 sources done, 1 of them failed"
