"""What is tried again, and what an ffmpeg that ended otherwise than planned means."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TypeVar

from ..errors import EncodeError
from .ffmpeg import Run, first_reason
from .stalls import REMEDY, StalledError

# That ffmpeg was ended by a signal (someone's kill, the kernel short of memory), or hung, says nothing of its source.
_ATTEMPTS = 3

_T = TypeVar("_T")


class _KilledError(EncodeError):
    """ffmpeg was ended by a signal."""


def tried_again(path: str, work: Callable[[], _T]) -> _T:
    """What `work` returns, after another attempt or two where it was killed or hung."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return work()
        except (_KilledError, StalledError) as error:
            if attempts_left == 0:
                remedy = f": {REMEDY}" if isinstance(error, StalledError) else ""
                raise EncodeError(f"{path}: {error.message}, {_ATTEMPTS} times over{remedy}", file=path) from error
    raise AssertionError("the last attempt returns or raises")


def raise_if_killed(run: Run, path: str) -> None:
    """An EncodeError that `tried_again` knows when ffmpeg was ended by a signal."""
    if run.returncode < 0:
        name = signal.Signals(-run.returncode).name
        raise _KilledError(f"ffmpeg was ended by {name}", file=path)


def raise_if_failed(run: Run, path: str, *, hung_up: bool = False) -> None:
    """EncodeError with its own reason. With `hung_up` it may have failed because nobody read its output any more."""
    if run.returncode > 0 and not (hung_up and "Broken pipe" in run.stderr):
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        raise EncodeError(f"{path}: ffmpeg failed: {first_reason(lines)}", file=path)
