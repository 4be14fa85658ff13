"""Processes that tests started, and what those started in turn."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shortgop.prep.running import processes


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """(pid, command line) of all processes below one, as /proc has them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # Unlike `stat`, it is readable also while the process starts and waits for a mount.
                parent = int((entry / "status").read_text(errors="replace").partition("PPid:")[2].split()[0])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    waiting = children.get(pid, [])
    while waiting:
        child = waiting.pop()
        try:
            yield child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        waiting += children.get(child, [])


@contextlib.contextmanager
def opened_processes(pids: Iterable[int]) -> Iterator[list[int]]:
    """Handles of those of these processes that there are. The number of one that has ended may be another's."""
    with contextlib.ExitStack() as stack:
        handles = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handles.append(os.pidfd_open(pid))
                stack.callback(os.close, handles[-1])
        yield handles


def kill(handles: Sequence[int]) -> None:
    """SIGKILL the processes of these handles that have not ended."""
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


# How Ray names the process of a worker while it does a step: see `ray_runner.task_name`.
_STEP = re.compile(r"ray::(look at|encode|join|section \d+/\d+ of) ")


def kill_workers(pid: int) -> int:
    """SIGKILL the workers of a job on Ray, with this pid, that do a step just now. Returns how many there were."""
    killed = 0
    for child, command in descendants(pid):
        if _STEP.match(command):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                killed += 1
    return killed


def kill_with_all_below(job: subprocess.Popen[bytes], *, patience_seconds: float) -> None:
    """SIGKILL a job, and wait until all processes below it have ended, which Ray's do by themselves."""
    below = [pid for pid, _ in descendants(job.pid)]
    job.kill()
    job.wait()
    end = time.monotonic() + patience_seconds
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < end, "processes of the job live on"
        time.sleep(0.05)


def first_line(code: str, *arguments: str) -> bytes:
    """The first line that a Python program prints. It may wait for a mount, and cannot be ended then: what waits for
    the end of such processes finds it in `left_behind`."""
    child = processes.start([sys.executable, "-c", code, *arguments], env=os.environ)
    try:
        return child.stdout.readline()
    finally:
        child.stdout.close()
        child.stderr.close()
        processes.left_behind.append(child)


def naming(text: str) -> Iterator[int]:
    """The pids of all processes that have `text` in their command lines."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    yield int(entry.name)
