"""How the lines of a frame's planes lie in memory, and whether libswscale may write them where they belong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..manifests.ragged import Array
from . import swscale
from .output import Geometry, Output

# More than libswscale writes behind the end of a line, and a multiple of what it writes at once.
_PADDING_BYTES = 128
# Pixels that libswscale writes at once, or a multiple of them.
_STEP = 16


@dataclass(frozen=True)
class Layout:
    """Planes one behind the other, as they lie in memory: (lines, bytes of a line, bytes from line to line) of each.

    `order` are their numbers as libswscale counts them, `pixel_bytes` how far it is to the pixel on the right.
    """

    format: str
    planes: tuple[tuple[int, int, int], ...]
    order: tuple[int, ...]
    pixel_bytes: int = 1

    @staticmethod
    def of(output: Output, geometry: Geometry) -> Layout:
        """A frame without gaps, as it lies in a batch."""
        height, width = geometry.size
        if output.color == "yuv420":
            half = (height // 2, width // 2, width // 2)
            return Layout(swscale.YUV420P, ((height, width, width), half, half), (0, 1, 2))
        if output.dimension_order == "NCHW":
            return Layout(swscale.GBRP, ((height, width, width),) * 3, (1, 2, 0))
        return Layout(swscale.RGB24, ((height, 3 * width, 3 * width),), (0,), pixel_bytes=3)

    def narrowed(self, width: int) -> Layout:
        """So many columns of RGB, where they lie in the whole."""
        planes = tuple((lines, width * self.pixel_bytes, stride) for lines, _, stride in self.planes)
        return replace(self, planes=planes)

    def padded(self) -> Layout:
        """The same with room behind each line."""
        planes = tuple((lines, length, -(-length // 64) * 64 + _PADDING_BYTES) for lines, length, _ in self.planes)
        return replace(self, planes=planes)

    @property
    def num_bytes(self) -> int:
        return sum(lines * stride for lines, _, stride in self.planes)

    @property
    def strides(self) -> list[int]:
        """Of the planes as libswscale counts them."""
        return [self.planes[number][2] for number in self.order]

    def addresses(self, start: int) -> list[int]:
        """Of the planes as libswscale counts them, of a frame at this address."""
        starts = []
        for lines, _, stride in self.planes:
            starts.append(start)
            start += lines * stride
        return [starts[number] for number in self.order]

    def lines(self, frame: Array, start: int = 0) -> list[Array]:
        """Each plane of a frame as (lines, bytes); `start` is the first byte of each line."""
        flat, parts, at = frame.reshape(-1), [], 0
        for lines, length, stride in self.planes:
            parts.append(flat[at : at + lines * stride].reshape(lines, stride)[:, start : start + length])
            at += lines * stride
        return parts


@dataclass(frozen=True)
class Piece:
    """Columns of a picture that are converted at once: so many, from `left` on.

    They are written to where they belong, `layout`, or by way of `padded`, with room behind each line.
    """

    left: int
    width: int
    layout: Layout
    padded: Layout | None


@lru_cache(maxsize=256)
def pieces(geometry: Geometry, layout: Layout) -> tuple[Piece, ...]:
    """How to convert a picture so that every byte of its row is written, and no other."""
    source, width = (geometry.height, geometry.width), geometry.width
    if _keeps_to_its_lines(source, geometry.size, layout):
        return (Piece(0, width, layout, None),)
    # A multiple of what is written at once stays within its lines; the rest is little to copy.
    main = width - width % _STEP
    if not geometry.scales and width % 2 == 0 and main:
        wide, narrow = layout.narrowed(main), layout.narrowed(_STEP)
        if _keeps_to_its_lines((geometry.height, main), (geometry.height, main), wide):
            return Piece(0, main, wide, None), Piece(width - _STEP, _STEP, narrow, narrow.padded())
    return (Piece(0, width, layout, layout.padded()),)


def _keeps_to_its_lines(source: tuple[int, int], target: tuple[int, int], layout: Layout) -> bool:
    """Whether libswscale, converting between these (height, width), writes all of its lines and nothing else.

    That depends on the width, the formats and the processor, and is tried out.
    """
    scaler = swscale.Scaler(source, target, matrix=1, full_range=False, target_format=layout.format)
    rng = np.random.default_rng(0)
    stride = source[1] + _PADDING_BYTES
    lines = source[0] + source[0] % 2
    noise = rng.integers(0, 256, (2 * lines + 1, stride), dtype=np.uint8)
    planes = [noise[line:].ctypes.data for line in (0, lines, lines + lines // 2)]

    padded = layout.padded()
    scratch = np.zeros(padded.num_bytes, dtype=np.uint8)
    scaler.convert(planes, [stride] * 3, padded.addresses(scratch.ctypes.data), padded.strides)
    found = rng.integers(0, 256, layout.num_bytes + _PADDING_BYTES, dtype=np.uint8)
    expected = found.copy()
    for to, line in zip(layout.lines(expected), padded.lines(scratch), strict=True):
        to[...] = line
    scaler.convert(planes, [stride] * 3, layout.addresses(found.ctypes.data), layout.strides)
    return np.array_equal(found, expected)
