"""The memory that this process had at most. Linux only."""

from __future__ import annotations

import contextlib
from pathlib import Path


def peak_bytes() -> int:
    """The most that it had in memory at any time: unlike ru_maxrss, without what the process had that started it."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    """Let the peak begin again with what this process has now (proc(5), `clear_refs`); older peaks stay where Linux was
    built without that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
