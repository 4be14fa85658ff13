"""libavcodec through PyAV, on the CPU: fed with just the packets that the wanted frames need."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import av
import numpy as np
import torch
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, VideoReformatter
from numpy.typing import NDArray

from ...manifests.errors import CorruptDataError, DecodeError
from ...manifests.mp4 import parse_fragment
from ...manifests.video import CodecConfig
from ..plan import needed_samples, reorder_depth
from .base import GopRequest

# For each thread. A dataset has one configuration for each size of frames; opening a context takes some 50 us, but each
# holds a few decoded frames.
_MAX_CONTEXTS = 8
_UNSPECIFIED = 2  # ISO/IEC 23091-2


class PyavDecoder:
    """Decodes on the calling thread, with contexts of its own for each thread."""

    name = "pyav"
    needs_init = False

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._local = threading.local()

    def decode(self, request: GopRequest, out: torch.Tensor) -> int:
        """See `Decoder.decode`."""
        contexts: OrderedDict[CodecConfig, _WarmContext] | None = getattr(self._local, "contexts", None)
        if contexts is None:
            contexts = self._local.contexts = OrderedDict()
        # Taken out, and put back only when nothing went wrong: an error leaves packets and frames behind.
        context = contexts.pop(request.config, None) or _WarmContext(request.config)
        try:
            packets = context.decode(request, out.numpy())
        except av.FFmpegError as error:
            raise DecodeError(f"libavcodec does not decode it: {error}") from error
        contexts[request.config] = context
        while len(contexts) > _MAX_CONTEXTS:
            contexts.popitem(last=False)
        return packets


class _WarmContext:
    """An open codec context, and the converter to RGB set up for its frames. Belongs to one thread."""

    def __init__(self, config: CodecConfig) -> None:
        self._codec = _open(config)
        self._reformatter = VideoReformatter()

    def decode(self, request: GopRequest, out: NDArray[np.uint8]) -> int:
        codec = self._codec
        samples = needed_samples(request.pattern, request.frames)
        fragment = parse_fragment(request.data)
        if len(fragment) != len(request.pattern):
            raise CorruptDataError(f"a GOP of {len(fragment)} frames, the manifest says {len(request.pattern)}")
        offsets, sizes = fragment.offsets.tolist(), fragment.sizes.tolist()
        data, shown = memoryview(request.data), request.pattern.frames
        # Where the stream does not say how far frames are out of order, libavcodec guesses, and loses some at first.
        codec.reorder_depth = reorder_depth(request.pattern)
        missing = dict(zip(request.frames, request.rows, strict=True))
        for sample in samples:
            packet: Any = Packet(bytes(data[offsets[sample] : offsets[sample] + sizes[sample]]))
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

    def _take(self, frame: VideoFrame, missing: dict[int, int], out: NDArray[np.uint8]) -> None:
        """Convert the frame into its row if it is a wanted one."""
        row = missing.pop(frame.pts, None) if frame.pts is not None else None
        if row is None:
            return
        if (frame.height, frame.width) != out.shape[1:3]:
            raise DecodeError(
                f"frames of {frame.width}x{frame.height}, the manifest says {out.shape[2]}x{out.shape[1]}"
            )
        if frame.is_corrupt:
            raise DecodeError("libavcodec says that a frame is damaged")
        # One thread: by default swscale starts as many as there are cores, for each frame.
        rgb = self._reformatter.reformat(frame, format="rgb24", threads=1)
        out[row] = rgb.to_ndarray()


def _open(config: CodecConfig) -> VideoCodecContext:
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
