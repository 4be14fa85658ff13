"""Requests that are made again when they fail, twice when they take long, and given up in time."""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from ..errors import UsageError
from . import outages
from .network import NetworkOptions, RequestCounter, RequestCounts
from .object_errors import Failure, error_of, failure

_T = TypeVar("_T")
_HEDGING_THREADS = 256
# What never answered is asked so often at least, as AWS's own tools do (the retry mode "standard"): the first answers
# of a store that was idle may take long.
_LEAST_ATTEMPTS = 3
# Beyond any limit of a pause, and not yet of floating point.
_MOST_DOUBLINGS = 60
# As obstore says it.
_TOO_LATE = "operation timed out"
# A draw from the sequence of the `random` module would change what training draws after it.
_JITTER = random.SystemRandom()


class _Process:
    """Whether this process may use obstore. Its threads do not come along in a fork, and a request would wait for them
    forever."""

    used = False
    forked = False


def _after_fork() -> None:
    _Process.forked = _Process.forked or _Process.used


os.register_at_fork(after_in_child=_after_fork)


def check_process(place: str) -> None:
    """UsageError in a process that was forked from one that had used an object store."""
    if _Process.forked:
        raise UsageError(
            f"{place} cannot be used in this process: it was forked from one that had used an object store, whose "
            "connections do not come along. Start processes with multiprocessing.get_context('forkserver') or "
            "('spawn'); DataLoader takes either as multiprocessing_context"
        )
    _Process.used = True


class Requests:
    """Makes requests to one store, with its limits, and counts them. Any number of threads may use it."""

    def __init__(self, options: NetworkOptions, credentials: Callable[[], str]) -> None:
        self.options = options
        self.counter = RequestCounter()
        self.credentials = credentials
        # Whether the store has answered a request, be it with an error, and whether it has done what it was asked for.
        self._has_answered = False
        self._has_served = options.first_answer_seconds == math.inf
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._hedging: ThreadPoolExecutor | None = None

    def make(self, request: Callable[[], _T], place: str, patience_seconds: float = 0.0) -> _T:
        """The answer to a request. If its failure may pass it is made again, for `patience_seconds` and as often as the
        options say. A store that asks for fewer requests is waited for. Raises the errors of the interface, and what
        obstore raises where a condition does not hold."""
        return self._made(request, place, patience_seconds, until=math.inf)

    def read(self, request: Callable[[], _T], place: str) -> _T:
        """Like `make`, for requests that change nothing: a second one is made if the first takes long, and there is an
        error in time where the options say so."""
        limit = self.options.give_up_after_seconds
        until = math.inf if limit is None else time.monotonic() + limit
        return self._made(lambda: self._first_of_two(request, until), place, 0.0, until=until)

    def all(self, requests: list[Callable[[], _T]]) -> list[_T]:
        """The results of several calls of `make` or `read`, which run at the same time."""
        if len(requests) < 2:
            return [request() for request in requests]
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.options.max_concurrent_requests, "shortgop-requests")
        futures = [self._threads.submit(request) for request in requests]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def _made(self, request: Callable[[], _T], place: str, patience_seconds: float, *, until: float) -> _T:
        import obstore.exceptions as theirs

        check_process(place)
        began, least_seconds, failures = time.monotonic(), math.inf, 0
        told: Failure | None = None
        try:
            for attempt in itertools.count():
                self.counter.add(RequestCounts(requests=1))
                asked = time.monotonic()
                try:
                    answer = request()
                except (theirs.AlreadyExistsError, theirs.PreconditionError, EOFError):
                    self._has_answered = self._has_served = True
                    raise
                except (theirs.BaseError, OSError, ValueError) as error:
                    pause = backoff_seconds(attempt, self.options, _JITTER.random())
                    what, then = failure(error), time.monotonic() + pause
                    failures += not what.is_throttling
                    self._has_answered = self._has_answered or not what.connection
                    waits = self._has_served and outages.are_waited_for()
                    outage_seconds = self.options.outage_seconds if waits else 0.0
                    waited_for = self.options.throttled_seconds if what.is_throttling else outage_seconds
                    tried_again = attempt if what.is_throttling else failures - 1
                    is_last = then >= began + max(waited_for, patience_seconds) and tried_again >= self.options.retries
                    is_last = is_last or then >= until
                    if attempt + 1 >= _LEAST_ATTEMPTS and not self._has_answered:
                        is_last = is_last or then > began + self.options.first_answer_seconds
                    if is_last or not what.is_passing:
                        # What the store answered before says more than that the time was up. A traceback would show
                        # the page of text of obstore's error.
                        said = told if told and isinstance(error, TimeoutError) else what
                        raise error_of(said, place, self.credentials()) from None
                    told = told if what.connection else what
                else:
                    self._has_answered = self._has_served = True
                    least_seconds = time.monotonic() - asked
                    return answer
                self.counter.add(RequestCounts(retries=1))
                outages.pause(pause)
            raise AssertionError("the last attempt returns or raises")
        finally:
            waited_seconds = time.monotonic() - began
            self.counter.add(RequestCounts(waited_seconds=waited_seconds, least_seconds=least_seconds))

    def _first_of_two(self, request: Callable[[], _T], until: float) -> _T:
        """The first answer, where a second request is made after a time. TimeoutError at `until`."""
        hedge_after = self.options.hedge_after_seconds
        if hedge_after is None and until == math.inf:
            return request()
        with self._lock:
            if self._hedging is None:
                self._hedging = ThreadPoolExecutor(_HEDGING_THREADS, "shortgop-hedging")
        done, running = set[Future[_T]](), {self._hedging.submit(request)}
        if hedge_after is not None and time.monotonic() + hedge_after < until:
            done, running = wait(running, hedge_after)
            if not done:
                self.counter.add(RequestCounts(requests=1, hedged=1))
                running.add(self._hedging.submit(request))
        while running:
            left = None if until == math.inf else max(0.0, until - time.monotonic())
            done, running = wait(running, left, return_when=FIRST_COMPLETED)
            if not done:
                # Those threads are free again when their requests end.
                raise TimeoutError(_TOO_LATE)
            succeeded = [future for future in done if future.exception() is None]
            if succeeded:
                return succeeded[0].result()
        return done.pop().result()


def backoff_seconds(attempt: int, options: NetworkOptions, draw: float) -> float:
    """How long to wait after a failed attempt, the first being 0: exponential, with full jitter. `draw` is uniform in
    [0, 1)."""
    return draw * min(options.max_backoff_seconds, options.first_backoff_seconds * 2.0 ** min(attempt, _MOST_DOUBLINGS))
