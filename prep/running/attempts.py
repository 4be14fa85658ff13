"""Run ffmpeg again after a signal or a stall, and turn its failure into an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...errors import EncodeError
from .ffmpeg import RunningFfmpeg
from .gpu_errors import cause_of, first_reason
from .processes import name_of_signal
from .stalls import REMEDY, StalledError

STATED_ONCE = (
    "give OUT.mp4 of `ffmpeg -i FILE -map 0:v:0 -c copy -bsf:v h264_metadata=display_orientation=remove OUT.mp4`"
)
"""What to do with H.264 whose headers and container both say how it is turned, or that it is stereo 3D."""
_FAILS_ON_BOTH = (
    "its headers and its container probably both say how it is turned, or that it is stereo 3D, which ffmpeg takes for "
    "an error; of H.264 "
)
# ffmpeg writes no files when it says so.
_IS_STATED_TWICE = "File exists"
# A signal (a `kill`, or the kernel out of memory) or a stall does not mean that the source is bad.
_ATTEMPTS = 3

_T = TypeVar("_T")


class _KilledError(EncodeError):
    """ffmpeg was ended by a signal."""


class FfmpegFailedError(EncodeError):
    """ffmpeg failed, or did what makes its output useless. `stderr`: what it said, from its start. `cause`: why, if a
    GPU had a part in it."""

    def __init__(self, message: str, *, file: str, stderr: str, cause: str) -> None:
        super().__init__(message, file=file)
        self.stderr, self.cause = stderr, cause


def tried_again(path: str, work: Callable[[], _T]) -> _T:
    """What `work` returns. It runs up to three times where a signal ended ffmpeg or it stalled; then EncodeError."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return work()
        except (_KilledError, StalledError) as error:
            if attempts_left == 0:
                remedy = f": {REMEDY}" if isinstance(error, StalledError) else ""
                raise EncodeError(f"{path}: {error.message}, {_ATTEMPTS} times over{remedy}", file=path) from error
    raise AssertionError("the last attempt returns or raises")


def raise_if_killed(run: RunningFfmpeg, path: str) -> None:
    """Raise an EncodeError that `tried_again` catches when a signal ended ffmpeg."""
    if run.returncode < 0:
        raise _KilledError(f"ffmpeg was ended by {name_of_signal(run.returncode)}", file=path)


def raise_if_failed(run: RunningFfmpeg, path: str, *, hung_up: bool = False) -> None:
    """Raise an FfmpegFailedError with ffmpeg's own reason when it failed. `hung_up`: prep stopped reading its output,
    so a broken pipe is not a failure."""
    if run.returncode > 0 and not (hung_up and "Broken pipe" in run.stderr):
        reason = first_reason([line for line in run.stderr.splitlines() if line.strip()])
        remedy = f"; {_FAILS_ON_BOTH}{STATED_ONCE}" if _IS_STATED_TWICE in reason else ""
        raise FfmpegFailedError(
            f"{path}: ffmpeg failed: {reason}{remedy}", file=path, stderr=run.stderr, cause=cause_of(run.stderr)
        )


def raise_if_stated_twice(run: RunningFfmpeg, path: str) -> None:
    """Raise an FfmpegFailedError when ffmpeg failed on what headers and container both say: the file is whole."""
    if _IS_STATED_TWICE in run.stderr:
        raise_if_failed(run, path)


def raise_if_picture_lost(run: RunningFfmpeg, path: str) -> None:
    """Raise an FfmpegFailedError when the driver failed at a picture, which ffmpeg takes for no failure."""
    if run.lost:
        raise _useless(run, path, f"a picture was lost: {run.lost}", cause_of(run.lost))


def raise_if_grain(run: RunningFfmpeg, path: str) -> None:
    """Raise an FfmpegFailedError when a picture of a decoder on a GPU has film grain, which was not added to it."""
    if run.has_grain:
        reason = "its pictures have film grain, which NVDEC leaves out"
        raise _useless(run, path, reason, reason)


def raise_if_changed(run: RunningFfmpeg, path: str) -> None:
    """Raise an FfmpegFailedError when a frame had another range or matrix than the first one. The filter scale converts
    such frames; filters on a GPU do not."""
    if run.changes:
        reason = f"scale_cuda does not convert pictures that change: {run.changes[0]}"
        raise _useless(run, path, reason, reason)


def _useless(run: RunningFfmpeg, path: str, reason: str, cause: str) -> FfmpegFailedError:
    return FfmpegFailedError(f"{path}: {reason}", file=path, stderr=run.stderr, cause=cause)
