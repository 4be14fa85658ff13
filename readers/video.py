"""A video of a dataset, with the interface of TorchCodec's VideoDecoder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from ..manifests.errors import FrameIndexError, UsageError
from ..manifests.ragged import Array
from ..manifests.video import SourceChanges
from .copies import cloned
from .frames import Frame, FrameBatch
from .indices import Indices, frame_number, frame_numbers, frames_in_slice
from .metadata import VideoMetadata
from .reader import SnapshotReader
from .times import Seconds, first_frame_from, frame_played_at, resampled, seconds_of


class Video:
    """Frames of one video, by number or by time.

    Tensors are uint8 RGB, (frames, 3, height, width), unless `shortgop.open` was told otherwise, and hold the frames in
    the order asked for, repeated ones included. -1 is the last frame. Seconds count from the first frame; frame k is
    shown from k / fps until the next one.

    Reading raises FrameIndexError, an IndexError, for a frame that does not exist; CorruptDataError or
    MissingDataError when the dataset's files are not as they were written; DecodeError when they are, and still do not
    decode.
    """

    def __init__(self, reader: SnapshotReader, number: int) -> None:
        self._reader = reader
        self._number = number
        self._row = reader.manifest.video(number)
        # Not cached properties: in Python 3.11 those take a lock, which a fork may find locked.
        self._metadata: VideoMetadata | None = None
        self._timeline: Array | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Video, (self._reader, self._number)

    @property
    def id(self) -> str:
        """What the dataset calls it: the source's path below the folder it was found in, or the list's `id`."""
        return self._row.id

    @property
    def source(self) -> str:
        """The source as it was given to `shortgop prep`."""
        return self._row.source

    @property
    def source_path(self) -> str:
        """The source's absolute path on the machine that prepared it; "" where that was not kept yet."""
        return self._row.path

    @property
    def changes(self) -> SourceChanges:
        """What differs from the source: what was given up, and frames dropped, repeated and salvaged."""
        return self._reader.manifest.changes(self._number)

    @property
    def attributes(self) -> dict[str, Any]:
        """The columns that the source list gave this video."""
        return self._row.attributes

    @property
    def source_timebase(self) -> Fraction:
        """Seconds per unit of `source_pts`."""
        return self._row.source_timebase

    @property
    def metadata(self) -> VideoMetadata:
        """Number of frames, rate, size and the like, known without decoding."""
        if self._metadata is None:
            self._metadata = self._reader.metadata(self._row)
        return self._metadata

    def __repr__(self) -> str:
        return f"<Video {self.id!r}: {len(self)} frames at {self._row.fps} frames/s>"

    def __len__(self) -> int:
        return self._row.num_frames

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Each frame as a tensor; one GOP is decoded at a time."""
        for start in range(0, len(self), self._row.gop_frames):
            # Copies, so that keeping one frame does not keep its GOP.
            for frame in self[start : start + self._row.gop_frames]:
                yield cloned(frame)

    def __getitem__(self, key: int | slice) -> torch.Tensor:
        """A frame, or the frames of a slice with a positive step, as one tensor."""
        if isinstance(key, slice):
            return self._read(frames_in_slice(self._row, key.start, key.stop, key.step))
        return self._read([frame_number(self._row, key)])[0]

    def get_frame_at(self, index: int) -> Frame:
        """The frame with this number."""
        return self._frame(frame_number(self._row, index))

    def get_frames_at(self, indices: Indices) -> FrameBatch:
        """The frames with these numbers: a list, range, array or tensor of integers, in any order."""
        return self._batch(frame_numbers(self._row, indices))

    def get_frames_in_range(self, start: int, stop: int, step: int = 1) -> FrameBatch:
        """The frames of self[start:stop:step]."""
        return self._batch(frames_in_slice(self._row, start, stop, step))

    def get_frame_played_at(self, seconds: Seconds) -> Frame:
        """The frame that is shown at this time, a float or an exact Fraction.

        A frame's own `pts_seconds` leads to that frame again. FrameIndexError before 0 and from the end on.
        """
        return self._frame(self._played_at(seconds))

    def get_frames_played_at(self, seconds: Iterable[Seconds] | torch.Tensor | Array) -> FrameBatch:
        """The frames that are shown at these times, in any order."""
        times = seconds.tolist() if isinstance(seconds, (torch.Tensor, np.ndarray)) else seconds
        return self._batch([self._played_at(time) for time in times])

    def get_frames_played_in_range(
        self, start_seconds: float, stop_seconds: float, fps: float | None = None
    ) -> FrameBatch:
        """The frames shown at some time from `start_seconds` until just before `stop_seconds`.

        With `fps`, as many as that rate calls for instead: those shown at `start_seconds`, 1 / fps later and so on,
        returned with these times and durations. UsageError, a ValueError, for a range that is not within the video.
        """
        end = self._end_seconds
        if not 0 <= start_seconds <= stop_seconds <= end or not start_seconds < end:
            raise UsageError(
                f"there is no range from {start_seconds} s to {stop_seconds} s in video {self.id!r}: it lasts {end} s, "
                "and a range starts before its end",
                video=self.id,
            )
        if fps is not None:
            return self._resampled(start_seconds, stop_seconds, fps)
        if start_seconds == stop_seconds:
            return self._batch([])
        first = self._played_at(start_seconds)
        return self._batch(list(range(first, first_frame_from(stop_seconds, self._row.fps))))

    def get_all_frames(self, fps: float | None = None) -> FrameBatch:
        """All frames; with `fps`, as many as that rate calls for."""
        return self.get_frames_played_in_range(0.0, self._end_seconds, fps)

    def source_pts(self, indices: Indices) -> torch.Tensor:
        """Which source frame each of these frames shows: its pts in units of `source_timebase`. int64, (frames,)."""
        if self._timeline is None:
            self._timeline = self._reader.timeline(self._row)
        return torch.from_numpy(self._timeline[np.array(frame_numbers(self._row, indices), dtype=np.int64)])

    def source_seconds(self, indices: Indices) -> torch.Tensor:
        """The same in seconds: float64, (frames,)."""
        timebase = self.source_timebase
        seconds = [pts * timebase.numerator / timebase.denominator for pts in self.source_pts(indices).tolist()]
        return torch.tensor(seconds, dtype=torch.float64)

    @property
    def _end_seconds(self) -> float:
        return seconds_of(self._row.num_frames, self._row.fps)

    def _played_at(self, seconds: Seconds) -> int:
        # Written so that NaN is refused.
        if not 0 <= seconds < self._end_seconds:
            raise FrameIndexError(
                f"video {self.id!r} shows no frame at {seconds} s: it lasts from 0 s to just before "
                f"{self._end_seconds} s",
                video=self.id,
            )
        return frame_played_at(seconds, self._row.fps)

    def _resampled(self, start_seconds: float, stop_seconds: float, fps: float) -> FrameBatch:
        if not 0 < fps < math.inf:
            raise UsageError(f"fps is {fps}; it has to be positive", video=self.id)
        times = resampled(start_seconds, stop_seconds, fps)
        return FrameBatch(
            data=self._read([self._played_at(time) for time in times]),
            pts_seconds=torch.tensor(times, dtype=torch.float64),
            duration_seconds=torch.tensor([1.0 / fps] * len(times), dtype=torch.float64),
        )

    def _read(self, frames: list[int]) -> torch.Tensor:
        return self._reader.read([self._number], [frames])[0]

    def _frame(self, frame: int) -> Frame:
        fps = self._row.fps
        return Frame(self._read([frame])[0], seconds_of(frame, fps), seconds_of(1, fps))

    def _batch(self, frames: list[int]) -> FrameBatch:
        fps = self._row.fps
        return FrameBatch(
            data=self._read(frames),
            pts_seconds=torch.tensor([seconds_of(frame, fps) for frame in frames], dtype=torch.float64),
            duration_seconds=torch.tensor([seconds_of(1, fps)] * len(frames), dtype=torch.float64),
        )
