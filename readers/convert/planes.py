"""Where the lines of a frame's planes lie in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...manifests.ragged import Array
from ..frame_format import PixelFormat
from . import swscale

# More bytes than libswscale writes past the end of a line, and a multiple of what it writes at once.
PADDING_BYTES = 128


class Plane(NamedTuple):
    """A plane: offset of its first byte in the frame, number of lines, bytes of a line, bytes from line to line."""

    start: int
    lines: int
    length: int
    stride: int


class Arrangement(NamedTuple):
    """How the channels of a slot lie: each in a plane of its own, `channel_bytes` from one to the next, or packed,
    the channels of a pixel beside each other. Lines have no gaps."""

    packed: bool
    channel_bytes: int = 0


def arrangement_of(slot: Array, pixels: PixelFormat) -> Arrangement | None:
    """The arrangement of a slot of bytes, (channels, height, width); None for one that libswscale cannot write."""
    channels, height, width = slot.shape
    between_channels, between_lines, between_pixels = slot.strides
    if between_pixels == 1 and between_lines == width:
        if channels == 1:
            return Arrangement(False, height * width)
        return Arrangement(False, between_channels) if between_channels >= height * width else None
    if pixels.color == "rgb" and slot.strides == (1, 3 * width, 3):
        return Arrangement(True)
    return None


@dataclass(frozen=True)
class PlaneLayout:
    """The planes of a frame, or of some of its columns, in the order in which they lie in memory.

    `order[i]` is the index in `planes` of what libswscale calls plane i. `pixel_bytes` is the distance between
    neighbouring pixels of a line, and `left_bytes` the offset of the columns in each line.
    """

    format: str
    planes: tuple[Plane, ...]
    order: tuple[int, ...]
    pixel_bytes: int = 1
    left_bytes: int = 0

    @staticmethod
    def of(pixels: PixelFormat, size: tuple[int, int], arrangement: Arrangement) -> PlaneLayout:
        """A frame of this (height, width) in a slot."""
        height, width = size
        if pixels.color == "yuv420":
            sizes = [(height, width)] + [(height // 2, width // 2)] * 2
            return PlaneLayout(swscale.YUV420P, _consecutive(sizes), (0, 1, 2))
        if arrangement.packed:
            return PlaneLayout(swscale.RGB24, _consecutive([(height, 3 * width)]), (0,), pixel_bytes=3)
        planes = tuple(
            Plane(channel * arrangement.channel_bytes, height, width, width) for channel in range(pixels.channels)
        )
        if pixels.color == "rgb":
            return PlaneLayout(swscale.GBRP, planes, (1, 2, 0))
        return PlaneLayout(
            swscale.GREY if pixels.color == "grey" else swscale.YUV444P, planes, tuple(range(pixels.channels))
        )

    def part(self, left: int, width: int) -> PlaneLayout:
        """Some columns of an RGB frame, at their place in the frame."""
        planes = tuple(plane._replace(length=width * self.pixel_bytes) for plane in self.planes)
        return replace(self, planes=planes, left_bytes=left * self.pixel_bytes)

    def padded(self) -> PlaneLayout:
        """The same planes in memory of their own, with `PADDING_BYTES` and more after each line."""
        planes = _consecutive([(plane.lines, plane.length) for plane in self.planes], padded=True)
        return replace(self, planes=planes, left_bytes=0)

    @property
    def num_bytes(self) -> int:
        """Bytes from the start of the frame to the end of its last line."""
        return max(plane.start + plane.lines * plane.stride for plane in self.planes)

    @property
    def strides(self) -> list[int]:
        """Bytes from line to line of each plane, in libswscale's order."""
        return [self.planes[number].stride for number in self.order]

    @property
    def starts(self) -> list[int]:
        """Offset of each plane's first byte in the frame, in libswscale's order."""
        return [self.planes[number].start + self.left_bytes for number in self.order]

    def lines(self, slot: Array) -> list[Array]:
        """Each plane as (lines, bytes), without a copy. `slot` begins with the frame's first byte."""
        flat, parts = _flat(slot, self.num_bytes), []
        for start, lines, length, stride in self.planes:
            whole = flat[start : start + lines * stride].reshape(lines, stride)
            parts.append(whole[:, self.left_bytes : self.left_bytes + length])
        return parts


def _flat(slot: Array, num_bytes: int) -> Array:
    """The memory of a slot, and what lies in its gaps, without a copy."""
    if slot.flags.c_contiguous:
        return slot.reshape(-1)
    packed = slot.transpose(1, 2, 0)
    return (
        packed.reshape(-1) if packed.flags.c_contiguous else np.lib.stride_tricks.as_strided(slot, (num_bytes,), (1,))
    )


def _consecutive(sizes: list[tuple[int, int]], *, padded: bool = False) -> tuple[Plane, ...]:
    """Planes of these (lines, bytes of a line), each after the one before."""
    planes, start = [], 0
    for lines, length in sizes:
        stride = -(-length // 64) * 64 + PADDING_BYTES if padded else length
        planes.append(Plane(start, lines, length, stride))
        start += lines * stride
    return tuple(planes)
