"""Turns what callers ask for into numbers of frames and rows of videos: indices, slices, lists, arrays, tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from reprlib import repr as shortened
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..arguments import integer
from ..errors import FrameIndexError, UsageError, WrongTypeError
from ..manifests.records import VideoRow
from ..wording import counted
from .memory_limit import listed
from .reader import SnapshotReader

Indices = Iterable[int] | NDArray[np.integer[Any]] | torch.Tensor
Check = Callable[[int], object]
"""Called with the number of requested frames before they are listed; raises an error when they are too many."""


def frame_number(video: VideoRow, index: Any) -> int:
    """The frame of an index; -1 is the last. FrameIndexError when there is none, WrongTypeError for no integer."""
    if isinstance(index, (list, tuple, range, slice)) or tuple(getattr(index, "shape", ())) not in ((), (1,)):
        raise WrongTypeError(
            f"{shortened(index)} is no frame; several are video.get_frames_at([...]) or video[start:stop:step]",
            video=video.id,
        )
    number = integer(index, "a frame", video=video.id)
    resolved = number + video.num_frames if number < 0 else number
    if not 0 <= resolved < video.num_frames:
        raise _no_frame(video, number)
    return resolved


def frame_numbers(video: VideoRow, indices: Indices, check: Check) -> list[int]:
    """The frames of several indices, likewise; UsageError when they are not a list of integers."""
    numbers = integers(indices, video.id, check)
    count = video.num_frames
    for number in numbers:
        if not -count <= number < count:
            raise _no_frame(video, number)
    return [number + count if number < 0 else number for number in numbers]


def integers(indices: Indices, video_id: str | None, check: Check) -> list[int]:
    """Indices as a list, negative ones as they are; UsageError when they are not a list of integers.

    A tensor or an array of floats may be given if its values are whole numbers.
    """
    if isinstance(indices, (torch.Tensor, np.ndarray)):
        return _of_array(indices, video_id, check)
    if isinstance(indices, (str, bytes)) or not isinstance(indices, Iterable):
        raise WrongTypeError(f"frames are given as a list of integers, not as {indices!r}", video=video_id)
    given = listed(indices, check)
    if all(type(index) is int for index in given):
        return given
    # One by one: numpy converts a list that has an np.uint64 in it to floats, which are not exact.
    return [integer(index, "a frame", video=video_id) for index in given]


def _of_array(indices: NDArray[Any] | torch.Tensor, video_id: str | None, check: Check) -> list[int]:
    what = f"{indices.ndim}-dimensional {indices.dtype}"
    if indices.ndim != 1 or not _is_real(indices):
        raise UsageError(f"frames are given as a list of integers, not as {what}", video=video_id)
    check(len(indices))
    try:
        values = indices.tolist()
    except (NotImplementedError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"frames are given as a list of integers, not as {what}: {reason}", video=video_id) from error
    numbers = []
    for value in values:
        if type(value) is not int and not (isinstance(value, (float, np.floating)) and value == value // 1):
            raise UsageError(f"a frame is {value}; it has to be an integer", video=video_id)
        numbers.append(int(value))
    return numbers


def _is_real(indices: NDArray[Any] | torch.Tensor) -> bool:
    if isinstance(indices, np.ndarray):
        return indices.dtype.kind in "iuf"
    return indices.dtype != torch.bool and not indices.dtype.is_complex


def frames_in_slice(video: VideoRow, start: Any, stop: Any, step: Any) -> range:
    """The frames of video[start:stop:step], as Python slices do; UsageError when the step is not positive."""
    bounds = {"start": start, "stop": stop, "step": step}
    given = {name: None if value is None else integer(value, name, video=video.id) for name, value in bounds.items()}
    if given["step"] is not None and given["step"] < 1:
        raise UsageError(
            f"step is {step}; it has to be 1 or more (get_frames_at takes frames in any order)", video=video.id
        )
    return range(*slice(*given.values()).indices(video.num_frames))


def resolved_requests(
    reader: SnapshotReader, row_of: Callable[[str | int], int], requests: Any, *, has_output: bool
) -> tuple[list[int], list[list[int]]]:
    """The row of each request's video in the table of videos, and its frames, which exist. `row_of` gives the row of a
    video by its id or number.

    UsageError when requests differ in their number of frames, or when all frames cannot fit into memory. With
    `has_output` the caller has the memory for the pixels. VideoNotFoundError, FrameIndexError.
    """
    if isinstance(requests, (str, bytes)) or not isinstance(requests, Iterable):
        raise WrongTypeError(f"requests is {requests!r}; it has to be a list of (video's id or number, its frames)")
    # Lists rather than arrays: between two requests the decoder evicts numpy's code from the caches, so that numpy's
    # functions take several times as long here as in a loop of their own.
    rows: list[int] = []
    clips: list[list[int]] = []
    counts = reader.manifest.videos.num_frames
    for request in requests:
        try:
            key, indices = request
        except (TypeError, ValueError):
            raise UsageError(f"a request is {request!r}; it has to be (video's id or number, its frames)") from None
        row = row_of(key)
        before = len(clips) * len(clips[0]) if clips else 0
        check = partial(reader.check_fits, row, before=before, has_output=has_output)
        frames = integers(indices, key if isinstance(key, str) else None, check)
        if clips and len(frames) != len(clips[0]):
            ids = reader.manifest.videos.id
            raise UsageError(
                f"{counted(len(frames), 'frame')} of video {ids.text(row)!r}, {len(clips[0])} of video "
                f"{ids.text(rows[0])!r}: the clips of a batch have to have the same number of frames",
                video=ids.text(row),
            )
        if frames and not 0 <= min(frames) <= max(frames) < int(counts[row]):
            frames = frame_numbers(reader.manifest.video(row), frames, lambda _: None)
        rows.append(row)
        clips.append(frames)
    return rows, clips


def parse_indices(text: str, num_frames: int) -> list[int]:
    """The frames that `--frames` names: numbers such as 0,30,60, or a range such as 0:90:10 as in Python."""
    try:
        if ":" in text:
            indices = list(range(num_frames)[slice(*(int(part) if part else None for part in text.split(":")))])
        else:
            indices = [int(part) for part in text.split(",")]
    except (ValueError, TypeError):
        raise UsageError(f"--frames is {text!r}; it takes numbers such as 0,30,60 or a range such as 0:90:10") from None
    if not indices:
        raise UsageError(f"--frames {text} names no frame of the video, which has {counted(num_frames, 'frame')}")
    return indices


def _frames_named(count: int) -> str:
    """How many frames a video has, and their numbers: "75 frames, 0 to 74"."""
    return f"{counted(count, 'frame')}, 0 to {count - 1}" if count != 1 else "1 frame, 0"


def _no_frame(video: VideoRow, number: int) -> FrameIndexError:
    return FrameIndexError(
        f"video {video.id!r} has no frame {number}: it has {_frames_named(video.num_frames)}",
        video=video.id,
        frame=number,
    )
