"""Plans the units of one window after the other, in a thread, while those of earlier windows are encoded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_W = TypeVar("_W")
_P = TypeVar("_P")


class Ahead(Generic[_P]):
    """The plans of windows, in the order of the windows. `take` returns the next plan, and lets the thread begin the
    one after it. So at most one finished plan waits to be taken."""

    def __init__(self, begin_next: Callable[[], Future[_P] | None]) -> None:
        self._begin_next = begin_next
        self._next = begin_next()

    @property
    def is_over(self) -> bool:
        """Whether all were taken."""
        return self._next is None

    def take(self, *, wait: bool) -> _P | None:
        """What is planned for the next window; None if there is none, or, without `wait`, if it is not planned yet."""
        if self._next is None or not (wait or self._next.done()):
            return None
        planned = self._next.result()
        self._next = self._begin_next()
        return planned


@contextlib.contextmanager
def planned_ahead(windows: Sequence[_W], plan: Callable[[_W, Callable[[], bool]], _P]) -> Iterator[Ahead[_P]]:
    """Plans the windows ahead while the block runs. `plan` gets a window, and a function that returns True once the
    plan is no longer needed; `plan` may then raise CancelledError."""
    left = iter(windows)
    over = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="look-ahead") as pool:

        def begin_next() -> Future[_P] | None:
            for window in left:
                return pool.submit(plan, window, over.is_set)
            return None

        try:
            yield Ahead(begin_next)
        finally:
            over.set()
