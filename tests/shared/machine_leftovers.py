"""What jobs leave in the folders for temporary files (TMPDIR) of machines.

A process removes its own files there. What is left of those that were killed is removed by the next process there
before it makes its first file, and before every copy of a source; copies also by processes of another container that
has the same disk. So, when a job has ended, there may be

- folders `shortgop-USER-CONTAINER`, and in these, and nowhere else, files of processes that ended without being asked:
  those that were killed, and the workers of a driver that left, which Ray kills. No process has them open.
- Once the next process has been there, no file at all.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from loader_helpers import comes_true
from ray_machines import Machines
from shortgop.storage.local_copy import local_copy
from shortgop.storage.locate import storage_at
from shortgop.storage.scratch import remove_abandoned

# Ray kills the workers of a driver that left. On a busy machine that takes a while.
_PATIENCE_SECONDS = 120


def assert_nothing_left(cluster: Machines) -> int:
    """AssertionError where a job that has ended left anything else on a machine. Returns how many files there were of
    processes that were killed."""
    num_left = 0
    for name in cluster.names:
        folder = cluster.temporary(name)
        assert comes_true(partial(none_open_below, folder), _PATIENCE_SECONDS), open_below(folder)
        left = files_below(folder)
        strange = [path for path in left if not path.parts[0].startswith("shortgop-")]
        assert strange == [], f"{name} has {strange} in its TMPDIR"
        num_left += len(left)
    for name in cluster.names:
        come_next(cluster, name)
        left = files_below(cluster.temporary(name))
        assert left == [], f"{name} has {left} in its TMPDIR after another process was there"
    return num_left


def come_next(cluster: Machines, name: str) -> None:
    """Let processes copy a source on a machine, or with its disk if it is switched off: one like its workers, and one
    like the driver, which sees the processes of this machine."""
    machine, folder = cluster.all.get(name), str(cluster.temporary(name))
    if machine is not None and machine.runs:
        command = machine.inside([sys.executable, __file__])
        environment = cluster.environment | machine.own_environment
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        remove_abandoned()


def copy_a_source() -> None:
    """What a worker does first."""
    storage = storage_at("memory://store")
    assert storage.put_new("a", b"a")
    with local_copy(storage, "a", "source"):
        pass


def files_below(folder: Path) -> list[Path]:
    """The files below a folder for temporary files, relative to it."""
    return [path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()]


def none_open_below(folder: Path) -> bool:
    return not open_below(folder)


def open_below(folder: Path) -> set[str]:
    """The files below a folder that any process has open."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {path for pid in pids for path in opened_by(pid, folder)}


def opened_by(pid: int, folder: Path) -> set[str]:
    """The files below a folder that a process has open."""
    found = set()
    # It may end meanwhile.
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(descriptor.readlink()))
    return {path for path in found if path.startswith(f"{folder}/")}


if __name__ == "__main__":
    copy_a_source()
