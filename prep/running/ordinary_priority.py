"""Starts programs that cannot put themselves above all else on the machine.

As root, SVT-AV1 gives its threads a real-time priority (SCHED_FIFO 99). On two cores, other programs then stand still
as long as it encodes. A program that is started without the capability CAP_SYS_NICE keeps its ordinary priority.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
from collections.abc import Callable

# linux/capability.h and linux/prctl.h.
_CAP_SYS_NICE = 23
_VERSION_3 = 0x20080522
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def with_ordinary_priority(start: Callable[[], int], end: Callable[[int], None]) -> int:
    """Call `start`, which starts a program and returns its process id, so that the program cannot raise its priority.

    What `start` raises is raised here. If a signal's handler raises meanwhile, `end` gets the process id of the program
    that was started, and that is raised. Where no thread can be started, the program starts with the right to do so.

    A program that root starts gets the capabilities in the bounding and inheritable sets of the thread that starts it,
    and nothing can be put back into the first (capabilities(7)). So a thread that ends afterwards calls `start`.
    """
    if not _may_raise_priority():
        return start()
    pids: list[int] = []
    errors: list[BaseException] = []
    # A plain lock: an Event stays locked where a handler raises within its code, which is Python's.
    finished = _thread.allocate_lock()
    finished.acquire()

    def call() -> None:
        try:
            _give_up_priorities()
            pids.append(start())
        except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
            errors.append(error)
        finally:
            finished.release()

    try:
        _thread.start_new_thread(call, ())
    except RuntimeError:
        # The system has no more threads, or Python is ending.
        return start()
    interruption: BaseException | None = None
    # The files that the program inherits stay open until it has them.
    while not (pids or errors):
        try:
            finished.acquire()
        except BaseException as error:  # noqa: BLE001  # raised again below
            interruption = error
    if interruption is not None:
        for pid in pids:
            end(pid)
        raise interruption
    if errors:
        raise errors[0]
    return pids[0]


def _may_raise_priority() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and _prctl(_PR_CAPBSET_READ, _CAP_SYS_NICE) == 1


def _give_up_priorities() -> None:
    # Without the right to this (CAP_SETPCAP) nothing changes, and the program starts all the same.
    _prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE)
    libc = ctypes.CDLL(None)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    if libc.capget(ctypes.byref(header), sets) == 0:
        sets[0].inheritable &= ~(1 << _CAP_SYS_NICE)
        libc.capset(ctypes.byref(header), sets)


def _prctl(option: int, value: int) -> int:
    return int(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3))
