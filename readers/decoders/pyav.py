"""libavcodec through PyAV, on the CPU: fed with just the packets that the wanted frames need."""

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
from ..convert.frame_writer import FrameWriter
from ..output import Output
from ..plan import needed_samples, reorder_depth
from .base import DecodeCost, GopRequest

# For each thread. A dataset has a configuration for each size, rate and colour of its videos; opening a context and
# what belongs to it takes 0.2 ms, a tenth of a frame of 256p, but each holds a few decoded frames: 6 bytes a pixel. So
# eight are kept in any case, and more, up to a limit, as long as their pictures are small.
_KEPT_CONTEXTS, _MAX_CONTEXTS = 8, 64
_MAX_PIXELS = 8_000_000
_UNSPECIFIED = 2  # ISO/IEC 23091-2


class PyavDecoder:
    """Decodes on the calling thread, with contexts of its own for each thread."""

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
        # Taken out, and put back only when nothing went wrong: an error leaves packets and frames behind.
        known = contexts.pop(request.config, None)
        context = known or _WarmContext(request.config, self._output)
        try:
            packets = context.decode(request, out.numpy())
        except av.FFmpegError as error:
            raise DecodeError(f"libavcodec does not decode it: {error}") from error
        contexts[request.config] = context
        # Only a new one can be one too many: this is done for every GOP.
        while (
            known is None
            and len(contexts) > _KEPT_CONTEXTS
            and (len(contexts) > _MAX_CONTEXTS or sum(each.width * each.height for each in contexts) > _MAX_PIXELS)
        ):
            contexts.popitem(last=False)
        return DecodeCost(packets, context.conversion_seconds, warm=known is not None)


class _WarmContext:
    """An open codec context, and what writes its frames. Belongs to one thread."""

    def __init__(self, config: CodecConfig, output: Output) -> None:
        self._codec = open_context(config)
        self._writer = FrameWriter(config, output)
        self.conversion_seconds = 0.0
        """Of the last GOP."""

    def decode(self, request: GopRequest, out: Array) -> int:
        if out.shape[1:] != self._writer.shape:
            raise DecodeError(f"frames of shape {self._writer.shape} where {out.shape[1:]} was expected")
        self.conversion_seconds = 0.0
        codec = self._codec
        samples = needed_samples(request.pattern, request.frames)
        bounds = sample_bounds(request.data)
        if len(bounds) - 1 != len(request.pattern):
            raise CorruptDataError(f"a GOP of {len(bounds) - 1} frames, the manifest says {len(request.pattern)}")
        data, shown = memoryview(request.data), request.pattern.frames
        # Where the stream does not say how far frames are out of order, libavcodec guesses, and loses some at first.
        codec.reorder_depth = reorder_depth(request.pattern)
        missing = dict(zip(request.frames, request.slots, strict=True))
        for sample in samples:
            # Any buffer will do, whatever its types say; libavcodec copies what it is sent.
            packet = Packet(cast("Any", data[bounds[sample] : bounds[sample + 1]]))
            # What goes in with the packet comes out with its frame.
            packet.pts = shown[sample]
            for frame in codec.decode(packet):
                self._take(frame, missing, out)
        if missing:
            for frame in codec.decode(None):
                self._take(frame, missing, out)
        codec.flush_buffers()
        if missing:
            raise DecodeError(f"libavcodec gave no frame {min(missing)} of the GOP, without saying why")
        return len(samples)

    def _take(self, frame: VideoFrame, missing: dict[int, int], out: Array) -> None:
        """Convert the frame into its slot if it is a wanted one."""
        slot = missing.pop(frame.pts, None) if frame.pts is not None else None
        if slot is not None:
            started = time.perf_counter()
            self._writer.write(frame, out[slot])
            self.conversion_seconds += time.perf_counter() - started


def open_context(config: CodecConfig) -> VideoCodecContext:
    """An open decoder that works on the calling thread, and gives up on anything damaged."""
    codec: Any = CodecContext.create(config.codec, "r")
    codec.extradata = config.extradata
    codec.thread_count = 1
    # Rather an error than a frame patched up from its neighbours.
    codec.options = {"err_detect": "explode"}
    # As a demuxer does; where the stream itself says something else, that counts.
    tags = (config.primaries, config.transfer, config.matrix)
    codec.color_primaries, codec.color_trc, codec.colorspace = tags
    if config.full_range or tags != (_UNSPECIFIED,) * 3:
        codec.color_range = ColorRange.JPEG if config.full_range else ColorRange.MPEG
    codec.open()
    opened: VideoCodecContext = codec
    return opened
