"""Asking the head of Ray without waiting for one that is gone.

What asks Ray's head returns only when the head answers, and 60 s after the head was lost Ray ends the process at once.
Ctrl-C and SIGTERM do nothing meanwhile. So a thread asks, and what needs the answer waits a second for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from ray.exceptions import RayError

from ...errors import ToolError

_T = TypeVar("_T")

_ANSWER_SECONDS = 1.0
# So long after the head was lost Ray ends the process, unless the environment says otherwise.
_RAY_WAITS = "RAY_gcs_rpc_server_reconnect_timeout_s"
_RAY_WAITS_SECONDS = 60.0
# A job asks every five seconds, and leaving Ray takes as long without a head.
_SOONER_SECONDS = 15.0


class NoAnswerError(ToolError):
    """The head of Ray has not answered in time. It may answer later."""


def head_patience_seconds() -> float:
    """How long a job waits for a head that does not answer."""
    try:
        waits = float(os.environ.get(_RAY_WAITS, _RAY_WAITS_SECONDS))
    except ValueError:
        waits = _RAY_WAITS_SECONDS
    return max(waits - _SOONER_SECONDS, waits / 2)


class PatientQuestion(Generic[_T]):
    """A question that any thread may ask by calling it, and that returns what `ask` does. Where the answer to an
    earlier call is still to come, a call returns that one.

    The first answer may take as long as the patience, and an error of Ray in its place is raised. Later NoAnswerError
    is raised where no answer comes at once, and ToolError where none came for longer than the patience.
    """

    def __init__(self, ask: Callable[[], _T], patience_seconds: float) -> None:
        self._ask = ask
        self._patience_seconds = patience_seconds
        self._busy = threading.Lock()
        self._to_come: Future[_T] | None = None
        self._answered_at: float | None = None
        """When the last answer came, by the monotonic clock."""

    def __call__(self) -> _T:
        with self._busy:
            self._to_come = self._to_come or _in_a_thread(self._ask)
            is_first = self._answered_at is None
            try:
                answer = self._to_come.result(self._patience_seconds if is_first else _ANSWER_SECONDS)
            except (TimeoutError, RayError) as error:
                if self._to_come.done():
                    self._to_come = None
                if is_first and isinstance(error, RayError):
                    raise
                raise self._no_answer() from error
            self._to_come, self._answered_at = None, time.monotonic()
            return answer

    def _no_answer(self) -> ToolError:
        if self._answered_at is not None and time.monotonic() - self._answered_at <= self._patience_seconds:
            return NoAnswerError("the head of Ray does not answer")
        return ToolError(
            f"the head of Ray has not answered for {self._patience_seconds:.0f} s; what is finished is kept, so run "
            "the same command again"
        )


def _in_a_thread(ask: Callable[[], _T]) -> Future[_T]:
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001  # raised where the answer is taken
            answer.set_exception(error)

    # A daemon, since it may never end.
    threading.Thread(target=run, name="shortgop: asks Ray", daemon=True).start()
    return answer
