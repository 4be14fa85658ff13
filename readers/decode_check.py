"""Whether all frames of a dataset decode: `verify --decode`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import ShortGopError
from .dataset import open as open_dataset


def undecodable(
    dataset: Path, snapshot: str | None = None, *, on_video: Callable[[], object] = lambda: None
) -> Iterator[tuple[str, str]]:
    """Decode every frame; for each GOP that does not decode the video's id, and what is wrong.

    One GOP is in memory at a time. `on_video` is called after each video.
    """
    for video in open_dataset(dataset, snapshot=snapshot):
        gop_frames = video.metadata.gop_frames
        for start in range(0, len(video), gop_frames):
            try:
                video.get_frames_in_range(start, start + gop_frames)
            except ShortGopError as error:
                yield video.id, str(error)
        on_video()
