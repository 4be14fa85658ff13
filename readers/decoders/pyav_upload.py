"""Decoding on the CPU for a device that cannot decode a stream itself: planes are uploaded, and converted there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import av
import numpy as np
import torch
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange

from ...errors import DecodeError
from ...manifests.ragged import Array
from ...manifests.records import CodecConfig
from ..gpu.host_numbers import tensor_on
from ..gpu.surfaces import Surface
from ..plan import Place
from .base import GopRequest
from .pyav import check_frame, feed_gop, open_context
from .surface_source import Pictures

_EIGHT_BITS = ("yuv420p", "yuvj420p")
_TEN_BITS = "yuv420p10le"


class PyavUpload:
    """See `SurfaceSource`."""

    def __init__(self, config: CodecConfig, device: torch.device) -> None:
        self._codec = open_context(config)
        self._size = (config.height, config.width)
        self._device = device

    def decode(self, request: GopRequest, convert: Callable[[Pictures], None]) -> int:
        pictures: list[tuple[Surface, tuple[Place, ...]]] = []

        def take(frame: VideoFrame, places: tuple[Place, ...]) -> None:
            check_frame(frame, self._size)
            pictures.append((uploaded(frame, self._device), places))

        try:
            packets = feed_gop(self._codec, request, take)
        except av.FFmpegError as error:
            raise DecodeError(f"libavcodec does not decode the GOP: {error}") from error
        convert(pictures)
        return packets


def uploaded(frame: VideoFrame, device: torch.device) -> Surface:
    """A frame of 4:2:0 as a surface on `device`, as NVDEC would make it: chroma interleaved, 10 bits in the upper
    bits of 16."""
    name, full_range = frame.format.name, frame.color_range == int(ColorRange.JPEG)
    if name not in (*_EIGHT_BITS, _TEN_BITS):
        raise DecodeError(f"a frame is {name}; only 4:2:0 of 8 or 10 bits is decoded for a GPU")
    dtype = np.uint16 if name == _TEN_BITS else np.uint8
    y, u, v = (_plane(frame, number, dtype) for number in range(3))
    return Surface(
        tensor_on(device, y),
        tensor_on(device, np.stack([u, v], axis=-1)),
        bit_depth=10 if name == _TEN_BITS else 8,
        matrix=int(frame.colorspace),
        full_range=full_range or name == _EIGHT_BITS[1],
    )


def _plane(frame: VideoFrame, number: int, dtype: type) -> Array:
    plane = frame.planes[number]
    lines: Array = np.frombuffer(cast("Any", plane), dtype=dtype).reshape(plane.height, -1)[:, : plane.width]
    return lines << 6 if dtype is np.uint16 else lines
