"""A driver whose head is lost: it ends tidily, told to or by itself, before Ray ends it at once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import shortgop
from loader_helpers import comes_true
from own_units import make_own_units
from ray_heads import BIN, Head, ray_head
from shortgop.jobs.progress.job_status import read_status
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from started_processes import descendants
from sweep import only_in_a_sweep

pytestmark = pytest.mark.long

_PATIENCE_SECONDS = 120
# Ray itself ends a process so long after it has lost its head.
_RAY_WAITS_SECONDS = 30


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    """Start a cluster on which the source 2.mp4 takes for ever."""
    program = tmp_path / "ffmpeg"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in */2.mp4*) touch {tmp_path}/hangs; exec sleep 1000;; esac\n'
        f'exec "{find_ffmpeg().path}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(program))
    with ray_head(token=False) as head:
        yield head


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return make_own_units(tmp_path / "sources", 3)


@pytest.fixture
def job(head: Head, sources: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A job that has lost its head, and has two of its three units."""
    command = [str(BIN / "shortgop"), "prep", str(sources), "--out", str(tmp_path / "dataset")]
    environment = {**head.environment, "RAY_gcs_rpc_server_reconnect_timeout_s": str(_RAY_WAITS_SECONDS)}
    process = subprocess.Popen(
        [*command, "--address", head.address], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        is_ready = comes_true(
            lambda: (tmp_path / "hangs").exists() and len(finished_units(DiskStorage(tmp_path / "dataset"))) == 2,
            _PATIENCE_SECONDS,
        )
        assert is_ready, process.poll()
        lose_head()
        # By now it has asked, and waits for the answer.
        time.sleep(7)
        yield process
    finally:
        process.kill()
        process.communicate()


def lose_head() -> None:
    """Kill what makes the machine of the job a head. `ray start` would end the rest of it then, so it is stopped."""
    below = list(descendants(os.getpid()))
    for name, number in (("ray start --head", signal.SIGSTOP), ("/gcs_server ", signal.SIGKILL)):
        (pid,) = (pid for pid, command in below if name in command)
        os.kill(pid, number)


def ended(process: subprocess.Popen[str], dataset: Path) -> str:
    """Wait for the end of a job that could not finish; returns what it said."""
    _, said = process.communicate(timeout=_PATIENCE_SECONDS)
    assert "Traceback" not in said
    assert len(shortgop.open(dataset)) == 2
    return said


def test_a_driver_without_its_head_ends_tidily_on_sigterm(job: subprocess.Popen[str], tmp_path: Path) -> None:
    began = time.monotonic()
    job.send_signal(signal.SIGTERM)
    said = ended(job, tmp_path / "dataset")
    assert job.returncode == 143
    assert "interrupted; finished work is kept" in said
    assert time.monotonic() - began < _RAY_WAITS_SECONDS - 7, "Ray itself would have ended it"
    assert read_status(DiskStorage(tmp_path / "dataset")).state == "ended"


# It takes half a minute. `test_asking.py` has its rules.
@only_in_a_sweep
def test_a_driver_that_hears_nothing_of_its_head_ends_by_itself(job: subprocess.Popen[str], tmp_path: Path) -> None:
    said = ended(job, tmp_path / "dataset")
    assert job.returncode == 1
    assert "the head of Ray has not answered for 15 s; what is finished is kept, so run the same command again" in said
    assert read_status(DiskStorage(tmp_path / "dataset")).state == "ended"
