"""A job that is killed at any moment and run again ends with the dataset of an undisturbed run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset, rows_of
from processes import descendants
from shortgop.manifests.layout import open_current
from shortgop.manifests.parts import finished_units
from shortgop.manifests.verify import verify
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video

# Seven units of work that take some tenths of a second each, and one source that always fails.
_VIDEOS = 7
_FRAMES = 150
_PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for number in range(_VIDEOS):
        make_video(
            folder / f"{number}.mp4",
            pts=constant_rate_pts(Fraction(30), _FRAMES),
            timebase=Fraction(1, 30),
            size=(320, 256),
            first_number=1000 * number,
            # Files of a megabyte, so that no two share a unit.
            options={"qp": "1", "preset": "ultrafast"},
        )
    (folder / "broken.mp4").write_text("not a video")
    return folder


@pytest.fixture(scope="module")
def undisturbed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = tmp_path_factory.mktemp("undisturbed") / "dataset"
    make_dataset([sources], dataset)
    assert len(finished_units(DiskStorage(dataset))) >= _VIDEOS
    return dataset


def start(sources: Path, dataset: Path, runner: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "shortgop", "prep", str(sources), "--out", str(dataset), "--runner", runner]
    # Where the tests run in the background, a shell may have told them to ignore Ctrl-C.
    with_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with dataset.with_suffix(".log").open("w") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=with_interrupts,  # noqa: PLW1509  # no threads here
        )


def wait_until(job: subprocess.Popen[bytes], condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        assert job.poll() is None, f"the job ended before there was {what}"
        time.sleep(0.01)


def wait_until_gone(pids: Sequence[int]) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "processes of the job live on"
        time.sleep(0.05)


def kill_one(pid: int, what: str) -> bool:
    """SIGKILL a process below `pid` whose command line has `what` in it, if there is one."""
    for child, command in descendants(pid):
        if what in command:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
    return False


def assert_undisturbed(dataset: Path, undisturbed: Path) -> None:
    assert rows_of(dataset) == rows_of(undisturbed)
    assert not (dataset / ".tmp").exists()
    files = {file.name for folder in ("shards", "parts") for file in (dataset / folder).iterdir()}
    assert files == {file.name for folder in ("shards", "parts") for file in (undisturbed / folder).iterdir()}


@pytest.mark.parametrize("runner", ["inline", "ray"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_told_to_end(sources: Path, tmp_path: Path, runner: str, number: signal.Signals) -> None:
    """Ctrl-C, or what a job manager sends: a tidy end, with all that was finished in the dataset."""
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, runner)
    wait_until(job, lambda: len(finished_units(DiskStorage(dataset))) >= 2, "units of work")
    below = [pid for pid, _ in descendants(job.pid)]
    job.send_signal(number)
    assert job.wait(_PATIENCE_SECONDS) == 130
    assert "interrupted; finished work is kept" in dataset.with_suffix(".log").read_text()
    assert "Traceback" not in dataset.with_suffix(".log").read_text()
    assert not (dataset / ".tmp").exists()
    # All that was finished is published, not just the first result.
    assert len(shortgop.open(dataset)) >= 2
    wait_until_gone(below)


def test_told_to_end_while_ray_starts(sources: Path, tmp_path: Path) -> None:
    """Ray has a handler for SIGTERM of its own, and processes that nobody knows of yet."""
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "ray")
    wait_until(job, lambda: any("gcs_server" in command for _, command in descendants(job.pid)), "Ray")
    below = [pid for pid, _ in descendants(job.pid)]
    job.send_signal(signal.SIGTERM)
    assert job.wait(_PATIENCE_SECONDS) == 130
    log = dataset.with_suffix(".log").read_text()
    assert "interrupted; finished work is kept" in log
    assert "Traceback" not in log
    assert not (dataset / ".tmp").exists()
    wait_until_gone(below)


@pytest.mark.parametrize("finished_before_the_kill", [0, 1, 3, 6])
def test_driver_killed(sources: Path, undisturbed: Path, tmp_path: Path, finished_before_the_kill: int) -> None:
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "inline")
    wait_until(job, lambda: len(finished_units(DiskStorage(dataset))) >= finished_before_the_kill, "units of work")
    wait_until(job, (dataset / ".tmp").exists, "work under way")
    # Somewhere within the next unit, elsewhere for each number.
    time.sleep(0.05 * finished_before_the_kill)
    job.kill()
    job.wait()
    assert len(finished_units(DiskStorage(dataset))) < len(finished_units(DiskStorage(undisturbed)))

    make_dataset([sources], dataset)

    assert_undisturbed(dataset, undisturbed)


def test_driver_killed_while_it_makes_lost_videos_again(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(undisturbed, dataset)
    before = finished_units(DiskStorage(dataset))
    lost = sorted((dataset / "shards").iterdir())[:4]
    for shard in lost:
        shard.unlink()
    job = start(sources, dataset, "inline")
    wait_until(job, lambda: len(finished_units(DiskStorage(dataset))) > len(before), "a video that was made again")
    wait_until(job, (dataset / ".tmp").exists, "work under way")
    job.kill()
    job.wait()

    report = make_dataset([sources], dataset)

    assert 0 < len(report.repaired) < 4
    assert report.lost == ()
    assert not (dataset / ".tmp").exists()
    root, manifest = open_current(DiskStorage(dataset))
    assert list(verify(DiskStorage(dataset), manifest, snapshot=root.snapshot)) == []
    assert sorted(manifest.videos.revision.tolist()) == [0] * (_VIDEOS - 4) + [1] * 4
    # Those that were made again are the same frames; x264 even writes the same bytes.
    kept = ("videos.", "gops.length", "gops.crc32", "timeline.", "failures.")
    one, other = rows_of(dataset), rows_of(undisturbed)
    assert all(one[name] == other[name] for name in one if name.startswith(kept) and name != "videos.revision")


def test_ffmpeg_killed_again_and_again(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "inline")
    killed = 0
    while job.poll() is None:
        # The driver's own trial runs are over once there is something to write.
        if killed < 2 * (1 + len(finished_units(DiskStorage(dataset)))) and (dataset / ".tmp").exists():
            killed += kill_one(job.pid, "stats_enc_pre pipe")
        time.sleep(0.02)
    assert killed > 2
    make_dataset([sources], dataset)
    assert_undisturbed(dataset, undisturbed)


def test_worker_and_driver_killed_on_ray_while_a_reader_reads(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "ray")
    wait_until(job, (dataset / ".tmp").exists, "work under way")
    wait_until(job, lambda: kill_one(job.pid, "ray::_run_step"), "a worker")
    wait_until(job, lambda: kill_one(job.pid, "ray::_Board"), "the actor that collects progress")
    wait_until(job, lambda: _can_be_opened(dataset), "a first snapshot")
    reader = shortgop.open(dataset)
    video = reader[0]
    before = video[0]
    wait_until(job, lambda: len(finished_units(DiskStorage(dataset))) >= 4, "units of work")
    job.kill()
    job.wait()

    make_dataset([sources], dataset)

    assert_undisturbed(dataset, undisturbed)
    assert bool((video[0] == before).all())
    assert len(reader) < _VIDEOS
    assert len(shortgop.open(dataset)) == _VIDEOS


def _can_be_opened(dataset: Path) -> bool:
    try:
        return len(shortgop.open(dataset)) > 0
    except shortgop.NotADatasetError:
        return False
