"""Telling what hangs from what is slow.

A mount that went away, or a driver that does not answer, holds whoever asks it for as long as it likes. Such a process
or thread uses no CPU and moves no bytes, whereas one that is merely slow, on a long file, a crowded machine or a poor
network, does. `Watch` adds up the time in which neither happens.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..errors import EncodeError

DEFAULT_LIMIT_SECONDS = 120
REMEDY = (
    "a disk, network or driver does not answer; mend that and run the same command again, or give it longer "
    "(--max-stall)"
)

# So many looks during the limit: each goes through all processes of the machine.
_LOOKS = 8
# A process that only sleeps and looks around uses less of a CPU than this, one that gets any work done uses more.
_IDLE_SHARE = 1e-3
_CLOCK_SECONDS = 0.02
# Some drivers wait in a loop. Nothing that works goes on this many limits long without reading or writing a byte.
_BUSY_LIMITS = 10

_limit: ContextVar[float] = ContextVar("limit", default=float(DEFAULT_LIMIT_SECONDS))
_T = TypeVar("_T")


class StalledError(EncodeError):
    """A process or a thread makes no progress."""


@dataclass(frozen=True)
class Activity:
    """What a process or thread did since it started; bytes are those it read and wrote."""

    cpu_seconds: float
    moved_bytes: int


@contextlib.contextmanager
def stall_limit(seconds: float) -> Iterator[None]:
    """How long whatever is started inside may go without progress. It holds for every process of a video, and is part
    of no plan."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


class Watch:
    """Whether something still makes progress, by what it has done whenever one looks.

    Only time that was spent waiting counts, `look_seconds` at most for each look: when this process itself was stopped,
    or did something else meanwhile, that says nothing of the other.
    """

    def __init__(self, what: str, activity: Callable[[], Activity | None]) -> None:
        self.limit_seconds = _limit.get()
        self.look_seconds = self.limit_seconds / _LOOKS
        self._what = what
        self._activity = activity
        self.progress()

    def progress(self) -> None:
        """Something came from it."""
        self._before: Activity | None = None
        self._idle_seconds = self._silent_seconds = 0.0

    def look(self, waited_seconds: float) -> None:
        """Nothing came for so long. StalledError when that has gone on for too long."""
        waited_seconds = min(waited_seconds, self.look_seconds)
        now, before = self._activity(), self._before
        if now is not None and (before is None or now.moved_bytes != before.moved_bytes):
            self.progress()
            self._before = now
            return
        # Where the system does not tell what it does, only what comes from it counts.
        self._silent_seconds += waited_seconds
        if now is not None and before is not None:
            self._idle_seconds += waited_seconds
            if now.cpu_seconds - before.cpu_seconds > _CLOCK_SECONDS + _IDLE_SHARE * self._idle_seconds:
                self._idle_seconds, self._before = 0.0, now
        if self._idle_seconds >= self.limit_seconds or self._silent_seconds >= _BUSY_LIMITS * self.limit_seconds:
            seconds = max(self._idle_seconds, self._silent_seconds)
            raise StalledError(f"{self._what} made no progress for {seconds:.3g} s")


def in_time(work: Callable[[], _T], what: str) -> _T:
    """What `work` returns or raises; StalledError when it makes no progress.

    It runs in a thread of its own, which is left behind then: nothing ends a thread that waits for a dead mount.
    """
    future: Future[_T] = Future()
    thread_id: list[int] = []

    def run() -> None:
        thread_id.append(threading.get_native_id())
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    watch = Watch(what, lambda: _of_folder(Path("/proc/self/task") / str(thread_id[0])) if thread_id else None)
    while not wait([future], timeout=watch.look_seconds).done:
        watch.look(watch.look_seconds)
    return future.result()


def activity_of_group(group: int) -> Activity | None:
    """Of all processes in a process group together; None where the system does not tell."""
    total = None
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and _group_of(Path(entry)) == group:
                one = _of_folder(Path(entry))
                if one is not None:
                    before = total or Activity(0.0, 0)
                    total = Activity(before.cpu_seconds + one.cpu_seconds, before.moved_bytes + one.moved_bytes)
    return total


def _group_of(folder: Path) -> int | None:
    fields = _stat(folder)
    return int(fields[2]) if fields else None


def _of_folder(folder: Path) -> Activity | None:
    """Of the process or thread with this folder in /proc."""
    fields = _stat(folder)
    if fields is None:
        return None
    moved = 0
    with contextlib.suppress(OSError, ValueError):
        lines = (folder / "io").read_text().splitlines()
        counts = dict(line.split(": ") for line in lines)
        moved = int(counts["rchar"]) + int(counts["wchar"])
    return Activity((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), moved)


def _stat(folder: Path) -> list[str] | None:
    """The fields behind the name: state, parent, process group, ..."""
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
