"""A Ray of a job's own that is slow to start, or does not start at all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from process_names import process_named
from shortgop.jobs.cluster.ray_start import patient_start

pytestmark = pytest.mark.long

_JOB = """
import os, signal, sys, threading, time
from functools import partial
from shortgop.errors import ToolError
from shortgop.jobs.cluster import ray_connection
from started_processes import descendants

what, patience_seconds, pause_seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
ray_connection.patient_start = partial(ray_connection.patient_start, patience_seconds)

def hinder():
    found = []
    while not found:
        found = [pid for pid, command in descendants(os.getpid()) if command.split(" ")[0].endswith("/raylet")]
        time.sleep(0.01)
    os.kill(found[0], getattr(signal, what))
    time.sleep(pause_seconds)
    os.kill(found[0], signal.SIGCONT)

threading.Thread(target=hinder, daemon=True).start()
began = time.monotonic()
try:
    with ray_connection.connected(None, 1, 0) as ask_slots:
        print("cores", ask_slots().at_a_time)
except ToolError as error:
    print(error)
print(int(time.monotonic() - began))
time.sleep(1)
print(*[command for _, command in descendants(os.getpid()) if command], sep=chr(10))
"""


def started(what: str, *, patience_seconds: int, pause_seconds: int) -> list[str]:
    """Start a Ray whose node gets a signal as soon as it is there, and is told to go on after a pause. Returns what
    came of it, how many seconds that took, and the processes that are left."""
    command = [sys.executable, "-c", _JOB, what, str(patience_seconds), str(pause_seconds)]
    settings = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "shared"), *sys.path])}
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_local_ray_is_waited_for_longer_than_the_half_minute_of_ray_itself() -> None:
    said, seconds, *_ = started("SIGSTOP", patience_seconds=180, pause_seconds=33)
    assert said == "cores 1"
    assert int(seconds) >= 33


def test_what_is_left_of_a_ray_that_did_not_start_is_ended() -> None:
    """A program that calls shortgop.prepare may go on for days."""
    said, _, *left = started("SIGSTOP", patience_seconds=2, pause_seconds=100)
    assert re.search(
        r"^a local Ray does not start: its node has not answered for \d+ s; run the same command again", said
    )
    assert left == [""]


def test_a_local_ray_whose_node_has_ended_is_waited_for_no_longer_than_by_ray_itself() -> None:
    said, seconds, *left = started("SIGKILL", patience_seconds=180, pause_seconds=100)
    assert "a local Ray does not start: its process raylet has ended; " in said
    assert "/ray/session_latest/logs says why (raylet.err, raylet.out): mend that, or give --runner inline" in said
    assert int(seconds) < 90
    assert left == [""]


def test_a_ray_starts_beside_processes_whose_names_are_no_text() -> None:
    """A name is cut after 15 bytes. Workers of other jobs have the names of sources."""
    with process_named("ray::小猫视频".encode()), patient_start():
        pass
