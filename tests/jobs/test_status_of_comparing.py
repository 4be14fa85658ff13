"""The status of a job that finds and compares its sources, and has encoded nothing yet or has nothing to encode."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loader_helpers import comes_true
from shortgop.cli import app
from shortgop.errors import SourceError
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.job_status import STATUS_KEY, JobStatus, read_status
from shortgop.jobs.progress.tally import Progress
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from synthetic import constant_rate_pts, make_video

_PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for number in range(3):
        pts = constant_rate_pts(Fraction(30), 30)
        make_video(folder / f"{number}.mp4", pts=pts, timebase=Fraction(1, 30), first_number=100 * number)
    return folder


def run(sources: Path, dataset: Path) -> None:
    prepare([str(sources)], DiskStorage(dataset), Profile(), where=Where("inline"))


def seems_dead(dataset: Path) -> JobStatus:
    """Change the status of a finished job into what it leaves if it is killed after its last part."""
    status = dataclasses.replace(
        read_status(DiskStorage(dataset)), state="running", started=1.0, written=100.0, sources_done=2
    )
    (dataset / STATUS_KEY).write_text(json.dumps(dataclasses.asdict(status)))
    os.utime(dataset / STATUS_KEY, (100, 100))
    return status


def test_a_job_that_finds_nothing_left_to_do_finishes_the_one_that_died_and_nothing_else(
    sources: Path, tmp_path: Path
) -> None:
    dataset = tmp_path / "dataset"
    run(sources / "0.mp4", dataset)
    finished = read_status(DiskStorage(dataset))
    # What a finished job did is not replaced by that the next one had nothing to do.
    run(sources / "0.mp4", dataset)
    assert read_status(DiskStorage(dataset)) == finished
    dead = seems_dead(dataset)
    assert "it may be dead" in CliRunner().invoke(app, ["status", str(dataset)]).output
    run(sources / "0.mp4", dataset)
    found = read_status(DiskStorage(dataset))
    assert (found.state, found.sources_total, found.sources_there, found.frames_done) == ("finished", 0, 1, 0)
    # Its history goes on.
    assert found.history[: len(dead.history)] == dead.history


def shown_at(note: str, sources: Path, dataset: Storage, since: float) -> list[JobStatus]:
    """Run a job, and hold it where its progress has this note until its status is there. That was begun since then."""
    seen: list[JobStatus] = []

    def wait_for_status(progress: Progress) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while progress.note.startswith(note) and not seen:
            found = read_status(dataset)
            seen.extend([found] if found.started > since else [])
            assert time.monotonic() < end
            time.sleep(0.01)

    where = Where("inline")
    prepare([str(sources)], dataset, Profile(), where=where, window_sources=1, on_update=wait_for_status)
    return seen


@pytest.mark.parametrize("note", ["finding all sources", "looking at"])
@pytest.mark.parametrize("before", ["finished", "dead"])
def test_a_job_shows_itself_while_it_finds_and_compares_its_sources(
    note: str, before: str, sources: Path, tmp_path: Path
) -> None:
    run(sources / "0.mp4", tmp_path / "dataset")
    since = time.time()
    if before == "dead":
        seems_dead(tmp_path / "dataset")
    seen = shown_at(note, sources, DiskStorage(tmp_path / "dataset"), since)
    assert [(found.state, found.sources_done, found.pid) for found in seen] == [("running", 0, os.getpid())]


@pytest.mark.parametrize("where", ["folder", "store"])
def test_a_job_that_finds_nothing_to_do_is_seen_and_leaves_the_file_of_the_finished_one(
    where: str, sources: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path) if where == "folder" else request.getfixturevalue("s3_url")
    dataset = storage_at(f"{place}/dataset")
    prepare([str(sources)], dataset, Profile(), where=Where("inline"))
    before = dataset.read(STATUS_KEY)
    seen = shown_at("looking at", sources, dataset, time.time())
    assert [found.state for found in seen] == ["running"]
    assert dataset.read(STATUS_KEY) == before


def test_a_job_that_finds_nothing_to_do_where_no_status_is_says_that_it_finished(sources: Path, tmp_path: Path) -> None:
    """Whoever waits for it would wait for ever."""
    run(sources / "0.mp4", tmp_path / "dataset")
    file = tmp_path / "dataset" / STATUS_KEY
    for remove in (file.unlink, lambda: file.write_text("{")):
        remove()
        run(sources / "0.mp4", tmp_path / "dataset")
        found = read_status(DiskStorage(file.parent))
        assert (found.state, found.sources_total, found.sources_there) == ("finished", 0, 1)


def test_a_job_that_fails_while_it_compares_says_so_also_after_a_finished_one(sources: Path, tmp_path: Path) -> None:
    shutil.copy(sources / "0.mp4", tmp_path / "0.mp4")
    run(tmp_path / "0.mp4", tmp_path / "dataset")
    with (tmp_path / "0.mp4").open("ab") as file:
        file.write(bytes(1000))
    with pytest.raises(SourceError) as failed:
        prepare(
            [str(tmp_path / "0.mp4")], DiskStorage(tmp_path / "dataset"), Profile(), where=Where("inline"),
            changed="fail",
        )  # fmt: skip
    found = read_status(DiskStorage(tmp_path / "dataset"))
    assert (found.state, found.reason) == ("ended", str(failed.value))


# Stops for good at the first word of its progress that says what it does.
_STOPS = """
import sys, time
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at

def stop(progress):
    while progress.note:
        time.sleep(1)

prepare([sys.argv[1]], DiskStorage(sys.argv[2]), Profile(), where=Where("inline"), on_update=stop)
"""


def test_a_job_that_was_killed_while_it_compared_seems_dead_until_the_next_one(sources: Path, tmp_path: Path) -> None:
    run(sources / "0.mp4", tmp_path / "dataset")
    dataset = DiskStorage(tmp_path / "dataset")
    job = subprocess.Popen([sys.executable, "-c", _STOPS, str(sources / "0.mp4"), str(tmp_path / "dataset")])
    try:
        assert comes_true(lambda: read_status(dataset).pid == job.pid, _PATIENCE_SECONDS)
    finally:
        job.kill()
        job.wait()
    found = read_status(dataset)
    assert (found.state, found.may_be_dead(found.written + 61)) == ("running", True)
    run(sources / "0.mp4", tmp_path / "dataset")
    found = read_status(dataset)
    assert (found.state, found.pid, found.sources_there) == ("finished", os.getpid(), 1)
