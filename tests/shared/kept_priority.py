"""Keeps the priority of the thread that encodes AV1."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_priority() -> Iterator[None]:
    """The calling thread has its scheduling again afterwards. As root, SVT-AV1 gives itself and the thread that opens
    it a real-time priority above all else of the machine; threads that were there before then wait for it without
    end, for Python's lock as well."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
