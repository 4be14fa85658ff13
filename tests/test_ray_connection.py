"""What a Ray that a job starts leaves of the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shortgop.jobs.ray_connection import connected
from started_processes import descendants

_AFTER_RAY = """
import os, signal, time
from shortgop.jobs.ray_connection import connected
signal.signal(signal.SIGTERM, signal.default_int_handler)
with connected(None, 1, 0):
    pass
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
except KeyboardInterrupt:
    print("tidy")
"""


def test_a_job_that_is_told_to_end_when_ray_has_ended_ends_tidily() -> None:
    """It still writes the dataset then. Ray leaves a process without any handler for SIGTERM."""
    done = subprocess.run([sys.executable, "-c", _AFTER_RAY], capture_output=True, text=True, check=False)
    assert done.stdout == "tidy\n", done


@pytest.fixture
def changed() -> Iterator[None]:
    """Give Ray's reports another interval."""
    os.environ["REPORTER_UPDATE_INTERVAL_MS"] = "7000"
    yield
    del os.environ["REPORTER_UPDATE_INTERVAL_MS"]


@pytest.mark.usefixtures("changed")
def test_the_environment_of_a_local_ray_is_its_own() -> None:
    handler = signal.getsignal(signal.SIGTERM)
    with connected(None, 1, 0):
        (monitor,) = [pid for pid, command in descendants(os.getpid()) if "log_monitor.py" in command]
        settings = Path(f"/proc/{monitor}/environ").read_bytes().split(b"\0")
        assert b"LOG_NAME_UPDATE_INTERVAL_S=60" in settings
        # What the user has set stays.
        assert b"REPORTER_UPDATE_INTERVAL_MS=7000" in settings
    assert "LOG_NAME_UPDATE_INTERVAL_S" not in os.environ
    assert os.environ["REPORTER_UPDATE_INTERVAL_MS"] == "7000"
    assert signal.getsignal(signal.SIGTERM) == handler
