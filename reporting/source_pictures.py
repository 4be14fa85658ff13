"""Frames of a source by their pts, read from its file again: what they show beside the dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ..errors import ShortGopError, SourceError
from ..jobs.finding.addresses import is_store_url, parse
from ..jobs.finding.store_files import StoreFile, copied, told
from ..manifests.ragged import Array
from ..prep.probing.containers.edit_list import NO_CUT, Cut, cut_of, track_edits
from ..prep.probing.opening import is_without_edits, open_contents, open_source, packets_of, video_stream
from ..prep.running.mounts import read_in_time
from ..prep.running.stalls import in_time, stall_limit
from ..wording import byte_size, three_digits

# A frame that is further from a keyframe than this is not searched for: a page is to be ready in a minute.
_MOST_DECODED = 800
_STALL_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class SourcePicture:
    """A frame as it is shown: uint8 RGB, (height, width, 3), turned upright. `pixel_aspect` is the width of a pixel,
    where its height is 1."""

    rgb: Array
    pixel_aspect: float


@dataclass(frozen=True, eq=False)
class SourceFrames:
    """Frames of a source, and a line about its file."""

    pictures: tuple[SourcePicture, ...]
    about: str


def source_frames(path: str, wanted_pts: Sequence[int], *, stall_seconds: float = _STALL_SECONDS) -> SourceFrames:
    """The frames with these pts, which ascend, of the file or URL at `path`.

    SourceError or another ShortGopError where the source is not there, has no such frames, or does not answer for
    `stall_seconds`, or where the frames take too long to find.
    """
    with stall_limit(stall_seconds):
        if is_store_url(path):
            return in_time(lambda: _of_url(path, wanted_pts), f"{path}: reading it")
        return read_in_time(path, lambda: _of_file(path, wanted_pts), f"{path}: reading it")


def _of_file(path: str, wanted_pts: Sequence[int]) -> SourceFrames:
    file = Path(path)
    with suppress(OSError, ValueError):
        if file.is_dir():
            raise SourceError("the source is a folder of pictures; only videos are shown here", file=path)
        _refuse_rows(file.name, path)
        if file.is_file():
            with open_source(path) as container:
                return _read(path, container, wanted_pts, file.stat().st_size)
    raise SourceError(f"{path} is not a file that can be read on this machine", file=path)


def _refuse_rows(name: str, path: str) -> None:
    if name.endswith(".parquet"):
        raise SourceError("the source is pictures in a Parquet file; only videos are shown here", file=path)


def _of_url(url: str, wanted_pts: Sequence[int]) -> SourceFrames:
    address = parse(url)
    _refuse_rows(address.name, url)
    with ExitStack() as stack:
        copy = stack.enter_context(copied(StoreFile(address)))
        stack.enter_context(told(address))
        try:
            container = stack.enter_context(open_contents(copy.reader()))
        except av.FFmpegError as error:
            raise SourceError(f"{url} does not open as a video: {error.strerror}", file=url) from error
        return _read(url, container, wanted_pts, copy.num_bytes)


def _read(path: str, container: InputContainer, wanted_pts: Sequence[int], file_bytes: int) -> SourceFrames:
    try:
        stream = video_stream(path, container)
        # The pts of frames that are read without the edits count from elsewhere.
        begin = _cut_of(path, container, stream).begin
        in_media = [pts + begin for pts in wanted_pts]
        found = _search(container, stream, in_media)
        missing = [pts for pts in in_media if pts not in found]
        if missing:
            raise SourceError(
                f"{path} shows no frame at pts {missing[0] - begin} that is quickly found: it may have changed since, "
                "or is part of another video",
                file=path,
            )
        context = stream.codec_context
        rate = stream.average_rate
        about = ", ".join([
            f"{context.width} x {context.height}",
            *([f"{three_digits(float(rate))} frames/s"] if rate else []),
            context.name,
            f"file of {byte_size(file_bytes)}",
        ])  # fmt: skip
        return SourceFrames(tuple(found[pts] for pts in in_media), about)
    except ShortGopError:
        raise
    except (av.FFmpegError, OSError, EOFError, ValueError) as error:
        raise SourceError(f"{path} does not decode: {error}", file=path) from error


def _cut_of(path: str, container: InputContainer, stream: VideoStream) -> Cut:
    return cut_of(path, stream, track_edits(path, stream)) if is_without_edits(container) else NO_CUT


def _search(container: InputContainer, stream: VideoStream, wanted_pts: Sequence[int]) -> dict[int, SourcePicture]:
    stream.thread_type = "AUTO"
    aspect = float(stream.sample_aspect_ratio or 1)
    found: dict[int, SourcePicture] = {}
    wanted, last = set(wanted_pts), max(wanted_pts)
    # Seeking may end behind the frame where an index is poor; reading from the start finds it then.
    for start in (min(wanted_pts), stream.start_time or 0):
        container.seek(start, stream=stream)
        stream.codec_context.flush_buffers()
        for frame in _decoded(container, stream):
            if frame.pts in wanted:
                found[frame.pts] = _upright(frame, aspect)
            if frame.pts is None or frame.pts >= last:
                break
        if len(found) == len(wanted):
            break
    return found


def _decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    count = 0
    for packet in packets_of(container, stream):
        for frame in packet.decode():
            yield frame
            count += 1
            if count >= _MOST_DECODED:
                return


def _upright(frame: VideoFrame, pixel_aspect: float) -> SourcePicture:
    turns = round(frame.rotation / 90)
    rgb = np.rot90(frame.to_ndarray(format="rgb24"), turns)
    return SourcePicture(rgb, 1 / pixel_aspect if turns % 2 else pixel_aspect)
