"""Readers timed against each other: in turn, several rounds, and what can be said of that."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Task = Callable[[int], object]
"""Does the request of this number."""


@dataclass(frozen=True)
class Spread:
    """The median of several rounds, and the extremes."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.lowest)}-{_short(self.highest)})"


@dataclass(frozen=True)
class Figures:
    """How a reader did: milliseconds for a request, and how many times as long as the first reader that is.

    Each round gives the mean over its requests, which is what throughput depends on.
    """

    name: str
    milliseconds: Spread
    ratio: Spread


@dataclass(frozen=True)
class Measured:
    """`seconds` has for each reader that did every request a list of rounds, each a list of requests; `problems` says
    what the others raised."""

    seconds: dict[str, list[list[float]]]
    problems: dict[str, str]

    def figures(self) -> list[Figures]:
        """Every reader against the first one."""
        means = {name: [statistics.fmean(round_) for round_ in rounds] for name, rounds in self.seconds.items()}
        first = next(iter(means.values()), [])
        return [
            Figures(
                name, spread([1000 * mean for mean in own]), spread([a / b for a, b in zip(own, first, strict=True)])
            )
            for name, own in means.items()
        ]


def spread(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def _short(value: float) -> str:
    """Two digits at least, and none that nobody can measure."""
    return f"{value:.2f}" if value < 1.995 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def alternate(
    tasks: Mapping[str, Task],
    *,
    rounds: int,
    requests: int | None = None,
    seconds_per_round: float = 1.0,
    most_requests: int = 1000,
    on_round: Callable[[], object] = lambda: None,
) -> Measured:
    """Let the readers do each request in turn, each time another one first.

    Without `requests`, a round has as many as fit `seconds_per_round`, judged by one that is not counted; request
    numbers go from 0 and are below rounds * most_requests. A reader that raises anything is left out from there on.
    """
    problems: dict[str, str] = {}
    left = dict(tasks)

    def timed(name: str, number: int) -> float:
        start = time.perf_counter()
        try:
            result = left[name](number)
        except Exception as error:  # noqa: BLE001  # other people's libraries raise what they like
            problems[name] = explained(error)
            del left[name]
            return 0.0
        seconds = time.perf_counter() - start
        # Giving memory back is not part of reading.
        del result
        return seconds

    for name in tasks:
        timed(name, 0)
    if requests is None:
        cost = sum(timed(name, 0) for name in tuple(left))
        requests = int(np.clip(seconds_per_round / max(cost, 1e-6), 1, most_requests))
    seconds: dict[str, list[list[float]]] = {name: [] for name in left}
    for round_ in range(rounds):
        took: dict[str, list[float]] = {name: [] for name in left}
        for number in range(round_ * requests, (round_ + 1) * requests):
            names = tuple(left)
            for place in range(len(names)):
                name = names[(number + place) % len(names)]
                took[name].append(timed(name, number))
        for name, values in took.items():
            seconds[name].append(values)
        on_round()
    return Measured({name: rounds_ for name, rounds_ in seconds.items() if name not in problems}, problems)


def explained(error: BaseException) -> str:
    """The first line of what an error says, with its kind."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
