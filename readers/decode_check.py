"""Decodes all frames of a dataset, for `verify --decode`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator

from ..errors import DatasetWarning, ShortGopError, ToolError
from ..storage.interface import Storage
from .open_dataset import open as open_dataset


def undecodable(
    dataset: Storage,
    snapshot: str | None = None,
    *,
    skip: Collection[str] = (),
    on_video: Callable[[], object] = lambda: None,
) -> Iterator[tuple[str, ShortGopError]]:
    """Decode every frame of all videos but those whose ids are in `skip`. Yield for each GOP that does not decode the
    video's id, and what is wrong: UnreadableDataError if the GOP cannot be read, and may be as it was written, and once
    for a video ToolError if this machine has no decoder for it.

    One GOP is in memory at a time. `on_video` is called after each video.
    """
    with warnings.catch_warnings():
        # `verify` reports each lost video itself.
        warnings.simplefilter("ignore", DatasetWarning)
        opened = open_dataset(dataset.url, snapshot=snapshot)
    for video in (each for each in opened if each.id not in skip):
        gop_frames = video.metadata.gop_frames
        for start in range(0, len(video), gop_frames):
            try:
                video.get_frames_in_range(start, start + gop_frames)
            except ShortGopError as error:
                yield video.id, error
                if isinstance(error, ToolError):
                    break
        on_video()
