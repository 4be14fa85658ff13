"""The few frames of a source that are decoded to see what its pictures are."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import av
from av.codec.context import CodecContext, Flags
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...errors import DamagedSourceError
from .codec_names import codec_of
from .headers.padded_packets import packet_of
from .opening import open_source, packets_of, stream_at
from .picture import FRAMES_LOOKED_AT, MIXED_FIELDS

# Where frames are decoded besides the start, as parts of the duration, and how many packets a decoder may take for one
# frame.
_LATER_PARTS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
_PACKETS_TO_A_FRAME = 64
_MIXED_FROM_SECONDS = 2
# FFmpeg's decoders add film grain to their pictures, and tell of it only where they are to leave that to others.
_TELLING_OF_GRAIN = {"export_side_data": "film_grain"}
UNREADABLE_REMEDY = "copy or download it again, or decrypt it if it is encrypted"


def frame_of(packet: Packet[VideoStream], stream: VideoStream) -> list[VideoFrame]:
    """The frame of a keyframe's packet, if it decodes; nothing else can be decoded with the stream then. It is enough
    for a stream that has only frames, which have no fields to look for, and takes far less than `first_frames`."""
    if not packet.is_keyframe:
        return []
    decoder = stream.codec_context
    # Only its properties are wanted, and threads take longer to start than they save.
    decoder.thread_count, decoder.options = 1, {"skip_loop_filter": "all", **_TELLING_OF_GRAIN}
    found: list[object] = []
    with contextlib.suppress(av.error.FFmpegError):
        # Without the end of the stream a decoder gives the frame only after several packets.
        found = [*packet.decode(), *decoder.decode(None)]
    return _sound(found)[:1]


def states_rate(keyframe: bytes, codec: str) -> bool:
    """Whether the headers with a keyframe of H.264 or HEVC state a rate; True for other codecs, and where it does not
    decode. A stream has the rate that its later headers state, which may not be that of its beginning."""
    if codec not in ("h264", "hevc"):
        return True
    decoder: Any = CodecContext.create(codec, "r")
    with contextlib.suppress(av.error.FFmpegError):
        frames = [*decoder.decode(packet_of(keyframe)), *decoder.decode(None)]
        return bool(decoder.framerate) or not frames
    return True


def first_frames(path: str, stream_index: int, opened: InputContainer | None = None) -> list[VideoFrame]:
    """The first frames that decode: size, rotation, colours and fields are taken from them, not from the container.
    They are read from `opened`, if it is given, and it is closed."""
    container = opened or open_source(path)
    is_h264 = codec_of(stream_at(container, stream_index).codec_context) == "h264"
    frames = _first_frames(container, stream_index)
    if not frames and is_h264:
        # FFmpeg takes all frames of H.264 for corrupt where it knows none at which decoding may start. The scan does.
        frames = _first_frames(open_source(path), stream_index, also_corrupt=True)
    if frames:
        return frames
    raise DamagedSourceError(f"{path}: not one frame decodes; {UNREADABLE_REMEDY}", file=path)


def _first_frames(opened: InputContainer, stream_index: int, *, also_corrupt: bool = False) -> list[VideoFrame]:
    frames: list[VideoFrame] = []
    with opened as container, contextlib.suppress(av.error.FFmpegError):
        for frame in _decoded(container, stream_index, also_corrupt=also_corrupt):
            frames.append(frame)
            if len(frames) == FRAMES_LOOKED_AT or frame.interlaced_frame:
                break
        if frames and not frames[-1].interlaced_frame:
            frames.extend(_later_frames(container, stream_index))
    return frames


def _decoded(container: InputContainer, stream_index: int, *, also_corrupt: bool) -> Iterator[VideoFrame]:
    stream = stream_at(container, stream_index)
    stream.codec_context.options = dict(_TELLING_OF_GRAIN)
    if also_corrupt:
        stream.codec_context.flags |= Flags.output_corrupt
    for packet in packets_of(container, stream):
        found: Sequence[object] = ()
        with contextlib.suppress(av.error.InvalidDataError):
            found = packet.decode()
        yield from (frame for frame in found if isinstance(frame, VideoFrame)) if also_corrupt else _sound(found)


def _sound(decoded: Sequence[object]) -> list[VideoFrame]:
    return [frame for frame in decoded if isinstance(frame, VideoFrame) and not frame.is_corrupt]


def _later_frames(container: InputContainer, stream_index: int) -> Iterator[VideoFrame]:
    """A frame from each of the later parts of the source: broadcasts switch between film and video. Errors of the
    decoder are ignored here; the checks for damage find them."""
    stream = stream_at(container, stream_index)
    duration = Fraction(container.duration or 0, av.time_base)
    if codec_of(stream.codec_context) not in MIXED_FIELDS or duration < _MIXED_FROM_SECONDS:
        return
    for part in _LATER_PARTS:
        with contextlib.suppress(av.error.FFmpegError):
            container.seek(int((container.start_time or 0) + part * duration * av.time_base))
            for packet in itertools.islice(packets_of(container, stream), _PACKETS_TO_A_FRAME):
                found = [frame for frame in packet.decode() if isinstance(frame, VideoFrame)]
                if found:
                    yield found[-1]
                    break
