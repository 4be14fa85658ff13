"""Decodes with libavcodec through PyAV, on the CPU, and sends it only the packets that the wanted frames need."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, cast

import av
import torch
from av.codec.codec import UnknownCodecError
from av.codec.context import CodecContext
from av.codec.hwaccel import HWAccel
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange

from ...errors import DecodeError, ToolError
from ...manifests.ragged import Array
from ...manifests.records import CodecConfig
from ..convert.copies import array_of
from ..convert.frame_writer import FrameWriter
from ..frame_format import Geometry, PixelFormat
from ..plan import Place, needed_samples, next_samples, reorder_depth
from .base import DecodeCost, GopRequest, Target
from .gop_samples import samples_of
from .visits import MAX_VISITS, Position, Visit, is_step

# Contexts that each thread keeps open. A dataset has a codec configuration for each size, rate and colour of videos.
# Opening a context takes a twentieth of the time for a frame of 256p. An open context holds a few decoded frames: 6
# bytes a pixel. So a thread keeps eight contexts, and up to 64 if their frames are small.
_KEPT_CONTEXTS, _MAX_CONTEXTS = 8, 64
_MAX_PIXELS = 8_000_000
# Frame writers that each thread keeps: one for each pixel format of a request's outputs.
_MAX_WRITERS = 16
_UNSPECIFIED = 2  # ISO/IEC 23091-2
# libavcodec/defs.h, AV_INPUT_BUFFER_PADDING_SIZE: so far past the end of a packet decoders may read.
_BYTES_READ_AHEAD = 64
# PyAV before 17 cannot set the depth for a GOP. There contexts are opened with the greatest one of H.264, with which
# libavcodec keeps frames until the end of the GOP.
_SETS_REORDER_DEPTH = hasattr(VideoCodecContext, "reorder_depth")
_ANY_DEPTH = {"has_b_frames": "16"}
# Where libavcodec's decoder on the CPU has another name than its codec. Its own "av1" decodes on GPUs alone.
_CPU_DECODERS = {"av1": "libdav1d"}


class PyavDecoder:
    """Decodes on the calling thread. Each thread has contexts of its own."""

    name = "pyav"

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._local = _ThreadState()

    def check_process(self) -> None:
        """See `Decoder.check_process`: any process may use the CPU."""

    def request(self) -> contextlib.AbstractContextManager[None]:
        """See `Decoder.request`: on the CPU, frames are written when `decode` returns."""
        return contextlib.nullcontext()

    def decode(self, request: GopRequest, targets: Sequence[Target]) -> DecodeCost:
        """See `Decoder.decode`."""
        kept = self._local
        # An error leaves packets and frames in a context: only without one it is put back.
        visit = kept.visits.pop(request.gop, None)
        known = kept.taken(request, visit)
        context = known or _WarmContext(request.config)
        goes_on = context.stays
        writers = [(kept.writer(target.pixels), array_of(target.slots)) for target in targets]
        stays = _SETS_REORDER_DEPTH and visit is not None and is_step(request.pattern, visit.last_frame, request.frames)
        try:
            try:
                packets = context.decode(request, writers, stays=stays)
            except (av.FFmpegError, DecodeError):
                if not (stays or goes_on):
                    raise
                # What is damaged may be a packet that these frames do not need.
                context = _WarmContext(request.config)
                packets = context.decode(request, writers, stays=False)
        except av.FFmpegError as error:
            raise DecodeError(f"libavcodec does not decode the GOP: {error}") from error
        kept.put(context, request)
        if known is None:
            # For a new context only, since this runs for every GOP.
            kept.drop_some()
        return DecodeCost(packets, context.conversion_seconds, warm=known is not None)


class _ThreadState(threading.local):
    """The open contexts of a thread, and its frame writers."""

    def __init__(self) -> None:
        self.contexts: OrderedDict[CodecConfig, _WarmContext] = OrderedDict()
        """Those that are in no GOP."""
        self.visits: OrderedDict[int | None, Visit[_WarmContext]] = OrderedDict()
        """The last requests for each of some GOPs, the latest at the end, with the contexts that stay there."""
        self._writers: OrderedDict[PixelFormat, FrameWriter] = OrderedDict()

    def taken(self, request: GopRequest, visit: Visit[_WarmContext] | None) -> _WarmContext | None:
        """An open context for a GOP and its last visit: that which stayed there, or one that is in no GOP."""
        if visit is None or visit.context is None:
            return self.contexts.pop(request.config, None)
        # AV1's packets of earlier frames may have been sent without these, so that they never come out.
        if request.frames[0] <= visit.last_frame or not visit.context.leads_to(request):
            visit.context.leave()
        return visit.context

    def put(self, context: _WarmContext, request: GopRequest) -> None:
        """Keep a context that has decoded a GOP, and remember what it decoded."""
        if not context.stays:
            self.contexts[context.config] = context
        if request.gop is not None:
            self.visits[request.gop] = Visit(request.frames[-1], context if context.stays else None)
            if len(self.visits) > MAX_VISITS:
                self._forget()

    def drop_some(self) -> None:
        """Drop contexts until those that are left are few, or their frames are small."""
        while True:
            staying = [visit.context for visit in self.visits.values() if visit.context is not None]
            every = [*self.contexts.values(), *staying]
            pixels = sum(each.config.width * each.config.height for each in every)
            if len(every) <= _KEPT_CONTEXTS or (len(every) <= _MAX_CONTEXTS and pixels <= _MAX_PIXELS):
                return
            if self.contexts:
                self.contexts.popitem(last=False)
            else:
                self._forget()

    def _forget(self) -> None:
        """Forget the visit longest ago. Its context is in no GOP then."""
        _, visit = self.visits.popitem(last=False)
        if visit.context is not None:
            visit.context.leave()
            self.contexts[visit.context.config] = visit.context

    def writer(self, pixels: PixelFormat) -> FrameWriter:
        writer = self._writers.get(pixels)
        if writer is None:
            writer = self._writers[pixels] = FrameWriter(pixels)
            if len(self._writers) > _MAX_WRITERS:
                self._writers.popitem(last=False)
        return writer


class _WarmContext:
    """An open codec context. Belongs to one thread."""

    def __init__(self, config: CodecConfig) -> None:
        self.config = config
        self._codec = open_context(config)
        self._size = (config.height, config.width)
        self._position = Position()
        self.conversion_seconds = 0.0
        """Seconds of conversion in the last GOP."""

    def decode(self, request: GopRequest, writers: Sequence[tuple[FrameWriter, Array]], *, stays: bool) -> int:
        """Decode a GOP into the arrays of these writers, (clips, frames, channels, height, width); see `feed_gop`."""
        self.conversion_seconds = 0.0
        return feed_gop(
            self._codec,
            request,
            lambda frame, places: self._write(frame, places, request.geometries, writers),
            self._position,
            stays=stays,
        )

    @property
    def stays(self) -> bool:
        """Whether it is in a GOP."""
        return self._position.next_sample > 0

    def leads_to(self, request: GopRequest) -> bool:
        """Whether the frames of a request for the GOP that it is in can still come out."""
        return self._position.leads_to(request.pattern, request.frames)

    def leave(self) -> None:
        """Make it ready for another GOP, or for the start of the same one."""
        self._codec.flush_buffers()
        self._position.leave()

    def _write(
        self,
        frame: VideoFrame,
        places: tuple[Place, ...],
        geometries: Sequence[Geometry],
        writers: Sequence[tuple[FrameWriter, Array]],
    ) -> None:
        """Convert a frame into each of its places."""
        started = time.perf_counter()
        check_frame(frame, self._size)
        for output, slot, geometry in places:
            writer, slots = writers[output]
            writer.write(frame, slots[divmod(slot, slots.shape[1])], geometries[geometry])
        self.conversion_seconds += time.perf_counter() - started


def feed_gop(
    codec: Any,
    request: GopRequest,
    take: Callable[[VideoFrame, tuple[Place, ...]], None],
    position: Position | None = None,
    *,
    stays: bool = False,
) -> int:
    """Send an open context the packets that the wanted frames of a GOP need. Returns how many these are.

    `take` is called with each wanted frame and its places, in any order. With `position`, where the context is, it goes
    on in the GOP from there. If it `stays`, it may go on once more: frames that it holds back are not drained, which
    would end the GOP, but pushed out by the packets that come next, and `position` says where it is then. Else the
    context is ready for the next GOP, except after an error.

    CorruptDataError when the data is not a GOP of the pattern, DecodeError when a frame does not come out, and
    libavcodec's own errors.
    """
    position = Position() if position is None else position
    numbers = needed_samples(request.pattern, request.frames)
    if stays:
        numbers += next_samples(request.pattern, request.frames)
    if position.next_sample:
        numbers = tuple(number for number in numbers if number >= position.next_sample)
    elif _SETS_REORDER_DEPTH:
        # If the stream does not say how many frames are reordered, libavcodec guesses, and loses frames at first.
        codec.reorder_depth = reorder_depth(request.pattern)
    samples = samples_of(request, numbers)
    missing = dict(zip(request.frames, request.places, strict=True))

    def give(frames: Sequence[VideoFrame]) -> None:
        for frame in frames:
            if frame.pts is not None:
                position.inside.discard(frame.pts)
                places = missing.pop(frame.pts, None)
                if places is not None:
                    take(frame, places)

    bytes_behind = sum(len(sample) for _, sample in samples)
    sent = 0
    for number, (shown, sample) in zip(numbers, samples, strict=True):
        if not missing:
            break
        bytes_behind -= len(sample)
        packet = _packet_of(sample, bytes_behind)
        # libavcodec gives the frame the pts of its packet.
        packet.pts = shown
        sent, position.next_sample = sent + 1, number + 1
        position.inside.add(shown)
        give(codec.decode(packet))
    stays = stays and not missing
    if missing:
        give(codec.decode(None))
    if not stays:
        codec.flush_buffers()
        position.leave()
    if missing:
        raise DecodeError(f"libavcodec output no frame {min(missing)} of the GOP, and reported no error")
    return sent


def _packet_of(sample: memoryview, bytes_behind: int) -> Packet[Any]:
    """A sample for libavcodec, which is followed by so many bytes of the GOP at least."""
    if bytes_behind >= _BYTES_READ_AHEAD:
        # PyAV's types ask for bytes, but it takes any buffer. It does not copy it, and neither does libavcodec.
        return Packet(cast("Any", sample))
    # Behind the GOP there may be memory of others, or none at all. A new packet has zeros behind it.
    packet: Packet[Any] = Packet(len(sample))
    packet.update(cast("Any", sample))
    return packet


def check_frame(frame: VideoFrame, size: tuple[int, int]) -> None:
    """DecodeError when a frame is damaged, or does not have this (height, width)."""
    if (frame.height, frame.width) != size:
        raise DecodeError(f"frames of {frame.width}x{frame.height}, the manifest says {size[1]}x{size[0]}")
    if frame.is_corrupt:
        raise DecodeError("libavcodec says that a frame is damaged")


def open_context(config: CodecConfig, hwaccel: HWAccel | None = None) -> VideoCodecContext:
    """An open decoder that uses the calling thread only, and raises an error for damaged data. ToolError where
    libavcodec was built without it."""
    name = config.codec if hwaccel else _CPU_DECODERS.get(config.codec, config.codec)
    try:
        codec: Any = CodecContext.create(name, "r", hwaccel=hwaccel)
    except UnknownCodecError:
        raise ToolError(
            f"PyAV's FFmpeg has no decoder {name}, which reads {config.codec}; install PyAV from its wheel, which has "
            "it: pip install --force-reinstall --only-binary av av"
        ) from None
    codec.extradata = config.extradata
    codec.thread_count = 1
    # Without this, libavcodec conceals damage with content of neighbouring frames.
    codec.options = {"err_detect": "explode"} | ({} if _SETS_REORDER_DEPTH else _ANY_DEPTH)
    # A demuxer sets these too. What the stream itself says takes precedence.
    tags = (config.primaries, config.transfer, config.matrix)
    codec.color_primaries, codec.color_trc, codec.colorspace = tags
    if config.full_range or tags != (_UNSPECIFIED,) * 3:
        codec.color_range = ColorRange.JPEG if config.full_range else ColorRange.MPEG
    codec.open()
    opened: VideoCodecContext = codec
    return opened
