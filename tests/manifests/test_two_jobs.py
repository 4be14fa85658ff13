"""Two jobs at one dataset: started at once, and one that stood still while another one took its place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from dataset_places import Places, left_over
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.storage.interface import LOCK_KEY, Storage
from shortgop.storage.lease import Lease
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.long

RATE = Fraction(25)
JOB = [sys.executable, "-m", "shortgop"]
# Another job may take the lease of one that has been silent for two seconds.
IMPATIENT_JOB = [
    sys.executable,
    "-c",
    """
import functools
from shortgop.__main__ import main
from shortgop.storage import lease

lease.held = functools.partial(lease.held, timing=lease.LeaseTiming(renewed_seconds=0.3, abandoned_seconds=2.0))
main()
""",
]
LOST = "another job is writing to"
REMEDY = "wait for it, or stop it and run this again"


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("videos")
    for number, name in enumerate("ab"):
        pts = constant_rate_pts(RATE, 20)
        make_video(root / f"{name}.mp4", pts=pts, timebase=1 / RATE, first_number=100 * number)
    return [root / "a.mp4", root / "b.mp4"]


def start(job: Sequence[str], source: Path, dataset: Storage) -> subprocess.Popen[str]:
    command = [*job, "prep", str(source), "--out", dataset.url, "--runner", "inline", "--encoder", "libx264"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(job: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit status of a job, and all that it said in one line."""
    said = " ".join(" ".join(job.communicate(timeout=120)).split())
    return job.returncode, said


def assert_whole(dataset: Storage) -> None:
    """Both videos are there, and nothing is left over."""
    root, manifest = open_current(dataset)
    assert list(verify(dataset, manifest, snapshot=root.snapshot)) == []
    numbers = {video.id: [read_number(frame) for frame in video[:]] for video in shortgop.open(dataset.url)}
    assert numbers == {"a.mp4": list(range(20)), "b.mp4": list(range(100, 120))}
    # A job that has lost its lease is spared for an hour.
    assert [key for key in left_over(dataset) if not key.startswith(".tmp/taken-over-")] == []


class TwoJobs:
    where: str

    def test_of_two_that_begin_at_once_both_succeed_or_one_says_that_it_lost(
        self, videos: list[Path], places: Places
    ) -> None:
        dataset = places.new()
        jobs = [start(JOB, video, dataset) for video in videos]
        results = [ended(job) for job in jobs]
        lost = [number for number, (status, _) in enumerate(results) if status]
        assert len(lost) < 2
        for number in lost:
            assert LOST in results[number][1]
            assert REMEDY in results[number][1]
            assert ended(start(JOB, videos[number], dataset))[0] == 0
        assert_whole(dataset)


class TestTwoJobsOnADisk(TwoJobs):
    where = "disk"


@only_in_a_sweep
class TestTwoJobsOverAFlakyNetwork(TwoJobs):
    where = "flaky"


class TestTwoJobsInS3(TwoJobs):
    where = "s3"

    @only_in_a_sweep
    @pytest.mark.parametrize("stopped_at", [LOCK_KEY, "shards", "parts", "manifest"])
    @pytest.mark.parametrize("other_has_ended", [False, True])
    def test_one_that_stood_still_and_lost_its_lease_goes_on(
        self, videos: list[Path], places: Places, stopped_at: str, *, other_has_ended: bool
    ) -> None:
        dataset = places.new()
        with start(IMPATIENT_JOB, videos[0], dataset) as stopped:
            try:
                while not (dataset.find(LOCK_KEY) if stopped_at == LOCK_KEY else any(dataset.files(stopped_at))):
                    assert stopped.poll() is None
                os.kill(stopped.pid, signal.SIGSTOP)
                assert dataset.find(LOCK_KEY), "it came to its end before it was stopped"
                time.sleep(2.5)
                other = start(IMPATIENT_JOB, videos[1], dataset)
                while other.poll() is None and (other_has_ended or holder(dataset) in (0, stopped.pid)):
                    time.sleep(0.01)
            finally:
                stopped.send_signal(signal.SIGCONT)
            results = [ended(stopped), ended(other)]
        for video, (status, said) in zip(videos, results, strict=True):
            assert status == 0 or re.search("run (this|the same command) again", said), said
            root, manifest = open_current(dataset)
            assert list(verify(dataset, manifest, snapshot=root.snapshot)) == []
            if status:
                assert ended(start(JOB, video, dataset))[0] == 0
        assert_whole(dataset)


def holder(dataset: Storage) -> int:
    """The pid of the job that holds the lease of a dataset in S3; 0 if none does."""
    try:
        return Lease.of(dataset.read(LOCK_KEY)).pid
    except FileNotFoundError:
        return 0
