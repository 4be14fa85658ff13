"""Parts of a concat script that FFmpeg reads by what the first one says, often to wrong pictures or times without an
error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from ...errors import SourceError
from .codec_names import codec_of
from .headers.padded_packets import packet_of
from .opening import open_source, packets_of, stream_at
from .picture import VP_AND_AV1
from .playlists import concat_parts

# Codecs whose pictures say how they are decoded. Of H.264 FFmpeg writes what the part says into them.
_SAY_THEMSELVES = (
    *VP_AND_AV1, "h264", "mjpeg", "png", "prores", "dnxhd", "mpeg1video", "mpeg2video",
)  # fmt: skip
# So many pictures tell whether they are the same, and so many packets have them.
_PICTURES, _PACKETS = 8, 32


@dataclass(frozen=True)
class _Part:
    """What a part says of the stream that is read. `rotation`: None where no picture decodes."""

    codec: str
    parameters: tuple[object, ...]
    timebase: Fraction | None
    rotation: int | None


def why_misread_part(script: str, stream_index: int) -> str:
    """Why FFmpeg misreads a part of a concat script, and what to do: the end of a sentence about the script. "" if it
    does not."""
    (_, first), *others = concat_parts(script) or ((0, ""),)
    known: _Part | None = None
    for line, path in others:
        with suppress(SourceError, av.error.FFmpegError):
            known = known or _part(first, stream_index)
            if known is not None and path != first and (other := _difference(known, first, path, stream_index)):
                return (
                    f"names {path} in line {line}, which {other} than {first}, and FFmpeg reads all parts by what the "
                    "first one says; give them by themselves, or convert them alike: "
                    "`ffmpeg -i PART -map 0:v:0 -c:v libx264 -crf 16 -video_track_timescale 90000 PART.mp4`"
                )
    return ""


def _difference(known: _Part, first: str, path: str, stream_index: int) -> str:
    """How a part differs from the first one, which is `known`, so that its pictures or times would be wrong; "" if they
    are right."""
    part = _part(path, stream_index)
    if part is None:
        return "has its streams in another order, or lacks some,"
    if part.codec != known.codec:
        return "has another codec"
    if part.timebase != known.timebase:
        return f"has other units of time ({part.timebase} s)"
    if None not in (part.rotation, known.rotation) and part.rotation != known.rotation:
        return "is turned otherwise"
    if part.codec in _SAY_THEMSELVES or part.parameters == known.parameters:
        return ""
    return "" if _decodes_alike(first, path, stream_index) else "is encoded with other parameters"


def _part(path: str, index: int) -> _Part | None:
    with open_source(path) as container:
        stream = container.streams[index] if index < len(container.streams) else None
        if not isinstance(stream, VideoStream) or stream.codec_context is None:
            return None
        decoder = stream.codec_context
        decoder.thread_count = 1
        parameters = (decoder.extradata, decoder.width, decoder.height, decoder.pix_fmt, decoder.codec_tag)
        frames = (frame for packet in islice(container.demux(stream), _PACKETS) for frame in packet.decode())
        frame = next(frames, None)
        rotation = None if frame is None else round(frame.rotation / 90) * 90 % 360
        return _Part(codec_of(decoder), parameters, stream.time_base, rotation)


def _decodes_alike(first: str, path: str, index: int) -> bool:
    """Whether the first pictures of a part are the same if they are decoded by the parameters of the first one."""
    with open_source(first) as one, open_source(path) as other:
        known, stream = (stream_at(container, index) for container in (one, other))
        packets = [bytes(packet) for packet in islice(packets_of(other, stream), _PACKETS) if packet.size]
        right, misread = (list(islice(_pictures(each.codec_context, packets), _PICTURES)) for each in (stream, known))
    return len(right) == len(misread) and all(map(np.array_equal, right, misread))


def _pictures(decoder: VideoCodecContext, packets: list[bytes]) -> Iterator[np.ndarray]:
    """What a decoder makes of packets, perhaps of another stream, in gray."""
    decoder.thread_count = 1
    for data in (*packets, None):
        with suppress(av.error.FFmpegError):
            for frame in decoder.decode(None if data is None else packet_of(data)):
                yield frame.to_ndarray(format="gray", threads=1)
