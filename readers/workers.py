"""Threads for the parts of a request."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

Part = TypeVar("Part")


class Workers:
    """Runs a function on several threads. They start with the first request that has several parts.

    With one thread it uses the calling thread. A forked process has none of its parent's threads, and starts its own.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def each(self, function: Callable[[Part], None], parts: Sequence[Part]) -> None:
        """Call the function with each part.

        When calls fail, the error of the first such part is raised, after all running calls have ended.
        """
        if self.threads == 1 or len(parts) < 2:
            for part in parts:
                function(part)
            return
        futures = [self._executor().submit(function, part) for part in parts]
        try:
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)

    def _executor(self) -> ThreadPoolExecutor:
        process = os.getpid()
        if self._pool is None or self._pool[0] != process:
            self._pool = (process, ThreadPoolExecutor(self.threads, thread_name_prefix="shortgop"))
        return self._pool[1]
