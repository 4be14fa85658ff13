"""About how large a video is, by its header alone, before anything of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from io import BufferedIOBase

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from ...errors import SourceError
from .opening import open_contents, open_source, video_stream
from .signs import may_have_index


@dataclass(frozen=True)
class Estimate:
    """About how many frames a video will have, how many its source has, the width and height of the source's pictures,
    and how long it lasts; 0 if its header does not say. `is_seekable`: its container may have an exact index."""

    frames: int = 0
    source_frames: int = 0
    width: int = 0
    height: int = 0
    duration_seconds: float = 0.0
    is_seekable: bool = False


def estimate(source: str | BufferedIOBase, fps: Fraction | None) -> Estimate:
    """What the header alone says of a file (its path, or a file object), for progress bars and plans. `fps` None is the
    source's rate."""
    try:
        with open_source(source) if isinstance(source, str) else open_contents(source) as container:
            stream = video_stream("a file", container)
            decoder = stream.codec_context
            width, height = (decoder.width, decoder.height) if decoder else (0, 0)
            source_frames = _header_frames(container, stream, None)
            frames = _header_frames(container, stream, fps) if fps else source_frames
            duration = float(_duration(container, stream))
            return Estimate(frames, source_frames, width, height, duration, may_have_index(container.format.name))
    except (av.error.FFmpegError, OSError, SourceError):
        return Estimate()


def _header_frames(container: InputContainer, stream: VideoStream, fps: Fraction | None) -> int:
    if fps is None and stream.frames:
        return stream.frames
    return round(_duration(container, stream) * (fps or stream.average_rate or 0))


def _duration(container: InputContainer, stream: VideoStream) -> Fraction:
    """How many seconds the video lasts by its header, 0 if that does not say."""
    if stream.duration and stream.time_base:
        return stream.duration * stream.time_base
    return Fraction(container.duration or 0, av.time_base)
