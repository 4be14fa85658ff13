"""How the progress of units gets from Ray's workers to the driver: through an actor, or on one machine a named pipe.

Progress is optional. It is lost where Ray restarts the actor on another node; so is what comes last where a pipe is
full, or where the actor is busy with other workers.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...storage.scratch import remove_abandoned, scratch_path
from ..units_of_work.unit_results import OnProgress, UnitProgress

# The driver has other things to do than to wait for a busy actor.
_ANSWER_SECONDS = 0.1
_READ_BYTES = 1 << 16
# Writes of at most so many bytes are never mixed with those of other processes (POSIX, `write` and PIPE_BUF, which is
# at least that).
_MOST_BYTES = 512


@dataclass(frozen=True)
class Board:
    """`put` may be sent to workers. `take` gives the latest progress of each unit or section since it was last called,
    in the driver."""

    put: OnProgress
    take: Callable[[], list[UnitProgress]]


@contextlib.contextmanager
def progress_board(*, shared: bool) -> Iterator[Board]:
    """A board for as long as the context lasts. With `shared`, workers may be on other machines."""
    # An actor is a process of its own: 1 % of a core even if it does nothing.
    path = None if shared else _new_pipe()
    if path is None:
        yield _actor_board()
    else:
        with _pipe_board(path) as board:
            yield board


class ProgressOfUnits:
    """The latest progress of each unit. Ray's dashboard shows the name of the class."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, int | None], UnitProgress] = {}

    def put(self, progress: UnitProgress) -> None:
        self._latest[progress.unit, progress.section] = progress

    def take(self) -> list[UnitProgress]:
        latest = list(self._latest.values())
        self._latest.clear()
        return latest


def _actor_board() -> Board:
    # On any other machine it would be lost with that one, and with it all progress until Ray has noticed.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    latest: Any = ray.remote(num_cpus=0, max_restarts=-1)(ProgressOfUnits)
    # Its calls are several a second for each core: Ray's dashboard would list little else.
    actor = latest.options(scheduling_strategy=here, enable_task_events=False).remote()
    return Board(_Puts(actor), _Takes(actor))


class _Takes:
    """Takes what an actor has, without waiting for one that is busy."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._unanswered: Any = None

    def __call__(self) -> list[UnitProgress]:
        self._unanswered = self._unanswered or self._actor.take.remote()
        if not ray.wait([self._unanswered], timeout=_ANSWER_SECONDS)[0]:
            # The answer is taken later: what the actor has given is no longer there.
            return []
        answered, self._unanswered = self._unanswered, None
        with contextlib.suppress(RayError):
            latest: list[UnitProgress] = ray.get(answered)
            return latest
        return []


class _Puts:
    """Puts progress into the actor, but for what comes while the put before waits for its answer. An actor takes a few
    thousand puts a second: those of a large cluster would wait there in ever longer lines, and the driver behind them.

    Each task gets one of its own. So the first report of a step is always put, which tells when the step began.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._unanswered: Any = None

    def __call__(self, progress: UnitProgress) -> None:
        if self._unanswered is None or ray.wait([self._unanswered], timeout=0)[0]:
            self._unanswered = self._actor.put.remote(progress)

    def __reduce__(self) -> tuple[type[_Puts], tuple[Any]]:
        return _Puts, (self._actor,)


def _new_pipe() -> Path | None:
    """A new named pipe. None where the folder for temporary files is in a file system that has none."""
    remove_abandoned()
    try:
        path = scratch_path("progress")
        os.mkfifo(path, 0o600)
    except OSError:
        return None
    return path


@contextlib.contextmanager
def _pipe_board(path: Path) -> Iterator[Board]:
    try:
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            yield Board(partial(_put_into_pipe, str(path)), partial(_taken, pipe))
        finally:
            os.close(pipe)
    finally:
        path.unlink(missing_ok=True)


def _put_into_pipe(path: str, progress: UnitProgress) -> None:
    line = f"{json.dumps(astuple(progress))}\n".encode()
    # The pipe is full, the driver is gone, or the name of a machine is very long.
    with contextlib.suppress(OSError):
        if len(line) > _MOST_BYTES:
            return
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, line)
        finally:
            os.close(pipe)


def _taken(pipe: int) -> list[UnitProgress]:
    data = b""
    # At the end of the data this raises BlockingIOError while a worker has the pipe open, and gives nothing otherwise.
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(pipe, _READ_BYTES):
            data += piece
    latest = ProgressOfUnits()
    for line in data.splitlines():
        latest.put(UnitProgress(*json.loads(line)))
    return latest.take()
