"""Parts of a concat script that FFmpeg decodes by the parameters of the first one, often to wrong pictures without an
error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...errors import SourceError
from .opening import open_source, packets_of
from .playlists import concat_parts

# Codecs whose pictures say how they are decoded. Of H.264 FFmpeg writes what the part says into them.
_SAY_THEMSELVES = (
    "h264", "vp8", "vp9", "libvpx", "libvpx-vp9", "av1", "libdav1d", "libaom-av1", "mjpeg", "png", "prores", "dnxhd",
    "mpeg1video", "mpeg2video",
)  # fmt: skip
# So many pictures tell whether they are the same, and so many packets have them.
_PICTURES, _PACKETS = 8, 32


def why_misread_part(script: str, stream_index: int) -> str:
    """Why FFmpeg misreads a part of a concat script, and what to do: the end of a sentence about the script. "" if it
    does not."""
    (_, first), *others = concat_parts(script) or ((0, ""),)
    for line, path in others:
        with suppress(SourceError, av.error.FFmpegError):
            if path != first and (other := _difference(first, path, stream_index)):
                return (
                    f"names {path} in line {line}, which {other} than {first}, and FFmpeg decodes all parts by what "
                    "the first one says; give them by themselves, or convert them alike: "
                    "`ffmpeg -i PART -c:v libx264 -crf 16 PART.mp4`"
                )
    return ""


def _difference(first: str, path: str, stream_index: int) -> str:
    """How a part differs from the first one so that its pictures would be wrong; "" if they are right."""
    with open_source(first) as one, open_source(path) as other:
        known, stream = _video(one, stream_index), _video(other, stream_index)
        if known is None or stream is None:
            return ""
        decoders = (known.codec_context, stream.codec_context)
        if decoders[0].name != decoders[1].name:
            return "has another codec"
        if decoders[0].name in _SAY_THEMSELVES or _parameters(decoders[0]) == _parameters(decoders[1]):
            return ""
        packets = list(islice((packet for packet in packets_of(other, stream) if packet.size), _PACKETS))
        right, misread = (list(islice(_pictures(decoder, packets), _PICTURES)) for decoder in reversed(decoders))
    is_alike = len(right) == len(misread) and all(map(np.array_equal, right, misread))
    return "" if is_alike else "is encoded with other parameters"


def _video(container: InputContainer, index: int) -> VideoStream | None:
    stream = container.streams[index] if index < len(container.streams) else None
    return stream if isinstance(stream, VideoStream) and stream.codec_context is not None else None


def _parameters(decoder: VideoCodecContext) -> tuple[object, ...]:
    return decoder.extradata, decoder.width, decoder.height, decoder.pix_fmt, decoder.codec_tag


def _pictures(decoder: VideoCodecContext, packets: list[Packet[VideoStream]]) -> Iterator[np.ndarray]:
    """What a decoder makes of the packets of a stream, perhaps another one, in gray."""
    decoder.thread_count = 1
    for data in [*(bytes(packet) for packet in packets), b""]:
        with suppress(av.error.FFmpegError):
            for frame in decoder.decode(av.Packet(data) if data else None):
                if isinstance(frame, VideoFrame):
                    yield frame.to_ndarray(format="gray", threads=1)
