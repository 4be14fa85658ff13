"""How the lines of a frame's planes lie in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ...manifests.ragged import Array
from ..output import Geometry, Output
from . import swscale

# More than libswscale writes behind the end of a line, and a multiple of what it writes at once.
PADDING_BYTES = 128


class Plane(NamedTuple):
    """Where the lines of a plane begin, how many they are, their bytes, and how far it is from one to the next."""

    start: int
    lines: int
    length: int
    stride: int


@dataclass(frozen=True)
class PlaneLayout:
    """Planes of a frame, or of a part of it, in the order in which they lie in memory.

    `order` are their numbers as libswscale counts them, `pixel_bytes` how far it is to the pixel on the right, and
    `left_bytes` how far into each line the part begins.
    """

    format: str
    planes: tuple[Plane, ...]
    order: tuple[int, ...]
    pixel_bytes: int = 1
    left_bytes: int = 0

    @staticmethod
    def of(output: Output, geometry: Geometry) -> PlaneLayout:
        """A frame without gaps, as it lies in a batch."""
        height, width = geometry.size
        if output.color == "yuv420":
            sizes = [(height, width)] + [(height // 2, width // 2)] * 2
            return PlaneLayout(swscale.YUV420P, _one_behind_the_other(sizes), (0, 1, 2))
        if output.dimension_order == "NCHW":
            return PlaneLayout(swscale.GBRP, _one_behind_the_other([(height, width)] * 3), (1, 2, 0))
        return PlaneLayout(swscale.RGB24, _one_behind_the_other([(height, 3 * width)]), (0,), pixel_bytes=3)

    def part(self, left: int, width: int) -> PlaneLayout:
        """These columns of RGB, where they lie in the whole."""
        planes = tuple(plane._replace(length=width * self.pixel_bytes) for plane in self.planes)
        return replace(self, planes=planes, left_bytes=left * self.pixel_bytes)

    def padded(self) -> PlaneLayout:
        """The same in memory of its own, with room behind each line."""
        planes = _one_behind_the_other([(plane.lines, plane.length) for plane in self.planes], padded=True)
        return replace(self, planes=planes, left_bytes=0)

    @property
    def num_bytes(self) -> int:
        """From the frame's first byte to the end of the last line of the last plane."""
        return max(plane.start + plane.lines * plane.stride for plane in self.planes)

    @property
    def strides(self) -> list[int]:
        """Of the planes as libswscale counts them."""
        return [self.planes[number].stride for number in self.order]

    @property
    def starts(self) -> list[int]:
        """The first byte of each plane, as libswscale counts them, in the frame."""
        return [self.planes[number].start + self.left_bytes for number in self.order]

    def lines(self, frame: Array) -> list[Array]:
        """Each plane as (lines, bytes), without a copy; `frame` is contiguous and may be longer than a frame."""
        flat, parts = frame.reshape(-1), []
        for start, lines, length, stride in self.planes:
            whole = flat[start : start + lines * stride].reshape(lines, stride)
            parts.append(whole[:, self.left_bytes : self.left_bytes + length])
        return parts


def _one_behind_the_other(sizes: list[tuple[int, int]], *, padded: bool = False) -> tuple[Plane, ...]:
    """Planes of so many lines of so many bytes."""
    planes, start = [], 0
    for lines, length in sizes:
        stride = -(-length // 64) * 64 + PADDING_BYTES if padded else length
        planes.append(Plane(start, lines, length, stride))
        start += lines * stride
    return tuple(planes)
