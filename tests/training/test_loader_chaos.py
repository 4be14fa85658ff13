"""Six seconds of killing what belongs to a loader; `make chaos` goes on for as long as one likes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loader_chaos import cases

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="processes are looked up in /proc"),
]


def test_whatever_is_killed_training_sees_the_undisturbed_sequence(tmp_path: Path) -> None:
    done = list(cases(6, 3, tmp_path))
    assert sum(case.counts["batches"] for case in done) > 0


def test_loaders_that_were_made_and_dropped_leave_nothing() -> None:
    """In a process of its own: connections to stores that other tests left open close when they like."""
    program = Path(__file__).parents[1] / "shared" / "loader_chaos.py"
    done = subprocess.run(
        [sys.executable, str(program), "--loaders", "10"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "10 loaders made and dropped" in done.stdout
