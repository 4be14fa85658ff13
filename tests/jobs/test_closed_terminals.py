"""A job whose terminal is closed, as where a connection to another machine is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shortgop
from own_units import make_own_units

_VIDEOS = 6

# Runs a command in a terminal of its own, closes that when the dataset has two units, and prints the command's status.
_TERMINAL = """
import os, pty, select, signal, sys
from pathlib import Path

parts, ignores, command = Path(sys.argv[1]) / "parts", sys.argv[2] == "ignores", sys.argv[3:]
pid, terminal = pty.fork()
if not pid:
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignores else signal.SIG_DFL)
    os.execv(command[0], command)
while not (parts.is_dir() and len(os.listdir(parts)) >= 2):
    if select.select([terminal], [], [], 0.01)[0]:
        os.read(terminal, 65536)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_own_units(tmp_path_factory.mktemp("sources") / "videos", _VIDEOS)


def status_of_job(sources: Path, dataset: Path, *, ignores: bool = False) -> int:
    """The exit status of a job whose terminal is closed when two of its units are finished."""
    job = [sys.executable, "-m", "shortgop", "prep", str(sources), "--out", str(dataset), "--runner", "inline"]
    job += ["--shard-mb", "1"]
    command = [sys.executable, "-c", _TERMINAL, str(dataset), "ignores" if ignores else "hears", *job]
    settings = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return int(subprocess.run(command, env=os.environ | settings, capture_output=True, check=True).stdout)


def test_a_job_whose_terminal_is_closed_ends_tidily(sources: Path, tmp_path: Path) -> None:
    """What was finished is in the dataset, and nobody has to wait until a lock ends."""
    dataset = tmp_path / "dataset"
    assert status_of_job(sources, dataset) == 129
    assert 2 <= len(shortgop.open(dataset)) < _VIDEOS
    assert json.loads((dataset / ".status.json").read_text())["reason"] == "it was interrupted"
    assert (dataset / ".lock").read_bytes() == b""
    assert not (dataset / ".tmp").exists()


def test_a_job_that_was_told_to_ignore_that_goes_on_without_its_terminal(sources: Path, tmp_path: Path) -> None:
    """As `nohup` tells it."""
    dataset = tmp_path / "dataset"
    assert status_of_job(sources, dataset, ignores=True) == 0
    assert len(shortgop.open(dataset)) == _VIDEOS
