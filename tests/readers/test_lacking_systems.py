"""Systems that lack what Linux alone has, or what most machines with Linux have: a dataset is read there all the same.

No Mac ran this: calls that macOS lacks are taken away from processes of Linux.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[1] / "shared" / "lacking_system.py"
WITHOUT_PROC = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs none /sys && mount -t tmpfs none /proc && exec "$0" "$@"')


def read(what: str, dataset: Path, folder: Path, *, before: tuple[str, ...] = ()) -> dict[str, Any]:
    folder.mkdir()
    command = [*before, sys.executable, str(PROGRAM), what, str(dataset), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_shown(found: dict[str, Any]) -> None:
    assert found["frame"] == 1007
    assert found["clips"] == [[0, 1, 2, 3], [1030, 1031, 1032, 1033]]
    assert found["columns"] == [41, 41]
    assert found["exported"] == found["prepared"] == list(range(1000, 1041))
    # 2 videos of 41 frames have 80 clips of two neighbouring ones. All ways give the same batches.
    assert sum(map(len, found["in process"])) == 80
    assert found["loader"] == found["spawn"] == found["forkserver"] == found["in process"]


def test_without_the_calls_that_linux_alone_has(clips_folder: Path, tmp_path: Path) -> None:
    check_shown(read("calls", clips_folder, tmp_path / "files"))


@pytest.mark.long
def test_without_proc_and_sys(clips_folder: Path, tmp_path: Path) -> None:
    """As in containers that mount neither."""
    tried = [*WITHOUT_PROC, "true"]
    if not shutil.which("unshare") or subprocess.run(tried, capture_output=True, check=False).returncode:
        pytest.skip("hiding /proc takes rights that are missing here")
    check_shown(read("nothing", clips_folder, tmp_path / "files", before=WITHOUT_PROC))


def test_windows_is_refused_with_what_to_do() -> None:
    """It was said that there is no module fcntl, by whatever needed that first."""
    script = "import sys; sys.platform = 'win32'; import shortgop"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("not run on Windows itself: install it in WSL, and run it there")
