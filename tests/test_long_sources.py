"""A long source on Ray: its sections are encoded at the same time, and a job that is killed goes on with those that are
there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from datasets import rows_of
from processes import kill_with_all_below, kill_workers
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.parts import finished_units
from shortgop.manifests.sections import remove_old_sections
from shortgop.manifests.snapshots import open_current
from shortgop.manifests.verify import verify
from shortgop.prep.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from sweep import SWEEP
from synthetic import constant_rate_pts, make_video, read_number

_FRAMES = 900
_PROFILE = Profile(segment_seconds=Fraction(1, 2))
# About six sections of the long source.
_SECTION_SECONDS = 0.2
_PATIENCE_SECONDS = 120
_JOB = """
import sys
from fractions import Fraction
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage

if __name__ == "__main__":
    profile = Profile(segment_seconds=Fraction(1, 2))
    where = Where(sys.argv[3], workers=2 if sys.argv[3] == "ray" else None)
    prepare([sys.argv[1]], DiskStorage(sys.argv[2]), profile, where=where, section_seconds=0.2)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name, frames in (("long.mp4", _FRAMES), ("short.mp4", 60)):
        make_video(
            folder / name, pts=constant_rate_pts(Fraction(30), frames), timebase=Fraction(1, 30), size=(320, 256),
            gop=30, options={"qp": "10", "preset": "ultrafast"},
        )  # fmt: skip
    return folder


def run(sources: Path, dataset: Path, runner: str = "inline") -> Report:
    where = Where(runner, workers=2 if runner == "ray" else None)
    return prepare([str(sources)], DiskStorage(dataset), _PROFILE, where=where, section_seconds=_SECTION_SECONDS)


@pytest.fixture(scope="module")
def undisturbed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = tmp_path_factory.mktemp("undisturbed") / "dataset"
    report = run(sources, dataset)
    assert (report.videos_added, report.frames_added) == (2, _FRAMES + 60)
    assert len(list((dataset / "shards").iterdir())) >= 5
    return dataset


def assert_undisturbed(dataset: Path, undisturbed: Path) -> None:
    """Row for row and byte for byte, and no other file."""
    assert rows_of(dataset) == rows_of(undisturbed)
    folders = [sorted(entry.name for entry in each.iterdir()) for each in (dataset, undisturbed)]
    assert folders[0] == folders[1]
    files = [
        {file.name for folder in ("shards", "parts") for file in (each / folder).iterdir()}
        for each in (dataset, undisturbed)
    ]
    assert files[0] == files[1]


def test_on_ray_it_is_the_dataset_of_a_plain_loop(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    report = run(sources, tmp_path / "dataset", "ray")
    assert (report.videos_added, report.frames_added, report.failures) == (2, _FRAMES + 60, ())
    assert_undisturbed(tmp_path / "dataset", undisturbed)
    video = shortgop.open(tmp_path / "dataset")["long.mp4"]
    shown = [read_number(frame) for frame in video.get_frames_at(range(0, _FRAMES, 7)).data]
    assert shown == list(range(0, _FRAMES, 7))
    storage = DiskStorage(tmp_path / "dataset")
    assert list(verify(storage, open_current(storage)[1])) == []


def start(sources: Path, dataset: Path, runner: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _JOB, str(sources), str(dataset), runner]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def sections_of(dataset: Path) -> dict[str, int]:
    folder = dataset / "sections"
    return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} if folder.is_dir() else {}


def wait_for_sections(job: subprocess.Popen[bytes], dataset: Path, number: int) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while len(sections_of(dataset)) < number:
        assert time.monotonic() < end, "waited in vain for sections"
        assert job.poll() is None, "the job ended too early"
        time.sleep(0.005)


@pytest.mark.parametrize("finished_before_the_kill", [1, 3])
def test_a_killed_job_goes_on_with_the_sections_that_are_there(
    sources: Path, undisturbed: Path, tmp_path: Path, finished_before_the_kill: int
) -> None:
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "inline")
    wait_for_sections(job, dataset, finished_before_the_kill)
    job.kill()
    job.wait()
    there = sections_of(dataset)
    # Nothing half of the video is to be seen.
    assert len(finished_units(DiskStorage(dataset))) == 0
    kept = {name: (dataset / "sections" / name).stat().st_ino for name in there}
    shards = {file.name: file.stat().st_ino for file in (dataset / "shards").iterdir()}
    assert len(shards) >= len(kept) == len(there) >= finished_before_the_kill

    run(sources, dataset)

    assert_undisturbed(dataset, undisturbed)
    # The shards of finished sections were not written again.
    assert {name: (dataset / "shards" / name).stat().st_ino for name in shards} == shards


def test_workers_and_driver_killed_on_ray(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "ray")
    wait_for_sections(job, dataset, 1)
    assert kill_workers(job.pid)
    wait_for_sections(job, dataset, 2)
    kill_with_all_below(job, patience_seconds=_PATIENCE_SECONDS)
    # Starting Ray takes longer than all that is left to do.
    run(sources, dataset, "ray" if SWEEP else "inline")
    assert_undisturbed(dataset, undisturbed)


def test_a_section_that_fits_nothing_leads_to_the_whole_video(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand in for ffmpeg with a program that starts reading elsewhere in one section."""
    wrong = tmp_path / "ffmpeg"
    wrong.write_text(
        "#!/bin/bash\n"
        'arguments=("$@")\n'
        'for at in "${!arguments[@]}"; do\n'
        "  if [[ ${arguments[at]} == -ss && ${arguments[at+1]} == 1[0-9].* ]]; then arguments[at+1]=29; fi\n"
        "done\n"
        f'exec {find_ffmpeg().path} "${{arguments[@]}}"\n'
    )
    wrong.chmod(0o755)
    find_ffmpeg.cache_clear()
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(wrong))
    try:
        report = run(sources, tmp_path / "dataset")
    finally:
        find_ffmpeg.cache_clear()
    assert (report.videos_added, report.failures) == (2, ())
    # One for each source: the shards of the sections are gone.
    assert len(list((tmp_path / "dataset" / "shards").iterdir())) == 2
    video = shortgop.open(tmp_path / "dataset")["long.mp4"]
    assert [read_number(frame) for frame in video.get_frames_at(range(0, _FRAMES, 7)).data] == [*range(0, _FRAMES, 7)]


def test_a_section_that_kills_its_workers_fails_its_source_alone(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand in for ffmpeg with a program that kills whoever runs it behind the first section."""
    killer = tmp_path / "ffmpeg"
    killer.write_text(
        f'#!/bin/sh\ncase "$*" in *"-ss "*) kill -{int(signal.SIGKILL)} $PPID;; esac\nexec {find_ffmpeg().path} "$@"\n'
    )
    killer.chmod(0o755)
    find_ffmpeg.cache_clear()
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(killer))
    try:
        report = run(sources, tmp_path / "dataset", "ray")
    finally:
        find_ffmpeg.cache_clear()
    assert (report.videos_added, [failure.id for failure in report.failures]) == (1, ["long.mp4"])
    assert "its worker died 4 times" in report.failures[0].reason
    assert [video.id for video in shortgop.open(tmp_path / "dataset")] == ["short.mp4"]


def test_sections_of_a_job_that_was_given_up_are_removed_after_a_week(sources: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "inline")
    wait_for_sections(job, dataset, 1)
    job.kill()
    job.wait()
    storage = DiskStorage(dataset)
    remove_old_sections(storage)
    assert sections_of(dataset)
    for file in (dataset / "sections").iterdir():
        os.utime(file, (0, 0))
    remove_old_sections(storage)
    assert not (dataset / "sections").exists()
