"""What a file of tests leaves in its process. Which files share a process, and in which order, changes from run to run:
what one leaves, any other one may find."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

# Commands set handlers for good: their process ends with them. Torch's of SIGCHLD stays, which torch sets once.
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_MODE = "RAY_AUTH_MODE"


@contextlib.contextmanager
def as_found() -> Iterator[None]:
    """Restores on exit what commands and libraries change for good: the environment, the handlers of signals, and what
    becomes of exceptions that Python ignores. AssertionError if the block leaves another current folder or Ray in
    another mode: Ray's own code keeps the mode apart from the environment, so that a cluster that is started then wants
    a token, and its own process cannot join it."""
    handlers, hook = {number: signal.getsignal(number) for number in _SIGNALS}, sys.unraisablehook
    folder = Path.cwd()
    with mock.patch.dict(os.environ):
        mode = os.environ.get(_MODE)
        yield
        mode_left = os.environ.get(_MODE)
    sys.unraisablehook = hook
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert mode_left == mode, "these tests leave Ray in another mode than they found it in"
    assert Path.cwd() == folder, "these tests leave another current folder than they found"
