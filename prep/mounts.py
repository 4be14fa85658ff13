"""Reading sources in this process, once another process has found that their mount answers.

A file that is open on a mount that does not answer does more harm than to the thread that reads it: every process
that is started inherits the file and closes it as its program begins, which FUSE tells the mount and waits. So the
first byte is read by a process that can be left behind, and this process opens the file only after that.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from . import processes
from .stalls import Watch, activity_of_group, in_time

_READER = ("head", "-c", "1", "--")
# How long the answer holds. Starting the process takes 2 ms, which is too much to ask for each of a million sources.
_VALID_SECONDS = 10

_T = TypeVar("_T")
_answered: dict[int, float] = {}
"""When a byte was last read from a device."""


def read_in_time(path: str, work: Callable[[], _T], what: str) -> _T:
    """What `work` returns or raises, which reads the file at `path`; StalledError when it makes no progress."""
    device = in_time(lambda: _device(path), what)
    if device is not None and time.monotonic() - _answered.get(device, -_VALID_SECONDS) >= _VALID_SECONDS:
        _read_a_byte(path, what)
        _answered[device] = time.monotonic()
    return in_time(work, what)


def _device(path: str) -> int | None:
    """The device of the file; None where there is no ordinary file, which `work` says better."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    # Reading from a pipe or a device would wait, or take something away.
    return status.st_dev if stat.S_ISREG(status.st_mode) else None


def _read_a_byte(path: str, what: str) -> None:
    try:
        process = processes.start([*_READER, path], env=os.environ)
    except OSError:
        # Without the program nothing is found out, and reading goes on as it would.
        return
    watch = Watch(what, lambda: activity_of_group(process.pid))
    try:
        while not process.wait(watch.look_seconds):
            watch.look(watch.look_seconds)
    except BaseException:
        processes.end(process)
        raise
    finally:
        process.stdout.close()
        process.stderr.close()
