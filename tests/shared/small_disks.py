"""A disk that is full soon."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted_disk(folder: Path, options: str = "size=5m") -> Iterator[Path]:
    """Mount a file system, of 5 MB, on a folder; the test is skipped where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system takes rights that are missing here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
