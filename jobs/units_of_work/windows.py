"""How the sources of a job are divided into windows, one after the other. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

WINDOW_SOURCES = 10_000
"""The units of a job are planned over so many sources at a time. Looking at them takes seconds rather than minutes,
and all that is known of three windows tens of megabytes. It is many times 64, so that the units of a window, which are
about its 64th part, are as long as those of a larger one."""

# The first of several windows is smaller by so much: encoding begins when it was looked at.
_FIRST_PART = 10

_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True)
class Window(Generic[_K]):
    """A run of neighbours: the keys of its first and its last one, and how many they are."""

    first: _K
    last: _K
    count: int


def first_size(size: int) -> int:
    """The size of the first one of several windows."""
    return max(1, size // _FIRST_PART)


def one_window_size(size: int) -> int:
    """Up to so many neighbours are one window: looking at them takes hardly longer than at those of a first one, and
    the window after it would be smaller than it."""
    return min(size, 2 * first_size(size))


def windows(keys: Iterable[_K], size: int, first: int) -> Iterator[Window[_K]]:
    """Windows of at least `size` neighbours, the first one of at least `first`; only the last one may be of fewer.
    Those with the same key, such as the stretches of a file, are neighbours and in one window, which may be larger for
    it.

    Where the windows lie depends on the keys alone. So a job that goes on has those of the job before it.
    """
    keys = iter(keys)
    # A loop that does little for each key: there may be a million.
    run = list(islice(keys, first))
    while run:
        start, last, count = run[0], run[-1], len(run)
        after = next(keys, None)
        while after is not None and after == last:
            count += 1
            after = next(keys, None)
        yield Window(start, last, count)
        run = [] if after is None else [after, *islice(keys, size - 1)]
