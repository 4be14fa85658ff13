"""Runs a program for what it says of itself, again where a signal ended it: that says nothing of the program."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ...errors import ToolError
from . import processes
from .processes import Finished, name_of_signal

_ATTEMPTS = 3
# What a program that is broken here, or whose driver is, brings upon itself.
_FAULTS = {signal.SIGSEGV, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}


def run_trial(argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float) -> Finished:
    """Run a program to its end, up to three times where a signal ends it.

    ToolError where the signal came from outside each time, such as SIGKILL from a kernel that is out of memory, so that
    nobody takes this for what the program does. After a fault of the program's own the result has its signal. OSError
    when it does not start; TimeoutError when it takes longer.
    """
    for _ in range(_ATTEMPTS):
        done = processes.run(argv, stdin=stdin, timeout_seconds=timeout_seconds)
        if done.returncode >= 0:
            return done
    if -done.returncode in _FAULTS:
        return done
    raise ToolError(
        f"{argv[0]} was ended by {name_of_signal(done.returncode)}, {_ATTEMPTS} times over, when prep tried "
        "what it can do; the machine may be out of memory: let fewer units run at a time (--workers), or give it more "
        "memory, and run the same command again; what is finished is kept",
        file=argv[0],
    )
