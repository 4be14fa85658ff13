"""Starts programs that cannot put themselves above all else on the machine.

As root, SVT-AV1 gives its threads a real-time priority (SCHED_FIFO 99). On two cores, other programs then stand still
as long as it encodes. A program that is started without the capability CAP_SYS_NICE keeps its ordinary priority.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
import threading
from collections.abc import Callable

# linux/capability.h and linux/prctl.h.
_CAP_SYS_NICE = 23
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24


def with_ordinary_priority(start: Callable[[], int], end: Callable[[int], None]) -> int:
    """Call `start`, which starts a program and returns its process id, so that the program cannot raise its priority.

    What `start` raises is raised here. If a signal's handler raises meanwhile, `end` gets the process id of the program
    that was started, and that is raised. Where no thread can be started, the program starts with the right to do so.

    A program that root starts gets the capabilities in the bounding set of the thread that starts it, and nothing can
    be put back into that set (capabilities(7)). So a thread that ends afterwards calls `start`.
    """
    if not _may_raise_priority():
        return start()
    pids: list[int] = []
    errors: list[BaseException] = []
    finished = threading.Event()

    def call() -> None:
        # Without the right to drop it (CAP_SETPCAP) this changes nothing, and the program starts all the same.
        _prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE)
        try:
            pids.append(start())
        except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
            errors.append(error)
        finally:
            finished.set()

    interruption: BaseException | None = None
    try:
        _thread.start_new_thread(call, ())
    except RuntimeError:
        # The system has no more threads, or Python is ending.
        return start()
    except BaseException as error:  # noqa: BLE001  # raised again below
        interruption = error
    # The files that the program inherits stay open until it has them, whatever comes meanwhile.
    while not finished.is_set():
        try:
            finished.wait()
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


def _prctl(option: int, value: int) -> int:
    return int(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3))
