"""Videos in ordinary files, for the libraries that shortgop is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from ..errors import SourceError
from ..manifests.ragged import Array


@dataclass(frozen=True, eq=False)
class VideoFile:
    """A file and what its packets say of each frame, in presentation order.

    The packets are read once, before anything is timed, so that no library has to search for the number of a frame.
    """

    path: str
    timebase: Fraction
    pts: Array
    durations: Array
    keyframes: Array
    """Booleans."""

    def __len__(self) -> int:
        return len(self.pts)

    def seconds(self, frame: int) -> Fraction:
        """When a frame is shown, in seconds by the file's own timestamps."""
        return int(self.pts[frame]) * self.timebase

    def key_before(self, frame: int) -> int:
        """The last keyframe up to this frame."""
        return int(np.flatnonzero(self.keyframes[: frame + 1])[-1])

    def frames_with(self, pts: Array) -> Array:
        """The numbers of the frames with these pts; SourceError when there is none."""
        numbers = np.minimum(np.searchsorted(self.pts, pts), len(self) - 1)
        if not np.array_equal(self.pts[numbers], pts):
            raise SourceError(f"{self.path} has other frames than when it was prepared", file=self.path)
        return numbers


def scan(path: str | Path) -> VideoFile:
    """Read a file's packets; SourceError when their timestamps do not say when each frame is shown."""
    try:
        with av.open(str(path)) as container:
            stream = container.streams.best("video")
            if stream is None or stream.time_base is None:
                raise SourceError(f"{path} has no video", file=str(path))
            packets = [packet for packet in container.demux(stream) if packet.size and not packet.is_discard]
            timebase = stream.time_base
    except (av.FFmpegError, OSError) as error:
        raise SourceError(f"{path} does not open: {error}", file=str(path)) from error
    shown = [(packet.pts, packet.duration or 0, packet.is_keyframe) for packet in packets if packet.pts is not None]
    if not shown or len(shown) < len(packets):
        raise SourceError(f"{path} has packets without timestamps", file=str(path))
    pts, durations, keyframes = (np.array(column) for column in zip(*sorted(shown), strict=True))
    if not keyframes[0] or (np.diff(pts) <= 0).any():
        raise SourceError(f"{path} has timestamps twice, or no keyframe first", file=str(path))
    return VideoFile(str(path), timebase, pts, durations, keyframes)


def runs(file: VideoFile, frames: Sequence[int]) -> list[list[int]]:
    """Ascending frames in runs. A keyframe lies between two runs, so that seeking to it saves decoding."""
    found: list[list[int]] = []
    for frame in frames:
        if found and file.key_before(frame) <= found[-1][-1]:
            found[-1].append(frame)
        else:
            found.append([frame])
    return found
