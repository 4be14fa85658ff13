"""A video of a dataset, with the interface of TorchCodec's VideoDecoder."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from ..arguments import frame_rate, number
from ..errors import FrameIndexError, UsageError, WrongTypeError
from ..manifests.ragged import Array
from ..manifests.records import SourceChanges
from ..wording import counted
from .convert.copies import cloned
from .frames import Frame, FrameBatch
from .indices import Indices, frame_number, frame_numbers, frames_in_slice
from .memory_limit import fits, listed, too_many
from .metadata import CpuFallbackStatus, VideoMetadata
from .reader import SnapshotReader
from .times import (
    Seconds,
    first_frame_from,
    frame_played_at,
    is_range,
    resampled,
    resampled_count,
    seconds_of,
    seconds_tensor,
    why_no_range,
)

# An int64 for each frame.
_PTS_BYTES = 8


class Video:
    """Frames of one video, by number or by time.

    Tensors are uint8 RGB, (frames, 3, height, width), unless options of `shortgop.open` say otherwise. They have the
    frames in the order of the request, with repeated ones. -1 is the last frame. Seconds count from the first frame;
    frame k is shown from k / fps until the next one.

    Reading raises FrameIndexError, an IndexError, for a frame that does not exist; UsageError, a ValueError, for
    arguments that are wrong or for frames that cannot fit into memory, and its subclass WrongTypeError, also a
    TypeError, for an argument of the wrong type; CorruptDataError, MissingDataError or UnreadableDataError when the
    dataset's files are not as they were written or cannot be read; DecodeError when intact data does not decode.
    """

    def __init__(self, reader: SnapshotReader, number: int) -> None:
        self._reader = reader
        self._number = number
        self._row = reader.manifest.video(number)
        # No cached_property: in Python 3.11 it takes a lock, which another thread may hold during a fork.
        self._metadata: VideoMetadata | None = None
        self._timeline: Array | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Video, (self._reader, self._number)

    @property
    def id(self) -> str:
        """The video's id: its source's path below the folder given to prep, or the `id` of the source list."""
        return self._row.id

    @property
    def source(self) -> str:
        """The source as `shortgop prep` was given it."""
        return self._row.source

    @property
    def source_path(self) -> str:
        """The source's absolute path on the machine that prepared it; "" in datasets from before it was stored."""
        return self._row.path

    @property
    def changes(self) -> SourceChanges:
        """What differs from the source: properties given up, and frames dropped, repeated and salvaged."""
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
    def stream_index(self) -> int:
        """The number of the video stream in an exported file: 0, the only one."""
        return self.metadata.stream_index

    @property
    def cpu_fallback(self) -> CpuFallbackStatus:
        """Whether frames were decoded on the CPU instead of a GPU that was asked for: never."""
        return CpuFallbackStatus()

    @property
    def metadata(self) -> VideoMetadata:
        """Number of frames, frame rate, size and more, known without decoding."""
        if self._metadata is None:
            self._metadata = self._reader.metadata(self._row)
        return self._metadata

    def __repr__(self) -> str:
        return f"<Video {self.id!r}: {counted(len(self), 'frame')} at {self._row.fps} frames/s>"

    def __len__(self) -> int:
        return self._row.num_frames

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Each frame as a tensor; one GOP is decoded at a time."""
        for start in range(0, len(self), self._row.gop_frames):
            # Copies, so that a frame that is kept does not keep the memory of its GOP.
            for frame in self[start : start + self._row.gop_frames]:
                yield cloned(frame)

    def __getitem__(self, key: int | slice) -> torch.Tensor:
        """A frame, or the frames of a slice with a positive step, as one tensor."""
        if isinstance(key, slice):
            return self._read(self._frames_in_slice(key.start, key.stop, key.step))
        return self._read([frame_number(self._row, key)])[0]

    def get_frame_at(self, index: int) -> Frame:
        """The frame with this number."""
        return self._frame(frame_number(self._row, index))

    def get_frames_at(self, indices: Indices) -> FrameBatch:
        """The frames with these numbers: a list, range, array or tensor of integers, in any order."""
        return self._batch(frame_numbers(self._row, indices, self._check_fits))

    def get_frames_in_range(self, start: int, stop: int, step: int = 1) -> FrameBatch:
        """The frames of self[start:stop:step]."""
        return self._batch(self._frames_in_slice(start, stop, step))

    def get_frame_played_at(self, seconds: Seconds) -> Frame:
        """The frame that is shown at this time: a float, or exactly a Fraction or a Decimal.

        A frame's own `pts_seconds` leads to that frame again. FrameIndexError before 0 and from the end on.
        """
        return self._frame(self._played_at(seconds))

    def get_frames_played_at(self, seconds: Iterable[Seconds] | torch.Tensor | Array) -> FrameBatch:
        """The frames that are shown at these times. The times may have any order."""
        if isinstance(seconds, (str, bytes)) or not isinstance(seconds, Iterable) or getattr(seconds, "ndim", 1) != 1:
            raise WrongTypeError(f"times are given as a list of seconds, not as {seconds!r}", video=self.id)
        if isinstance(seconds, (torch.Tensor, np.ndarray)):
            self._check_fits(len(seconds))
            times = seconds.tolist()
        else:
            times = listed(seconds, self._check_fits)
        return self._batch([self._played_at(time) for time in times])

    def get_frames_played_in_range(
        self, start_seconds: Seconds, stop_seconds: Seconds, fps: Seconds | str | None = None
    ) -> FrameBatch:
        """The frames that are shown at some time in [start_seconds, stop_seconds).

        With `fps`, the frames that are shown at `start_seconds`, 1 / fps later and so on, returned with these times and
        with 1 / fps as duration; a text such as "30000/1001" is a rate too. UsageError, a ValueError, for a range that
        is not within the video, and for a rate that makes more frames than fit into memory.
        """
        row, video = self._row, self.id
        start = number(start_seconds, "start_seconds", video=video)
        stop = number(stop_seconds, "stop_seconds", video=video)
        if not is_range(start, stop, row.fps, row.num_frames):
            why = why_no_range(start, stop, row.fps, row.num_frames)
            raise UsageError(
                f"video {video!r} has no range from {start_seconds} s to {stop_seconds} s: {why}", video=video
            )
        if fps is not None:
            return self._resampled(float(start), float(stop), fps)
        if start == stop:
            return self._batch([])
        frames = range(self._played_at(start), first_frame_from(stop, row.fps, row.num_frames))
        return self._batch(listed(frames, self._check_fits))

    def get_all_frames(self, fps: Seconds | str | None = None) -> FrameBatch:
        """All frames; with `fps`, the frames at that rate, as in `get_frames_played_in_range`."""
        return self.get_frames_played_in_range(0.0, self._end_seconds, fps)

    def source_pts(self, indices: Indices) -> torch.Tensor:
        """The pts of the source frame that each of these shows, in units of `source_timebase`: int64, (frames,)."""
        frames = frame_numbers(self._row, indices, self._check_rows_fit)
        if self._timeline is None:
            self._timeline = self._reader.timeline(self._row)
        return torch.from_numpy(self._timeline[np.array(frames, dtype=np.int64)])

    def source_seconds(self, indices: Indices) -> torch.Tensor:
        """The same as `source_pts` in seconds: float64, (frames,), on the CPU."""
        timebase = self.source_timebase
        return seconds_tensor(
            [pts * timebase.numerator / timebase.denominator for pts in self.source_pts(indices).tolist()]
        )

    @property
    def _end_seconds(self) -> float:
        return seconds_of(self._row.num_frames, self._row.fps)

    def _frames_in_slice(self, start: Any, stop: Any, step: Any) -> list[int]:
        return listed(frames_in_slice(self._row, start, stop, step), self._check_fits)

    def _check_fits(self, count: int) -> None:
        """UsageError when `count` frames cannot fit into memory."""
        self._reader.check_fits(self._number, count)

    def _check_rows_fit(self, count: int) -> None:
        if not fits(count, _PTS_BYTES):
            raise too_many(count, _PTS_BYTES, video=self.id)

    def _played_at(self, seconds: Seconds) -> int:
        time = number(seconds, "a time", video=self.id)
        frame = frame_played_at(time, self._row.fps, self._row.num_frames)
        if frame is None:
            raise FrameIndexError(
                f"video {self.id!r} shows no frame at {seconds} s: it lasts from 0 s to just before "
                f"{self._end_seconds} s",
                video=self.id,
            )
        return frame

    def _resampled(self, start_seconds: float, stop_seconds: float, fps: Seconds | str) -> FrameBatch:
        exact = frame_rate(fps, "fps", video=self.id)
        # A Fraction may become 0 as a float, or be too large for one.
        if not (0 < exact <= sys.float_info.max and float(exact) > 0):
            raise UsageError(f"fps is {fps}; it has to be positive and fit into a float", video=self.id)
        rate = float(exact)
        self._check_fits(resampled_count(start_seconds, stop_seconds, rate))
        times = resampled(start_seconds, stop_seconds, rate)
        # Rounding may move a time up to the end of the video.
        last = len(self) - 1
        frames = [frame_played_at(time, self._row.fps, len(self)) for time in times]
        return FrameBatch(
            data=self._read([last if frame is None else frame for frame in frames]),
            pts_seconds=seconds_tensor(times),
            duration_seconds=seconds_tensor([1.0 / rate] * len(times)),
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
            pts_seconds=seconds_tensor([seconds_of(frame, fps) for frame in frames]),
            duration_seconds=seconds_tensor([seconds_of(1, fps)] * len(frames)),
        )
