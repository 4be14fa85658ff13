"""Decodes with libavcodec through PyAV, on the CPU, and sends it only the packets that the wanted frames need."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any, cast

import av
import torch
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange

from ...errors import CorruptDataError, DecodeError
from ...manifests.mp4 import sample_bounds
from ...manifests.ragged import Array
from ...manifests.records import CodecConfig
from ...wording import counted
from ..convert.frame_writer import FrameWriter
from ..output import Output
from ..plan import needed_samples, reorder_depth
from .base import DecodeCost, GopRequest

# Contexts that each thread keeps open. A dataset has a codec configuration for each size, rate and colour of videos.
# Opening a context and its frame writer takes 0.2 ms, a tenth of the time for a frame of 256p. An open context holds
# a few decoded frames: 6 bytes a pixel. So a thread keeps eight contexts, and up to 64 if their frames are small.
_KEPT_CONTEXTS, _MAX_CONTEXTS = 8, 64
_MAX_PIXELS = 8_000_000
_UNSPECIFIED = 2  # ISO/IEC 23091-2


class PyavDecoder:
    """Decodes on the calling thread. Each thread has contexts of its own."""

    name = "pyav"

    def __init__(self, output: Output) -> None:
        self.device = torch.device("cpu")
        self._output = output
        self._local = threading.local()

    def decode(self, request: GopRequest, out: torch.Tensor) -> DecodeCost:
        """See `Decoder.decode`."""
        contexts: OrderedDict[CodecConfig, _WarmContext] | None = getattr(self._local, "contexts", None)
        if contexts is None:
            contexts = self._local.contexts = OrderedDict()
        # The context returns to the dict only without an error: an error leaves packets and frames in it.
        known = contexts.pop(request.config, None)
        context = known or _WarmContext(request.config, self._output)
        try:
            packets = context.decode(request, out.numpy())
        except av.FFmpegError as error:
            raise DecodeError(f"libavcodec does not decode the GOP: {error}") from error
        contexts[request.config] = context
        # Tested for a new context only, since this runs for every GOP.
        while (
            known is None
            and len(contexts) > _KEPT_CONTEXTS
            and (len(contexts) > _MAX_CONTEXTS or sum(each.width * each.height for each in contexts) > _MAX_PIXELS)
        ):
            contexts.popitem(last=False)
        return DecodeCost(packets, context.conversion_seconds, warm=known is not None)


class _WarmContext:
    """An open codec context, and the writer of its frames. Belongs to one thread."""

    def __init__(self, config: CodecConfig, output: Output) -> None:
        self._codec = open_context(config)
        self._writer = FrameWriter(config, output)
        self.conversion_seconds = 0.0
        """Seconds of conversion in the last GOP."""

    def decode(self, request: GopRequest, out: Array) -> int:
        if out.shape[1:] != self._writer.shape:
            raise DecodeError(f"frames of shape {self._writer.shape} where {out.shape[1:]} was expected")
        self.conversion_seconds = 0.0
        codec = self._codec
        samples = needed_samples(request.pattern, request.frames)
        bounds = sample_bounds(request.data)
        if len(bounds) - 1 != len(request.pattern):
            raise CorruptDataError(
                f"the GOP has {counted(len(bounds) - 1, 'frame')}, the manifest says {len(request.pattern)}"
            )
        data, shown = memoryview(request.data), request.pattern.frames
        # If the stream does not say how many frames are reordered, libavcodec guesses, and loses frames at first.
        codec.reorder_depth = reorder_depth(request.pattern)
        missing = dict(zip(request.frames, request.slots, strict=True))
        for sample in samples:
            # PyAV's types ask for bytes, but it takes any buffer. libavcodec copies what it is sent.
            packet = Packet(cast("Any", data[bounds[sample] : bounds[sample + 1]]))
            # libavcodec gives the frame the pts of its packet.
            packet.pts = shown[sample]
            for frame in codec.decode(packet):
                self._take(frame, missing, out)
        if missing:
            for frame in codec.decode(None):
                self._take(frame, missing, out)
        codec.flush_buffers()
        if missing:
            raise DecodeError(f"libavcodec output no frame {min(missing)} of the GOP, and reported no error")
        return len(samples)

    def _take(self, frame: VideoFrame, missing: dict[int, int], out: Array) -> None:
        """Convert the frame into its slot if it was asked for."""
        slot = missing.pop(frame.pts, None) if frame.pts is not None else None
        if slot is not None:
            started = time.perf_counter()
            self._writer.write(frame, out[slot])
            self.conversion_seconds += time.perf_counter() - started


def open_context(config: CodecConfig) -> VideoCodecContext:
    """An open decoder that uses the calling thread only, and raises an error for damaged data."""
    codec: Any = CodecContext.create(config.codec, "r")
    codec.extradata = config.extradata
    codec.thread_count = 1
    # Without this, libavcodec conceals damage with content of neighbouring frames.
    codec.options = {"err_detect": "explode"}
    # A demuxer sets these too. What the stream itself says takes precedence.
    tags = (config.primaries, config.transfer, config.matrix)
    codec.color_primaries, codec.color_trc, codec.colorspace = tags
    if config.full_range or tags != (_UNSPECIFIED,) * 3:
        codec.color_range = ColorRange.JPEG if config.full_range else ColorRange.MPEG
    codec.open()
    opened: VideoCodecContext = codec
    return opened
