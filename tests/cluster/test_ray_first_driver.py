"""A node of Ray answers its first driver when its workers are there, and never if one of them dies before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_machines import Machines, machines

pytestmark = pytest.mark.long

_DRIVER = """
import sys
from shortgop.jobs.cluster.ray_connection import connected
with connected(sys.argv[1], None, 0, patience_seconds=float(sys.argv[2])) as ask_slots:
    print("joined", ask_slots().at_a_time)
"""
# By default a minute.
_WAIT_FOR_WORKERS = {"RAY_worker_register_timeout_seconds": "5"}


@pytest.fixture
def head() -> Iterator[Machines]:
    with machines(separate=False, names=("head",), environment=_WAIT_FOR_WORKERS) as cluster:
        cluster.start("head")
        yield cluster


def test_a_driver_joins_a_node_whose_first_worker_dies_before_it_is_known(head: Machines) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, head.address, "3"], env=head.environment, stdout=subprocess.PIPE, text=True
    )
    try:
        os.kill(_first_worker(head), signal.SIGKILL)
        said, _ = driver.communicate(timeout=180)
    finally:
        driver.kill()
        driver.wait()
    assert (driver.returncode, said) == (0, "joined 1\n")


def _first_worker(head: Machines) -> int:
    end = time.monotonic() + 120
    while True:
        for pid in head.all["head"].pids("default_worker.py"):
            # The node itself has the command of its workers among its arguments.
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1]
            if program.endswith(b"default_worker.py"):
                return pid
        assert time.monotonic() < end, "no worker starts"
        time.sleep(0.01)
