"""Frames as a decoder on a GPU gives them: NV12 and P010 with gaps after lines and lines below the picture."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
import numpy as np
import torch
from av.codec.context import CodecContext
from numpy.typing import NDArray

from shortgop.readers.convert.frame_writer import FrameWriter
from shortgop.readers.frame_format import Geometry, PixelFormat
from shortgop.readers.gpu.surfaces import Surface

FULL_RANGE = 2
# What lies in the gaps. It must not get into any picture.
GAP = 199


def noise_frame(
    height: int, width: int, *, matrix: int = 1, full_range: bool = False, bit_depth: int = 8, seed: int = 0
) -> Any:
    """A decoded frame of waves and noise, within the levels that video has. Sides are even, as H.264 has them."""
    name = {8: "yuv420p", 10: "yuv420p10le"}[bit_depth]
    frame = av.VideoFrame(width, height, name)
    random = np.random.default_rng(seed)
    for number, plane in enumerate(frame.planes):
        lines, columns = np.mgrid[: plane.height, : plane.line_size // (1 if bit_depth == 8 else 2)]
        waves = 128 + 70 * np.sin(columns / 9 + number) * np.cos(lines / 7 + number)
        levels = np.clip(waves + random.normal(0, 30, waves.shape), 16, 235) * (1 << (bit_depth - 8))
        plane.update(levels.astype(np.uint8 if bit_depth == 8 else "<u2").tobytes())
    return _through_h264(frame, matrix, FULL_RANGE if full_range else 1)


def _through_h264(frame: Any, matrix: int, color_range: int) -> Any:
    """The frame as a decoder gives it. A decoder says where chroma lies, and libswscale heeds that in places."""
    encoder: Any = CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, frame.format.name
    encoder.time_base, encoder.framerate = Fraction(1, 25), Fraction(25)
    encoder.colorspace, encoder.color_range = matrix, color_range
    encoder.options = {"qp": "1", "preset": "ultrafast"}
    decoder: Any = CodecContext.create("h264", "r")
    decoder.thread_count = encoder.thread_count = 1
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    (decoded,) = [each for packet in [*packets, None] for each in decoder.decode(packet)]
    assert decoded.colorspace == matrix
    assert (decoded.color_range == FULL_RANGE) == (color_range == FULL_RANGE)
    return decoded


def surface_of(frame: Any, *, gap: int = 22, lines_below: int = 6) -> Surface:
    """The frame as a surface: `gap` samples after each line, an even number, and `lines_below` the plane of luma."""
    bit_depth = {"yuv420p": 8, "yuvj420p": 8, "yuv420p10le": 10}[frame.format.name]
    y, u, v = (_samples(frame, number, bit_depth) for number in range(3))
    pitch = y.shape[1] + y.shape[1] % 2 + gap
    memory = np.full((y.shape[0] + lines_below + u.shape[0], pitch), GAP, dtype=y.dtype)
    memory[: y.shape[0], : y.shape[1]] = y
    chroma = memory[y.shape[0] + lines_below :]
    chroma[:, : 2 * u.shape[1] : 2], chroma[:, 1 : 2 * u.shape[1] : 2] = u, v
    # P010 has its value in the upper bits.
    whole = torch.from_numpy(memory << (16 - bit_depth) if bit_depth > 8 else memory)
    uv = whole[y.shape[0] + lines_below :, : 2 * u.shape[1]].view(u.shape[0], -1, 2)
    return Surface(
        whole[: y.shape[0], : y.shape[1]],
        uv,
        bit_depth,
        int(frame.colorspace),
        frame.color_range == FULL_RANGE or frame.format.name == "yuvj420p",
    )


def _samples(frame: Any, number: int, bit_depth: int) -> NDArray[Any]:
    plane = frame.planes[number]
    dtype = np.dtype(np.uint8 if bit_depth == 8 else "<u2")
    lines = np.frombuffer(plane, dtype=dtype).reshape(plane.height, plane.line_size // dtype.itemsize)
    return np.asarray(lines[:, : plane.width])


def empty_slot(geometry: Geometry, pixels: PixelFormat, order: str = "NCHW") -> torch.Tensor:
    """A slot, (channels, height, width), in memory of this order."""
    channels, height, width = pixels.shape(*geometry.size)
    if order == "NCHW" or pixels.color == "yuv420":
        return torch.zeros((channels, height, width), dtype=pixels.dtype)
    return torch.zeros((height, width, channels), dtype=pixels.dtype).permute(2, 0, 1)


def from_cpu_reader(frame: Any, geometry: Geometry, pixels: PixelFormat, order: str = "NCHW") -> torch.Tensor:
    """What the CPU reader makes of a frame."""
    slot = empty_slot(geometry, pixels, order)
    array = slot.view(torch.uint16).numpy() if pixels.dtype == torch.bfloat16 else slot.numpy()
    FrameWriter(pixels).write(frame, array, geometry)
    return slot
