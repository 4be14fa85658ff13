"""What callers ask for in one batch, into rows of videos and frame numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..manifests.errors import UsageError
from ..manifests.ragged import Array
from .indices import FrameNumbers, Indices, frame_numbers, integers
from .reader import SnapshotReader


def resolved_requests(
    reader: SnapshotReader, requests: Sequence[tuple[str | int, Indices]]
) -> tuple[Array, FrameNumbers]:
    """The row of each request's video, (clips,), and its frames, (clips, frames), which exist.

    UsageError when they are not as many in each; VideoNotFoundError, FrameIndexError.
    """
    rows, clips = [], []
    for request in requests:
        try:
            key, indices = request
        except (TypeError, ValueError):
            raise UsageError(f"a request is {request!r}; it is a video's id or number, and its frames") from None
        rows.append(reader.row_of(key))
        clips.append(integers(indices, key if isinstance(key, str) else None))
        if len(clips[-1]) != len(clips[0]):
            ids = reader.manifest.videos.id
            raise UsageError(
                f"{len(clips[-1])} frames of video {ids.text(rows[-1])!r}, {len(clips[0])} of video "
                f"{ids.text(rows[0])!r}: clips that are read in one batch have as many frames each",
                video=ids.text(rows[-1]),
            )
    videos = np.array(rows, dtype=np.int64)
    numbers = np.stack(clips) if clips else np.zeros((0, 0), dtype=np.int64)
    counts = reader.manifest.videos.num_frames[videos, np.newaxis]
    resolved: FrameNumbers = numbers + counts * (numbers < 0)
    wrong = ((resolved < 0) | (resolved >= counts)).any(axis=1)
    if wrong.any():
        clip = int(np.argmax(wrong))
        # Raises the error that a single video would.
        frame_numbers(reader.manifest.video(rows[clip]), numbers[clip])
    return videos, resolved
