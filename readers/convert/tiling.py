"""Converts frames into slots of a batch tile by tile, so that every byte of the slot is written, and no other byte.

libswscale's vector code handles many pixels at once. When the width is no multiple of that, it writes past the end of
each line or leaves out the last pixels. What it does is tried once for each geometry, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ...manifests.ragged import Array
from ..output import Geometry
from . import swscale
from .planes import PADDING_BYTES, PlaneLayout

# A multiple of the pixels that libswscale writes at once: it writes lines of this many pixels exactly.
_STEP = 16


@dataclass(frozen=True)
class Tile:
    """A part of a frame that one call converts, to `size`, (height, width).

    `layout` is its place in the slot. With `padded`, it is converted into memory of that layout first, which has room
    after each line, and then copied.
    """

    top: int
    left: int
    height: int
    width: int
    size: tuple[int, int]
    layout: PlaneLayout
    padded: PlaneLayout | None = None


class TileWriter:
    """Writes one tile of frames of one matrix and range. Belongs to one thread."""

    def __init__(self, tile: Tile, *, matrix: int, full_range: bool) -> None:
        source = (tile.height, tile.width)
        self._scaler = swscale.Scaler(
            source, tile.size, matrix=matrix, full_range=full_range, target_format=tile.layout.format
        )
        self._top, self._left, self._layout = tile.top, tile.left, tile.layout
        target = tile.padded or tile.layout
        self._starts, self._strides = target.starts, target.strides
        self._scratch: Array | None = None
        if tile.padded is not None:
            self._scratch = np.empty(tile.padded.num_bytes, dtype=np.uint8)
            self._scratch_address = self._scratch.ctypes.data
            self._scratch_lines = tile.padded.lines(self._scratch)

    def write(self, planes: Sequence[tuple[int, int]], slot: Array, address: int) -> None:
        """Write this tile of a frame into `slot`, which begins at `address`.

        `planes` are the frame's planes as (address, bytes from line to line).
        """
        strides = [stride for _, stride in planes]
        top, left = self._top, self._left
        half = top // 2, left // 2
        sources = [
            start + half[0] * stride + half[1] if number else start + top * stride + left
            for number, (start, stride) in enumerate(planes)
        ]
        base = address if self._scratch is None else self._scratch_address
        self._scaler.convert(sources, strides, [base + start for start in self._starts], self._strides)
        if self._scratch is not None:
            for to, line in zip(self._layout.lines(slot), self._scratch_lines, strict=True):
                to[...] = line


@lru_cache(maxsize=256)
def tiles_for(geometry: Geometry, layout: PlaneLayout) -> tuple[Tile, ...]:
    """The cheapest tiling that gives the same bytes as the last one, which is always right."""
    *others, last = possible_tilings(geometry, layout)
    right = _noise_through(last, geometry)
    return next((each for each in others if np.array_equal(_noise_through(each, geometry), right)), last)


def possible_tilings(geometry: Geometry, layout: PlaneLayout) -> Iterator[tuple[Tile, ...]]:
    """Tilings of a frame, the cheapest first. The last one is right on every processor."""
    top, left, height, width = geometry.top, geometry.left, geometry.height, geometry.width
    whole = Tile(top, left, height, width, geometry.size, layout)
    yield (whole,)
    if geometry.scales or layout.format == swscale.YUV420P or width < _STEP or width % 2:
        yield (_padded(whole),)
        return
    wide = width - width % _STEP
    columns = [
        Tile(top, left + start, height, count, (height, count), layout.part(start, count))
        for start, count in ((0, wide), (width - _STEP, _STEP))
    ]
    yield tuple(columns)
    yield columns[0], _padded(columns[1])
    yield tuple(map(_padded, columns))


def _padded(tile: Tile) -> Tile:
    return replace(tile, padded=tile.layout.padded())


def _noise_through(way: Sequence[Tile], geometry: Geometry) -> Array:
    """The bytes of a slot, and of memory after it, once a frame of noise has been converted with this tiling."""
    stride = geometry.left + geometry.width + PADDING_BYTES
    lines = geometry.top + geometry.height + geometry.height % 2
    noise = np.random.default_rng(0).integers(0, 256, (2 * lines + 1, stride), dtype=np.uint8)
    planes = [(noise[line:].ctypes.data, stride) for line in (0, lines, lines + lines // 2)]
    num_bytes = max(tile.layout.num_bytes for tile in way) + PADDING_BYTES
    memory = np.random.default_rng(1).integers(0, 256, num_bytes, dtype=np.uint8)
    for tile in way:
        TileWriter(tile, matrix=1, full_range=False).write(planes, memory, memory.ctypes.data)
    return memory
