"""Reads sources in this process, after another process has checked that their mount answers.

An open file on a mount that does not answer blocks more than the thread that reads it. Every process that is started
inherits the file and closes it when its program starts; FUSE reports the close to the mount and waits for its answer.
So another process reads the first byte, and can be abandoned; only then does this process open the file.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from . import processes
from .stalls import Watch, activity_of_group, in_time, watched

_READER = ("head", "-c", "1", "--")
# How long the check stays valid. Starting the process takes 2 ms, too much for each of a million sources.
_VALID_SECONDS = 10

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Unchecked:
    """A device that has to be checked first."""

    device: int


_answered: dict[int, float] = {}
"""Device number -> time of the last check that succeeded."""


def read_in_time(path: str, work: Callable[[], _T], what: str) -> _T:
    """What `work`, which reads the file at `path`, returns or raises. StalledError when it makes no progress,
    CancelledError when nobody waits for it any more."""

    def read_if_checked() -> _T | _Unchecked:
        device = _device(path)
        if device is not None and time.monotonic() - _answered.get(device, -_VALID_SECONDS) >= _VALID_SECONDS:
            return _Unchecked(device)
        return work()

    # Mostly the device was checked, so that this is all.
    found = in_time(read_if_checked, what)
    if not isinstance(found, _Unchecked):
        return found
    _read_a_byte(path, what)
    _answered[found.device] = time.monotonic()
    return in_time(work, what)


def _device(path: str) -> int | None:
    """The device of the file. None where it is no regular file: `work` gives the better error."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    # Reading from a pipe or a device could block, or consume data.
    return status.st_dev if stat.S_ISREG(status.st_mode) else None


def _read_a_byte(path: str, what: str) -> None:
    try:
        process = processes.start([*_READER, path], env=os.environ)
    except OSError:
        # Without the program there is no check.
        return
    watch = Watch(what, lambda: activity_of_group(process.pid))
    try:
        watched(watch, process.wait)
    except BaseException:
        processes.end(process)
        raise
    finally:
        process.stdout.close()
        process.stderr.close()
