"""NVDEC through PyAV: a codec context of libavcodec with a CUDA device, fed our packets. Has not run on a GPU; the
tests run it against a driver in software.

Only the packets go to the GPU. libavcodec copies each output picture into memory of its own, so pictures that are kept
take none of the decoder's surfaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import av
import torch
from av.codec.hwaccel import HWAccel
from av.video.frame import VideoFrame
from av.video.plane import VideoPlane
from av.video.reformatter import ColorRange
from torch.utils.dlpack import from_dlpack

from ...errors import DecodeError, ToolError
from ...manifests.records import CodecConfig
from ..gpu.surfaces import Surface
from ..plan import Place
from .base import GopRequest
from .pyav import check_frame, feed_gop, open_context
from .surface_source import Pictures
from .whose_error import whose_error

# FFmpeg's libavutil/hwcontext_cuda.c: `current_ctx` takes the context that is current in the calling thread,
# `primary_ctx` the primary one of the device, and refuses one whose flags are not its own, as torch's are not. PyAV
# sets `primary_ctx` where frames stay on the device, unless it is given.
CURRENT_CONTEXT = {"primary_ctx": "0", "current_ctx": "1"}


def check_pyav(plane: type = VideoPlane) -> None:
    """ToolError for a PyAV that does not give pictures that stay on a GPU, as those before 17, of whose planes this is
    the type."""
    if not hasattr(plane, "__dlpack__"):
        raise ToolError(
            f'device="cuda" needs PyAV 17 or newer, and {av.__version__} is installed: pip install "av>=17"'
        )


def open_cuda_context(config: CodecConfig, device: int, options: dict[str, str]) -> Any:
    """An open context that decodes with NVDEC and leaves pictures on the GPU.

    ToolError where libavcodec cannot, and would decode on the CPU.
    """
    hardware = HWAccel(
        "cuda", device=str(device), allow_software_fallback=False, options=dict(options), is_hw_owned=True
    )
    try:
        codec: Any = open_context(config, hardware)
    except av.FFmpegError as error:
        raise ToolError(f"libavcodec does not open NVDEC for {config.codec}: {error}; run `make gpu-check`") from error
    if not codec.is_hwaccel:
        raise ToolError(f"this libavcodec has no CUDA decoder for {config.codec}; install PyAV from its wheel")
    return codec


class PyavCudaContext:
    """See `SurfaceSource`."""

    def __init__(self, config: CodecConfig, device: torch.device) -> None:
        self._codec = open_cuda_context(config, device.index, CURRENT_CONTEXT)
        self._size = (config.height, config.width)

    def decode(self, request: GopRequest, convert: Callable[[Pictures], None]) -> int:
        pictures: list[tuple[Surface, tuple[Place, ...]]] = []

        def take(frame: VideoFrame, places: tuple[Place, ...]) -> None:
            check_frame(frame, self._size)
            pictures.append((surface_of(frame), places))

        try:
            packets = feed_gop(self._codec, request, take)
        except (av.FFmpegError, DecodeError) as error:
            raise whose_error(error, request) from error
        convert(pictures)
        return packets


def surface_of(frame: VideoFrame) -> Surface:
    """A frame in the memory of a GPU, without a copy. Its tensors keep the frame's memory."""
    if frame.format.name != "cuda":
        raise DecodeError(f"a frame is {frame.format.name}, and not on the GPU: libavcodec decodes it on the CPU")
    # torch passes a stream where it is given the plane itself, which PyAV does not take.
    y, uv = (from_dlpack(cast("Any", plane).__dlpack__()) for plane in frame.planes)
    return Surface(
        y,
        uv,
        bit_depth=8 if y.dtype == torch.uint8 else 10,
        matrix=int(frame.colorspace),
        full_range=frame.color_range == int(ColorRange.JPEG),
    )
