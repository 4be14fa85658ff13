"""Work on many files of a dataset: one after the other on a disk, several at once in a store, where each request waits
for its answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ...storage import outages
from ...storage.interface import Storage

_Item = TypeVar("_Item")
_T = TypeVar("_T")

# Each has a part in memory. Decoding them keeps one core busy at some hundred in a second, so more would not be faster.
_AT_ONCE = 16


def in_order(dataset: Storage, work: Callable[[_Item], _T], items: Sequence[_Item]) -> Generator[_T, None, None]:
    """The results of `work` for each of the items, in their order. An error comes where its result would."""
    if dataset.folder is not None or len(items) < 2:
        yield from map(work, items)
        return
    running: deque[Future[_T]] = deque()
    with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "shortgop-files") as threads:
        try:
            for item in items:
                running.append(threads.submit(work, item))
                if len(running) == _AT_ONCE:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except KeyboardInterrupt:
            # It leaves the pool only when its threads have ended.
            outages.end()
            raise
        finally:
            for each in running:
                each.cancel()
