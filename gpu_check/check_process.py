"""Runs a check in a process of its own, and kills it when its time is over. The only module that starts checks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from check_report import GRACE_SECONDS, Check, Ended

CHILD = Path(__file__).with_name("check_child.py")
_LOOK_SECONDS = 0.05
# A check that prints without end would fill the disk.
_MOST_PRINTED_BYTES = 64_000_000
_KEPT_BYTES = 1_000_000


def run_check(check: Check, samples: Path, limit_seconds: float) -> Ended:
    """Run a check, and wait until it ends or its time is over.

    Processes that it leaves in its group are killed too. The check may crash, hang, and print or write anything.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as folder:
        report, log = Path(folder, "report"), Path(folder, "log")
        report.touch()
        argv = [sys.executable, "-u", str(CHILD), check.function, str(report), str(samples), f"{limit_seconds:.1f}"]
        # What the check reads of this pipe ends when this process does, in whatever way.
        pipe, held = os.pipe()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*argv, str(pipe)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(pipe,),
            )
        os.close(pipe)
        killed, time_was_up = "", False
        try:
            killed, time_was_up = _wait(process.pid, log, started + limit_seconds, limit_seconds)
        finally:
            # Kill the group before reading the status: until then the system gives its number to no other group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            os.close(held)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS / 2)
        seconds = time.monotonic() - started
        return Ended(process.returncode, seconds, killed, time_was_up, _end_of(report), _end_of(log))


def _wait(pid: int, log: Path, deadline: float, limit_seconds: float) -> tuple[str, bool]:
    """Wait until the process has ended, or has to be killed; says why, and whether its time was up."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            return f"it took more than {limit_seconds:.0f} s", True
        if log.stat().st_size > _MOST_PRINTED_BYTES:
            return f"it printed more than {_MOST_PRINTED_BYTES // 1_000_000} MB", False
        time.sleep(_LOOK_SECONDS)
    return "", False


def _end_of(file: Path) -> bytes:
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - _KEPT_BYTES))
        return opened.read()
