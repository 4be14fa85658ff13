"""Frames of a source by their pts, read from its file again: what they show beside the dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import av
import numpy as np
from av.codec.context import Flags
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ..errors import ShortGopError, SourceError
from ..jobs.finding.addresses import is_store_url, parse
from ..jobs.finding.store_files import StoreFile, copied, told
from ..manifests.ragged import Array
from ..prep.probing.containers.edit_list import cut_of, track_edits
from ..prep.probing.containers.track_cut import NO_CUT, Cut
from ..prep.probing.headers.stated_rates import RAW_DEMUXERS
from ..prep.probing.opening import demuxer_of, is_without_edits, open_contents, open_source, packets_of, video_stream
from ..prep.probing.probe import probe
from ..prep.probing.source_video import SourceVideo
from ..prep.running.mounts import read_in_time
from ..prep.running.stalls import in_time, stall_limit
from ..prep.timing.mended_times import mended_times
from ..prep.timing.source_times import times_of
from ..wording import byte_size, three_digits

# A frame that is further from a keyframe than this is not searched for: a page is to be ready in a minute.
_MOST_DECODED = 800
# All packets of a source that may state only times of decoding are read.
_MOST_PROBED_BYTES = 4_000_000_000
_STALL_SECONDS = 10.0
# Frames come out of a decoder at most so many packets late.
_MOST_HELD_BACK = 32
# Demuxers that do not state, or not always, when a frame is shown.
_COUNTED = ("avi", "mxf", *RAW_DEMUXERS)


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
            return _read(path, partial(open_source, path), wanted_pts, file.stat().st_size, probed=partial(probe, path))
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

        def opened() -> InputContainer:
            try:
                return open_contents(copy.reader())
            except av.FFmpegError as error:
                raise SourceError(f"{url} does not open as a video: {error.strerror}", file=url) from error

        return _read(url, opened, wanted_pts, copy.num_bytes)


def _read(
    path: str,
    opened: Callable[[], InputContainer],
    wanted_pts: Sequence[int],
    file_bytes: int,
    probed: Callable[[], SourceVideo] | None = None,
) -> SourceFrames:
    try:
        with opened() as container:
            stream = video_stream(path, container)
            # The pts of frames that are read without the edits count from elsewhere.
            begin = _cut_of(path, container, stream).begin
            in_media = [pts + begin for pts in wanted_pts]
            context, rate = stream.codec_context, stream.average_rate
            is_probed = probed is not None and _may_lack_times(container, stream)
        if is_probed and file_bytes > _MOST_PROBED_BYTES:
            raise SourceError(
                f"{path} may state only when frames are decoded, and is too large to be read as a whole for this page",
                file=path,
            )
        source = probed() if probed is not None and is_probed else None
        is_by_number = source is not None and (source.has_decode_times or source.demuxer in RAW_DEMUXERS)
        if source is not None and is_by_number and source.pts is not None and source.in_pauses is None:
            found = _by_number(opened, source, in_media)
        else:
            found = _search(path, opened, in_media)
        missing = [pts for pts in in_media if pts not in found]
        if missing:
            raise SourceError(
                f"{path} shows no frame at pts {missing[0] - begin} that is quickly found: it may have changed since, "
                "or is part of another video",
                file=path,
            )
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


def _may_lack_times(container: InputContainer, stream: VideoStream) -> bool:
    """Whether packets may state only when their frames are decoded, or that plus the same for all. Reads a few."""
    if not stream.codec_context.has_b_frames or demuxer_of(container) in _COUNTED:
        return bool(stream.codec_context.has_b_frames)
    packets = islice((packet for packet in packets_of(container, stream) if packet.size), _MOST_HELD_BACK)
    times = [(packet.pts, packet.dts) for packet in packets]
    return len({pts - dts for pts, dts in times if pts is not None and dts is not None}) == 1


def _cut_of(path: str, container: InputContainer, stream: VideoStream) -> Cut:
    return cut_of(path, stream, track_edits(path, stream)) if is_without_edits(container) else NO_CUT


def _search(path: str, opened: Callable[[], InputContainer], wanted_pts: Sequence[int]) -> dict[int, SourcePicture]:
    found: dict[int, SourcePicture] = {}
    wanted, last = set(wanted_pts), max(wanted_pts)
    # Seeking may end behind the frame where an index is poor; reading from the start finds it then. FFmpeg takes frames
    # for corrupt if it does not know the keyframe at which the source begins.
    for start, with_corrupt in ((min(wanted_pts), False), (None, False), (None, True)):
        with opened() as container:
            stream = video_stream(path, container)
            stream.codec_context.flags |= Flags.output_corrupt if with_corrupt else 0
            aspect = float(stream.sample_aspect_ratio or 1)
            if start is not None:
                # Raw streams have nothing to seek by.
                with suppress(av.FFmpegError):
                    container.seek(start, stream=stream)
            for frame in _decoded(container, stream):
                if frame.pts in wanted:
                    found[frame.pts] = _upright(frame, aspect)
                if frame.pts is None or frame.pts >= last:
                    break
        if len(found) == len(wanted):
            break
    return found


def _by_number(
    opened: Callable[[], InputContainer], source: SourceVideo, wanted_pts: Sequence[int]
) -> dict[int, SourcePicture]:
    """The frames of a source whose packets state when they are decoded: which is shown when, their numbers say.
    SourceError for those that are too far from the start."""
    found = _counted(opened, source, wanted_pts, flags=0)
    if len(found) < len(set(wanted_pts)):
        found = _counted(opened, source, wanted_pts, flags=Flags.output_corrupt)
    return found


def _counted(
    opened: Callable[[], InputContainer], source: SourceVideo, wanted_pts: Sequence[int], *, flags: int
) -> dict[int, SourcePicture]:
    with opened() as container:
        stream = _stream(container, source)
        stream.codec_context.flags |= flags
        num_shown = len(times_of(source)) - _num_left_out(container, stream)
    nothing = np.zeros(num_shown, dtype=np.int64)
    times = (mended_times(source, nothing) if source.has_decode_times else times_of(source)).tolist()
    wanted = {number: pts for number, pts in enumerate(times) if pts in wanted_pts}
    if max(wanted, default=0) >= _MOST_DECODED:
        raise SourceError(
            f"{source.path} states only when its frames are decoded, so that they are counted from its start; this "
            f"page shows the first {_MOST_DECODED}",
            file=source.path,
        )
    found: dict[int, SourcePicture] = {}
    with opened() as container:
        stream = _stream(container, source)
        stream.codec_context.flags |= flags
        aspect = float(stream.sample_aspect_ratio or 1)
        for number, frame in enumerate(_decoded(container, stream)):
            if number in wanted:
                found[wanted[number]] = _upright(frame, aspect)
            if number >= max(wanted, default=0):
                break
    return found


def _stream(container: InputContainer, source: SourceVideo) -> VideoStream:
    stream = container.streams[source.stream_index]
    if not isinstance(stream, VideoStream):
        raise TypeError(f"stream {source.stream_index} is no video")
    return stream


def _num_left_out(container: InputContainer, stream: VideoStream) -> int:
    """How many packets of the first ones have a frame that the decoder leaves out, as it refers to one before the
    start."""
    stream.codec_context.flags |= Flags.copy_opaque
    shown: set[object] = set()
    count = 0
    for packet in packets_of(container, stream):
        if packet.size:
            packet.opaque = (count,)
            count += 1
        shown.update(frame.opaque for frame in packet.decode())
        if count == 2 * _MOST_HELD_BACK:
            break
    return sum((number,) not in shown for number in range(min(count, _MOST_HELD_BACK)))


def _decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    stream.thread_type = "AUTO"
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
