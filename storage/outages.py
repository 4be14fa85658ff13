"""How long requests wait for stores that fail for minutes: until the job ends whose requests they are."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

# A job's requests run in many threads, and Python waits for these before it ends.
_ended = threading.Event()


@contextlib.contextmanager
def waited_for() -> Iterator[None]:
    """An error or an interruption that leaves this block ends the waits of `NetworkOptions.outage_seconds` in all
    threads of this process. Until another such block begins, requests are made again only as often as `retries` says.
    """
    _ended.clear()
    try:
        yield
    except BaseException:
        end()
        raise


def end() -> None:
    """End the waits now, as where an interruption waits for threads before it leaves that block."""
    _ended.set()


def are_waited_for() -> bool:
    """Whether `NetworkOptions.outage_seconds` counts."""
    return not _ended.is_set()


def pause(seconds: float) -> None:
    """Sleep between two attempts of a request, or until the waits end."""
    if _ended.is_set():
        time.sleep(seconds)
    else:
        _ended.wait(seconds)
