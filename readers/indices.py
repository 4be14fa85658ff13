"""What callers name frames by, into frame numbers: negative numbers, slices, lists, arrays, tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..manifests.errors import FrameIndexError, UsageError
from ..manifests.video import VideoRow

Indices = Iterable[int] | NDArray[np.integer[Any]] | torch.Tensor


def frame_number(video: VideoRow, index: Any) -> int:
    """One index, -1 being the last frame. FrameIndexError when there is no such frame, TypeError for no integer."""
    number = operator.index(index)
    resolved = number + video.num_frames if number < 0 else number
    if not 0 <= resolved < video.num_frames:
        raise _no_frame(video, number)
    return resolved


def frame_numbers(video: VideoRow, indices: Indices) -> list[int]:
    """Several indices, likewise; what is not a list of integers is a UsageError."""
    numbers = integers(indices, video.id)
    count = video.num_frames
    for number in numbers:
        if not -count <= number < count:
            raise _no_frame(video, number)
    return [number + count if number < 0 else number for number in numbers]


def integers(indices: Indices, video_id: str | None) -> list[int]:
    """Indices of a video's frames as they were given; UsageError when they are no list of integers."""
    if isinstance(indices, torch.Tensor):
        array = indices.detach().cpu().numpy()
    elif isinstance(indices, np.ndarray):
        array = indices
    else:
        given = list(indices)
        if all(type(index) is int for index in given):
            return given
        array = np.array(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(
            f"frames are given as a list of integers, not as {array.ndim}-dimensional {array.dtype}", video=video_id
        )
    numbers: list[int] = array.tolist()
    return numbers


def frames_in_slice(video: VideoRow, start: int | None, stop: int | None, step: int | None) -> list[int]:
    """The frames of video[start:stop:step]: as Python slices, except that the step has to be positive."""
    if step is not None and step < 1:
        raise UsageError(
            f"step is {step}; it has to be 1 or more (get_frames_at takes frames in any order)", video=video.id
        )
    return list(range(*slice(start, stop, step).indices(video.num_frames)))


def _no_frame(video: VideoRow, number: int) -> FrameIndexError:
    return FrameIndexError(
        f"video {video.id!r} has no frame {number}: it has {video.num_frames}, 0 to {video.num_frames - 1}",
        video=video.id,
        frame=number,
    )
