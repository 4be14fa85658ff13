"""Tells a process or thread that hangs from one that is slow.

A mount or driver that does not answer can block a process or thread without limit. One that is blocked uses no CPU and
reads and writes no bytes. One that is slow, because of a long file, a busy machine or a poor network, does. `Watch`
adds up the time without either.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...errors import EncodeError

DEFAULT_LIMIT_SECONDS = 120
REMEDY = (
    "a disk, network or driver does not answer; fix that and run the same command again, or give it longer "
    "(--max-stall)"
)

# How often `Watch` looks within the limit. Each look goes through all processes of the machine.
_LOOKS = 8
# A process that only sleeps and polls uses less of a CPU than this; one that works uses more.
_IDLE_SHARE = 1e-3
_CLOCK_SECONDS = 0.02
# Some drivers wait in a loop, which uses CPU. No working process goes this many limits without reading or writing a
# byte.
_BUSY_LIMITS = 10

# From Linux's include/linux/posix-timers_types.h: CPUCLOCK_SCHED and CPUCLOCK_PERTHREAD_MASK.
_CPU_CLOCK, _OF_THREAD = 2, 4
# How long reading a file of /proc may take.
_READING_SECONDS = 1.0

# So often it is asked whether what is waited for is still wanted.
_ASK_SECONDS = 0.25

_limit: ContextVar[float] = ContextVar("limit", default=float(DEFAULT_LIMIT_SECONDS))
_is_over: ContextVar[Callable[[], bool]] = ContextVar("is_over", default=bool)
_T = TypeVar("_T")


class StalledError(EncodeError):
    """A process or a thread makes no progress."""


@dataclass(frozen=True)
class Activity:
    """The CPU time that a process or thread has used since its start, and the bytes that it has read and written."""

    cpu_seconds: float
    moved_bytes: int


@contextlib.contextmanager
def stall_limit(seconds: float) -> Iterator[None]:
    """The time without progress that every process and thread started inside is allowed."""
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


@contextlib.contextmanager
def given_up_when(is_over: Callable[[], bool]) -> Iterator[None]:
    """Inside, this thread waits for no reading any more when `is_over` says so: `in_time` raises CancelledError."""
    token = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(token)


class Watch:
    """Checks at intervals whether a process or thread makes progress.

    Only time spent waiting counts, at most `look_seconds` for each look: time in which this process was stopped or did
    something else does not count.
    """

    def __init__(self, what: str, activity: Callable[[], Activity | None]) -> None:
        self.limit_seconds = _limit.get()
        self.look_seconds = self.limit_seconds / _LOOKS
        self._what = what
        self._activity = activity
        self.progress()

    def progress(self) -> None:
        """Call when output was received: the times without progress start at 0 again."""
        self._before: Activity | None = None
        self._idle_seconds = self._silent_seconds = 0.0

    def look(self, waited_seconds: float) -> None:
        """Call after `waited_seconds` without output. StalledError when there was no progress for too long."""
        waited_seconds = min(waited_seconds, self.look_seconds)
        now, before = self._activity(), self._before
        if now is not None and (before is None or now.moved_bytes != before.moved_bytes):
            self.progress()
            self._before = now
            return
        # Where the system does not report its activity, only its output counts.
        self._silent_seconds += waited_seconds
        if now is not None and before is not None:
            self._idle_seconds += waited_seconds
            if now.cpu_seconds - before.cpu_seconds > _CLOCK_SECONDS + _IDLE_SHARE * self._idle_seconds:
                self._idle_seconds, self._before = 0.0, now
        if self._idle_seconds >= self.limit_seconds or self._silent_seconds >= _BUSY_LIMITS * self.limit_seconds:
            seconds = max(self._idle_seconds, self._silent_seconds)
            raise StalledError(f"{self._what} made no progress for {seconds:.3g} s")


def watched(watch: Watch, ended: Callable[[float], object]) -> None:
    """Wait until `ended`, which waits for so many seconds, returns something true. StalledError when there was no
    progress for too long, CancelledError when nobody waits for it any more, see `given_up_when`."""
    waited_seconds = 0.0
    pause_seconds = min(_ASK_SECONDS, watch.look_seconds)
    while not ended(pause_seconds):
        if _is_over.get()():
            raise CancelledError
        waited_seconds += pause_seconds
        if waited_seconds >= watch.look_seconds:
            watch.look(waited_seconds)
            waited_seconds = 0.0


def in_time(work: Callable[[], _T], what: str) -> _T:
    """What `work` returns or raises; StalledError when it makes no progress, CancelledError when nobody waits for it
    any more.

    It runs in a thread of its own, which is abandoned after these: a thread that waits for a dead mount cannot be
    ended.
    """
    future: Future[_T] = Future()
    # A million sources are read in this way, and waiting for the future itself takes longer.
    ended = threading.Event()
    thread_id: list[int] = []

    def run() -> None:
        thread_id.append(threading.get_native_id())
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again by future.result()
            future.set_exception(error)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    watch = Watch(what, lambda: _activity(thread_id[0], of_thread=True) if thread_id else None)
    watched(watch, ended.wait)
    return future.result()


def activity_of_group(group: int) -> Activity | None:
    """The activity of all processes in a process group together; None where the system does not report it."""
    total = None
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and _group_of(int(entry.name)) == group:
                one = _activity(int(entry.name))
                if one is not None:
                    before = total or Activity(0.0, 0)
                    total = Activity(before.cpu_seconds + one.cpu_seconds, before.moved_bytes + one.moved_bytes)
    return total


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _activity(number: int, *, of_thread: bool = False) -> Activity | None:
    """The activity of the process with this number, or of this process's thread."""
    # The clock that clock_getcpuclockid(3) gives. /proc's `stat` has the time too, but reading it may hang, see below.
    clock = ~number << 3 | _CPU_CLOCK | (_OF_THREAD if of_thread else 0)
    try:
        cpu_seconds = time.clock_gettime(clock)
    except (OSError, OverflowError):
        return None
    return Activity(cpu_seconds, _moved_bytes(Path("/proc/self/task" if of_thread else "/proc") / str(number)))


def _moved_bytes(folder: Path) -> int:
    """The bytes that were read and written, as `io` in /proc says; 0 where it does not say.

    A process that has just started closes the files that it inherited. While one of them lies on a mount that does not
    answer, reading its `io` or `stat` waits for the mount too, without limit (Linux 6.18).
    """
    moved = [0]

    def read() -> None:
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split(": ") for line in (folder / "io").read_text().splitlines())
            moved.append(int(counts["rchar"]) + int(counts["wchar"]))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(_READING_SECONDS)
    return moved[-1]
