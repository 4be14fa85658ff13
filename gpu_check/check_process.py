"""Runs a check in a process of its own, and kills it when its time is over. The only module that starts checks.

A process may be started before it is known which check it gets: it imports what most checks need, and waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from check_report import GRACE_SECONDS, Check, Ended, last_lines
from checks import AHEAD, NEED_NO_WHEELS, TEMPORARY

CHILD = Path(__file__).with_name("check_child.py")
# Many checks take less time than their imports, some 5 s: behind one of these a single process would not be ready.
_MOST_AHEAD = 2
_LOOK_SECONDS = 0.05
# A check waits for so long until its process has imported ahead: torch with CUDA takes half a minute from a cold disk.
# Then it runs in a new one, with its whole limit.
_IMPORT_SECONDS = 45.0
# Of the folder for a check's temporary files. A socket's path has 107 bytes at most, and the processes of a loader add
# 32 to the folder and more.
_MOST_TMPDIR_BYTES = 50
# A check that prints without end would fill the disk.
_MOST_PRINTED_BYTES = 64_000_000
_KEPT_BYTES = 1_000_000


@dataclass(frozen=True)
class Child:
    """A process that waits for its check, which it reads from the pipe `asking`. When that is closed, as by the end of
    the harness, it ends with all that it has started."""

    process: subprocess.Popen[bytes]
    folder: tempfile.TemporaryDirectory[str]
    asking: int

    @property
    def report(self) -> Path:
        return Path(self.folder.name, "report")

    @property
    def log(self) -> Path:
        return Path(self.folder.name, "log")


class Processes:
    """The processes of checks, one after the other. While a check runs, the next ones import what most checks need;
    which checks they get is not known yet. A check that measures something prepares that in its first seconds."""

    def __init__(self) -> None:
        self._ahead: list[Child] = []
        self.not_ahead = ""
        """Why nothing is imported ahead any more; empty where it still is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    def _end_all(self) -> None:
        while self._ahead:
            end_child(self._ahead.pop())

    def run(self, check: Check, samples: Path, left_seconds: float, waiting: Sequence[Check]) -> tuple[Ended, float]:
        """See `run_check`. Some of the checks that wait will be next. Returns how long the check might run, too: so
        long is left for all checks."""
        started = time.monotonic()
        child = self._ahead.pop(0) if self._ahead and _imports(check) else None
        if not self.not_ahead:
            for _ in range(len(self._ahead), min(_MOST_AHEAD, sum(map(_imports, waiting)))):
                self._ahead.append(start_child(AHEAD))
        if child and (why := _why_not_imported(child)):
            # What most checks import crashes or hangs, which may be of a library that few of them use.
            self._end_all()
            said = " | ".join(last_lines(end_child(child)[1]))
            self.not_ahead = f"nothing is imported ahead any more: a process {why}, and printed last: {said}"
            child = None
        left_seconds -= time.monotonic() - started
        limit = max(0.0, min(check.seconds, left_seconds - GRACE_SECONDS))
        return run_check(check, samples, limit, child), limit


def _why_not_imported(child: Child) -> str:
    """Wait until a process has imported, which is its first line. Returns why it has not; empty where it has."""
    deadline = time.monotonic() + _IMPORT_SECONDS
    while not child.report.stat().st_size:
        if os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return "ended while it imported"
        if time.monotonic() > deadline:
            return f"still imported after more than {_IMPORT_SECONDS:.0f} s"
        time.sleep(_LOOK_SECONDS)
    return ""


def _imports(check: Check) -> bool:
    return check.name not in NEED_NO_WHEELS


def start_child(*modules: str) -> Child:
    """Start a process that imports these modules and waits for its check. `run_check` or `end_child` ends it."""
    # Its name is in those of sockets, see above.
    folder = tempfile.TemporaryDirectory(prefix="gpu-", ignore_cleanup_errors=True)
    report, log = Path(folder.name, "report"), Path(folder.name, "log")
    report.touch()
    reading, asking = os.pipe()
    env = {**os.environ, TEMPORARY: tempfile.gettempdir()}
    # A check that is killed leaves files behind, and benchmarks write gigabytes: they go with this folder.
    if len(os.fsencode(folder.name)) <= _MOST_TMPDIR_BYTES:
        env["TMPDIR"] = folder.name
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", str(CHILD), str(report), *modules],
            env=env,
            stdin=reading,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    os.close(reading)
    return Child(process, folder, asking)


def end_child(child: Child) -> tuple[bytes, bytes]:
    """Kill a process and what is left in its group, and remove its files. Returns the ends of its report and log."""
    # Kill the group before reading the status: until then the system gives its number to no other group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, signal.SIGKILL)
    os.close(child.asking)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.process.wait(GRACE_SECONDS / 2)
    with child.folder:
        return _end_of(child.report), _end_of(child.log)


def run_check(check: Check, samples: Path, limit_seconds: float, child: Child | None = None) -> Ended:
    """Give a check to this process, or to a new one, and wait until it ends or its time is over, which begins now.

    Processes that it leaves in its group are killed too. The check may crash, hang, and print or write anything.
    """
    started = time.monotonic()
    child = child or start_child()
    try:
        order = {"function": check.function, "samples": str(samples), "seconds": limit_seconds, "asked_at": started}
        # A process that crashed while it imported does not read any more.
        with contextlib.suppress(BrokenPipeError):
            os.write(child.asking, json.dumps(order).encode() + b"\n")
        killed, time_was_up = _wait(child.process.pid, child.log, started + limit_seconds, limit_seconds)
    finally:
        wrote = end_child(child)
    return Ended(child.process.returncode, time.monotonic() - started, killed, time_was_up, *wrote)


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
