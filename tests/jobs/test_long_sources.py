"""A long source, in sections: a job that is killed goes on with those that are there. `test_ray.py` encodes them at the
same time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import shortgop
from long_sources import FRAMES, FRAMES_OF_BOTH, assert_undisturbed, make_sources, run_in_sections
from shortgop.jobs.prepare import Where
from shortgop.jobs.units_of_work.unit_results import UnitResult
from shortgop.jobs.units_of_work.units import Item
from shortgop.jobs.working import step_work, work
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.manifests.dataset_files.sections import remove_old_sections
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from started_processes import kill_with_all_below, kill_workers
from sweep import only_in_a_sweep, sample
from synthetic import read_number

pytestmark = pytest.mark.long

_PATIENCE_SECONDS = 120
_JOB = """
import sys
from pathlib import Path
from long_sources import run_in_sections
from shortgop.jobs.prepare import Where

if __name__ == "__main__":
    where = Where(sys.argv[3], workers=2 if sys.argv[3] == "ray" else None)
    run_in_sections(Path(sys.argv[1]), Path(sys.argv[2]), where)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def undisturbed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = tmp_path_factory.mktemp("undisturbed") / "dataset"
    report = run_in_sections(sources, dataset)
    assert (report.videos_added, report.frames_added) == (2, FRAMES_OF_BOTH)
    assert len(list((dataset / "shards").iterdir())) >= 5
    return dataset


def start(sources: Path, dataset: Path, runner: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _JOB, str(sources), str(dataset), runner]
    here = Path(__file__).parents[1] / "shared"
    return subprocess.Popen(
        command, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def sections_of(dataset: Path) -> dict[str, int]:
    folder = dataset / "sections"
    return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} if folder.is_dir() else {}


def wait_for_sections(job: subprocess.Popen[bytes], dataset: Path, number: int) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while len(sections_of(dataset)) < number:
        assert time.monotonic() < end, "waited in vain for sections"
        assert job.poll() is None, "the job ended too early"
        time.sleep(0.005)


@pytest.mark.parametrize("finished_before_the_kill", sample([3], more=[1]))
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

    run_in_sections(sources, dataset)

    assert_undisturbed(dataset, undisturbed)
    # The shards of finished sections were not written again.
    assert {name: (dataset / "shards" / name).stat().st_ino for name in shards} == shards


# In the suite, `test_cluster_chaos.py` kills them.
@only_in_a_sweep
def test_workers_and_driver_killed_on_ray(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "ray")
    wait_for_sections(job, dataset, 1)
    assert kill_workers(job.pid)
    wait_for_sections(job, dataset, 2)
    kill_with_all_below(job, patience_seconds=_PATIENCE_SECONDS)
    run_in_sections(sources, dataset, Where("ray", workers=2))
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
        "  if [[ ${arguments[at]} == -ss && ${arguments[at+1]} == [5-9].* ]]; then arguments[at+1]=14; fi\n"
        "done\n"
        f'exec "{find_ffmpeg().path}" "${{arguments[@]}}"\n'
    )
    wrong.chmod(0o755)
    find_ffmpeg.cache_clear()
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(wrong))
    try:
        report = run_in_sections(sources, tmp_path / "dataset")
    finally:
        find_ffmpeg.cache_clear()
    assert (report.videos_added, report.failures) == (2, ())
    # One for each source: the shards of the sections are gone.
    assert len(list((tmp_path / "dataset" / "shards").iterdir())) == 2
    video = shortgop.open(tmp_path / "dataset")["long.mp4"]
    assert [read_number(frame) for frame in video.get_frames_at(range(0, FRAMES, 7)).data] == [*range(0, FRAMES, 7)]


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


def test_of_two_joins_the_second_one_finds_what_the_first_one_made(
    sources: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before the first one ended, which then removed the sections. Nothing is encoded again."""
    join, joined = step_work._join, []
    prepare_whole = work._prepared
    whole: list[str] = []

    def prepare(dataset: Storage, items: Sequence[Item], *arguments: Any, **named: Any) -> Any:
        whole.extend(item.source.id for item in items)
        return prepare_whole(dataset, items, *arguments, **named)

    def join_twice(*arguments: Any) -> UnitResult:
        joined.append(join(*arguments))
        return join(*arguments)

    monkeypatch.setattr(step_work, "_join", join_twice)
    monkeypatch.setattr(work, "_prepared", prepare)
    dataset = tmp_path / "dataset"
    report = run_in_sections(sources, dataset)
    assert (len(joined), whole) == (1, ["short.mp4"])
    assert (report.failures, report.videos_added, report.frames_added) == ((), 2, FRAMES_OF_BOTH)
    assert_undisturbed(dataset, undisturbed)
