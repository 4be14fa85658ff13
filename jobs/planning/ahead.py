"""Plans the units of one window after the other, in a thread, while those of earlier windows are encoded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_P = TypeVar("_P")


class Ahead(Generic[_P]):
    """Plans, one after the other. `take` returns the next one, and lets the thread begin the one after it. So at most
    one finished plan waits to be taken."""

    def __init__(self, begin_next: Callable[[], Future[_P | None]]) -> None:
        self._begin_next = begin_next
        self._next: Future[_P | None] | None = begin_next()

    @property
    def is_over(self) -> bool:
        """Whether all were taken, and `take` has said so."""
        return self._next is None

    def take(self, *, wait: bool) -> _P | None:
        """The next plan; None if there is none, or, without `wait`, if it is not made yet."""
        if self._next is None or not (wait or self._next.done()):
            return None
        planned = self._next.result()
        self._next = None if planned is None else self._begin_next()
        return planned


@contextlib.contextmanager
def planned_ahead(plans: Callable[[Callable[[], bool]], Generator[_P]]) -> Iterator[Ahead[_P]]:
    """Takes plans from a generator ahead, in a thread, while the block runs. `plans` returns the generator, which is
    closed at the end; it gets a function that returns True once no plan is needed any more, and the generator may then
    raise CancelledError."""
    over = threading.Event()
    left = plans(over.is_set)
    with contextlib.closing(left), ThreadPoolExecutor(1, thread_name_prefix="look-ahead") as pool:

        def begin_next() -> Future[_P | None]:
            return pool.submit(next, left, None)

        try:
            yield Ahead(begin_next)
        finally:
            over.set()
