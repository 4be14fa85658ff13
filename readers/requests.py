"""What callers ask for in one batch, into rows of videos and frame numbers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..errors import UsageError, WrongTypeError
from .indices import frame_numbers, integers
from .reader import SnapshotReader


def resolved_requests(reader: SnapshotReader, requests: Any, *, has_output: bool) -> tuple[list[int], list[list[int]]]:
    """The row of each request's video, and its frames, which exist.

    UsageError when they are not as many in each, or more than fit into memory, where those of an output that the
    caller brings take none; VideoNotFoundError, FrameIndexError.
    """
    if isinstance(requests, (str, bytes)) or not isinstance(requests, Iterable):
        raise WrongTypeError(f"requests is {requests!r}; it is a list of pairs, a video's id or number and its frames")
    # Lists rather than arrays: numpy's functions, which the decoder has driven out of the caches since the last
    # request, cost several times what they cost in a loop of their own.
    rows: list[int] = []
    clips: list[list[int]] = []
    counts = reader.manifest.videos.num_frames
    for request in requests:
        try:
            key, indices = request
        except (TypeError, ValueError):
            raise UsageError(f"a request is {request!r}; it is a video's id or number, and its frames") from None
        row = reader.row_of(key)
        before = len(clips) * len(clips[0]) if clips else 0
        check = partial(reader.check_fits, row, before=before, has_output=has_output)
        frames = integers(indices, key if isinstance(key, str) else None, check)
        if clips and len(frames) != len(clips[0]):
            ids = reader.manifest.videos.id
            raise UsageError(
                f"{len(frames)} frames of video {ids.text(row)!r}, {len(clips[0])} of video {ids.text(rows[0])!r}: "
                "clips that are read in one batch have as many frames each",
                video=ids.text(row),
            )
        if frames and not 0 <= min(frames) <= max(frames) < int(counts[row]):
            frames = frame_numbers(reader.manifest.video(row), frames, lambda _: None)
        rows.append(row)
        clips.append(frames)
    return rows, clips
