"""Looking at sources on the machines of a cluster, for a driver that has many of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from ..prep.options import Options
from .look import Looked, LookElsewhere, look_at
from .sources import Source

# About a quarter of a second for one core.
_TASK_SOURCES = 250
_CPU_SHARE = 0.25
_MAX_RETRIES = 3
# What is not known by then the driver looks at.
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.2


@contextlib.contextmanager
def looks_on_cluster() -> Iterator[LookElsewhere]:
    """Inside `ray_runner.connected`: yields a function that any thread may call. After the block it looks at nothing
    more, and Ray may be shut down."""
    is_over, busy = threading.Event(), threading.Lock()

    def look(sources: Sequence[Source], options: Options, num_in_store: int) -> list[Looked | None]:
        with busy:
            if is_over.is_set():
                return [None] * len(sources)
            parts = [sources[first : first + _TASK_SOURCES] for first in range(0, len(sources), _TASK_SOURCES)]
            # A part of a CPU, so that they fit between the units, and a head without CPUs gets none.
            task: Any = ray.remote(num_cpus=_CPU_SHARE, max_retries=_MAX_RETRIES)(_look)
            running = {
                task.options(name=f"look at {len(part)} sources", scheduling_strategy="SPREAD").remote(
                    part, options, num_in_store
                ): part
                for part in parts
            }
            left, end = list(running), time.monotonic() + _PATIENCE_SECONDS
            while left and not is_over.is_set() and time.monotonic() < end:
                _, left = ray.wait(left, num_returns=len(left), timeout=_POLL_SECONDS)
            return [each for reference, part in running.items() for each in _outcome(reference, part, left)]

    try:
        yield look
    finally:
        is_over.set()
        with busy:
            pass


def _outcome(reference: Any, part: Sequence[Source], left: Sequence[Any]) -> Sequence[Looked | None]:
    if reference not in left:
        with contextlib.suppress(RayError):
            found: list[Looked | None] = ray.get(reference)
            return found
    return [None] * len(part)


def _look(sources: Sequence[Source], options: Options, num_in_store: int) -> list[Looked | None]:
    looked = look_at(sources, options, {}, (), replace=False, num_in_store=num_in_store)
    # The driver may be able to read what this machine cannot.
    return [each if each.item.size_bytes else None for each in looked]
