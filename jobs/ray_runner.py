"""Units of work on Ray: a local one that is started for the job, or a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    TaskUnschedulableError,
    WorkerCrashedError,
)

from ..manifests.errors import ShortGopError, ToolError
from ..prep.options import Options
from .units import Unit, split_unit
from .work import OnProgress, UnitProgress, UnitResult, give_up, run_unit

# A worker or a node that dies takes nothing along that is not simply done again; a unit that kills its worker each
# time has to end somewhere.
_MAX_RETRIES = 3
_POLL_SECONDS = 0.5
_KNOCK_SECONDS = 10
_BOARD_SECONDS = 5
# Two units per worker keep every worker busy while the driver looks away.
_IN_FLIGHT_PER_WORKER = 2


def connect(address: str | None, workers: int | None) -> int:
    """Start a local Ray, or join the cluster at `address` (or the one that $RAY_ADDRESS names, as in a submitted
    job); returns how many units can run at a time."""
    if address is None and os.environ.get("RAY_ADDRESS"):
        address = "auto"
    try:
        with _own_sigterm():
            _init(address, workers)
    except (OSError, ValueError, RuntimeError) as error:
        where = f"no Ray cluster answers at {address}" if address else "a local Ray does not start"
        raise ToolError(f"{where}: {error}; --runner inline does the same work in this process without Ray") from error
    available = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    return max(1, min(workers, available) if workers else available)


def _init(address: str | None, workers: int | None) -> None:
    if address is not None:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        return
    ray.init(
        # A Ray of its own, also beside a cluster that happens to run on this machine.
        address="local",
        num_cpus=workers,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        # Ray's default is to retry a task that ran out of memory for ever.
        _system_config={"task_oom_retries": _MAX_RETRIES},
    )


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray puts its own handler for SIGTERM in place, under which the process ends without tidying up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _knock(address: str) -> None:
    """Ray itself keeps trying for minutes where nobody listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()


def disconnect() -> None:
    ray.shutdown()


def run_units(
    dataset: Path, units: Sequence[Unit], options: Options, workers: int, on_progress: OnProgress
) -> Iterator[UnitResult]:
    """Run all units, a bounded number at a time, and yield each result as it comes.

    A unit whose worker keeps dying is split into its sources, and a single source that keeps killing its worker
    becomes a failure: it must not take its neighbours along.
    """
    board: Any = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
    task = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES, retry_exceptions=False)(_run_unit)
    waiting = deque(units)
    running: dict[ray.ObjectRef[UnitResult], Unit] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers * _IN_FLIGHT_PER_WORKER:
                unit = waiting.popleft()
                running[task.remote(str(dataset), unit, options, board)] = unit
            done, _ = ray.wait(list(running), timeout=_POLL_SECONDS)
            # Progress is a courtesy: while the board is being restarted elsewhere there is none.
            with contextlib.suppress(RayError):
                for progress in ray.get(board.take.remote(), timeout=_BOARD_SECONDS):
                    on_progress(progress)
            for reference in done:
                unit = running.pop(reference)
                try:
                    yield ray.get(reference)
                except (WorkerCrashedError, NodeDiedError, OutOfMemoryError) as error:
                    if len(unit.items) > 1:
                        waiting.extendleft(reversed(split_unit(unit, options.profile.key())))
                        continue
                    reason = f"{unit.items[0].source.given}: its worker died {_MAX_RETRIES + 1} times: {_brief(error)}"
                    yield give_up(dataset, unit, reason)
                except TaskUnschedulableError as error:
                    raise ToolError(f"Ray has no place for a unit of work: {_brief(error)}") from error
                except RayTaskError as error:
                    cause = error.cause
                    raise (cause if isinstance(cause, ShortGopError) else error) from None
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _run_unit(dataset: str, unit: Unit, options: Options, board: Any) -> UnitResult:
    return run_unit(Path(dataset), unit, options, board.put.remote)


class _Board:
    """An actor that holds the latest word from each unit until the driver asks."""

    def __init__(self) -> None:
        self._latest: dict[str, UnitProgress] = {}

    def put(self, progress: UnitProgress) -> None:
        self._latest[progress.unit] = progress

    def take(self) -> list[UnitProgress]:
        latest = list(self._latest.values())
        self._latest.clear()
        return latest


def _brief(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
