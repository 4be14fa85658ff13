"""Readers timed against each other, request by request: each does the same request in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..manifests.ragged import Array
from .estimates import Estimate, median, ratio_of_sums

Task = Callable[[int], object]
"""Does the request of this number."""

LEAST_REQUESTS = 5
"""So many requests are done, however long they take."""
_SEED = 0


@dataclass(frozen=True)
class Figures:
    """How a reader did in `requests` requests, and how many times as long as the first reader it took for the same.

    `milliseconds` is the median of a request. `ratio` is the median of the ratios request by request: what a request
    is likely to take. `total_ratio` is the ratio of the sums, which is what throughput depends on; a few requests that
    take very long count for more in it. `mean_milliseconds` belongs to it.
    """

    name: str
    requests: int
    milliseconds: Estimate
    mean_milliseconds: float
    ratio: Estimate
    total_ratio: Estimate


@dataclass(frozen=True, eq=False)
class Measured:
    """`seconds` has an array for each reader that raised nothing, (requests,), NaN where the reader sat out;
    `problems` says what the others raised."""

    seconds: dict[str, Array]
    problems: dict[str, str]

    def figures(self) -> list[Figures]:
        """Every reader against the first one, which did every request."""
        first = next(iter(self.seconds.values()))
        return [_figures(name, own, first) for name, own in self.seconds.items()]


def _figures(name: str, own: Array, first: Array) -> Figures:
    done = ~np.isnan(own)
    own, first = own[done], first[done]
    return Figures(
        name,
        requests=len(own),
        milliseconds=median(1000 * own),
        mean_milliseconds=float(1000 * own.mean()),
        ratio=median(own / first),
        total_ratio=ratio_of_sums(own, first),
    )


def alternate(
    tasks: Mapping[str, Task],
    *,
    requests: int,
    seconds: float | None = None,
    least_requests: int = LEAST_REQUESTS,
) -> Measured:
    """Let the readers do requests 0 to `requests` - 1, each request by all of them, in an order drawn anew.

    `seconds` is the time for all of them: a reader that has used its share sits out from then on, so that a slow one
    leaves time for more requests of the others, but every reader does `least_requests`. The first reader does every
    request, as the others are compared with it. What it raises is raised; another reader that raises anything is left
    out. Before that each does request 0 once, which is not counted.
    """
    first = next(iter(tasks))
    share = float("inf") if seconds is None else seconds / len(tasks)
    left, problems = dict(tasks), dict[str, str]()
    took = {name: np.full(requests, np.nan) for name in tasks}
    spent = dict.fromkeys(tasks, 0.0)

    def timed(name: str, number: int) -> float:
        start = time.perf_counter()
        try:
            result = left[name](number)
        except Exception as error:
            if name == first:
                raise
            problems[name] = explained(error)
            del left[name]
            return 0.0
        elapsed = time.perf_counter() - start
        # Giving memory back is not part of reading.
        del result
        return elapsed

    for name in tasks:
        timed(name, 0)
    rng = np.random.default_rng(_SEED)
    for number in range(requests):
        taking = [name for name in left if number < least_requests or spent[name] < share]
        if not taking or (taking == [first] and len(left) > 1):
            break
        # In any fixed order a reader would always find the caches as the same other one left them.
        for name in rng.permutation([first, *(name for name in taking if name != first)]).tolist():
            elapsed = timed(name, number)
            took[name][number] = elapsed
            spent[name] += elapsed
    return Measured({name: took[name] for name in left}, problems)


def explained(error: BaseException) -> str:
    """The first line of what an error says, with its kind."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
