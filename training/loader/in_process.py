"""What a pool of workers does, without any: the calling process reads each unit when an answer is waited for."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext

from .arena import Arena
from .messages import Done, ReadsItems, Work
from .worker import read_work


class CallingProcess:
    """Has the methods of WorkerPool."""

    restarts = 0

    def __init__(self, dataset: ReadsItems, threads: int | None) -> None:
        """`threads` decode, or as many as the dataset was opened with."""
        self._dataset, self._threads = dataset, threads
        self._arenas: dict[int, Arena] = {}
        self._waiting: deque[Work] = deque()

    def add_arena(self, number: int, arena: Arena) -> None:
        self._arenas[number] = arena

    def submit(self, work: Work) -> None:
        self._waiting.append(work)

    def cancel(self, pass_number: int) -> list[int]:
        given_up = [work.number for work in self._waiting if work.pass_number == pass_number]
        self._waiting = deque(work for work in self._waiting if work.pass_number != pass_number)
        return given_up

    def answers(self, *, wait: bool) -> list[Done]:
        if not (wait and self._waiting):
            return []
        work = self._waiting.popleft()
        # The dataset may be another loader's, too.
        on_threads = nullcontext() if self._threads is None else self._dataset.on_threads(self._threads)
        with on_threads:
            return [read_work(self._dataset, work, self._arenas[work.arena])]

    def close(self) -> None:
        self._waiting.clear()
