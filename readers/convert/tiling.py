"""Converts frames into slots of a batch tile by tile, so that every byte of the slot is written, and no other byte.

libswscale's vector code handles many pixels at once. When the width of the result is no multiple of that, it writes
past the end of each line or leaves out the last pixels. What it does is tried once for each size of the result, not
assumed. It does not depend on where a crop lies or how large it is, nor on the alignment of source and slot
(docs/design/readers.md); the trial varies them all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from ...manifests.ragged import Array
from ..frame_format import Interpolation
from . import swscale
from .planes import PADDING_BYTES, PlaneLayout

# A multiple of the pixels that libswscale writes at once: it writes lines of this many pixels exactly.
_STEP = 16

Planes = tuple[int, int, int]
Strides = tuple[int, int, int]
Way = Literal["whole", "columns", "last columns padded", "columns padded", "whole padded"]
"""How a frame is cut up: not at all, or into the columns up to the last multiple of 16 and the last 16 columns once
more. What is padded is converted into memory with room after each line first, and then copied."""


@dataclass(frozen=True)
class Tile:
    """A part of a crop that one call converts, from `source` to `size`, both (height, width).

    `left` counts from the crop's first column. `layout` is its place in the slot. With `padded`, it is converted into
    memory of that layout first.
    """

    left: int
    source: tuple[int, int]
    size: tuple[int, int]
    layout: PlaneLayout
    padded: PlaneLayout | None = None


class TileWriter:
    """Writes one tile of frames of one matrix and range. Belongs to one thread."""

    def __init__(self, tile: Tile, *, matrix: int, full_range: bool, interpolation: Interpolation) -> None:
        self._scaler = swscale.Scaler(
            tile.source,
            tile.size,
            matrix=matrix,
            full_range=full_range,
            target_format=tile.layout.format,
            interpolation=interpolation,
        )
        self._left, self._layout = tile.left, tile.layout
        target = tile.padded or tile.layout
        self._starts, self._strides = target.starts, target.strides
        # Where the tile begins in each plane, for crops at the place and frames of the strides that were last seen.
        self._seen: tuple[int, int, Strides] | None = None
        self._offsets = (0, 0, 0)
        self._scratch: Array | None = None
        if tile.padded is not None:
            self._scratch = np.empty(tile.padded.num_bytes, dtype=np.uint8)
            self._scratch_address = self._scratch.ctypes.data
            self._scratch_lines = tile.padded.lines(self._scratch)

    def write(self, planes: Planes, strides: Strides, top: int, left: int, slot: Array, address: int) -> None:  # noqa: PLR0917  # of one call
        """Write this tile of a crop that begins at `top` and `left` into `slot`, which begins at `address`.

        `planes` are the addresses of the frame's planes, `strides` their bytes from line to line.
        """
        seen = (top, left, strides)
        if seen != self._seen:
            column = left + self._left
            self._offsets = (
                top * strides[0] + column,
                top // 2 * strides[1] + column // 2,
                top // 2 * strides[2] + column // 2,
            )
            self._scaler.set_strides(strides, self._strides)
            self._seen = seen
        y, u, v = self._offsets
        base = address if self._scratch is None else self._scratch_address
        self._scaler.convert(planes[0] + y, planes[1] + u, planes[2] + v, base, self._starts)
        if self._scratch is not None:
            for to, line in zip(self._layout.lines(slot), self._scratch_lines, strict=True):
                to[...] = line


def tiles_for(
    source: tuple[int, int], size: tuple[int, int], layout: PlaneLayout, interpolation: Interpolation
) -> tuple[Tile, ...]:
    """The tiles of a crop of the (height, width) `source` that is resized to `size`."""
    if interpolation == "nearest":
        # Pixels are taken of crops as they are, which have many sizes. Trials of a size take 80 to 110 ms at 1080p, and
        # the cheapest way saves 0.2 to 0.3 ms of 0.6 to 1.0 ms a frame.
        return tiles_of(possible_ways(size, layout, scales=False)[-1], source, size, layout)
    return tiles_of(way_for(size, layout, None if source == size else interpolation), source, size, layout)


@lru_cache(maxsize=256)
def way_for(size: tuple[int, int], layout: PlaneLayout, resizing: Interpolation | None) -> Way:
    """The cheapest way that gives the same bytes as the last one, which is always right, and changes no others."""
    *others, last = possible_ways(size, layout, scales=resizing is not None)
    return next((way for way in others if _is_right(way, last, size, layout, resizing)), last)


def possible_ways(size: tuple[int, int], layout: PlaneLayout, *, scales: bool) -> tuple[Way, ...]:
    """Ways to cut a frame up, the cheapest first. The last one is right on every processor."""
    width = size[1]
    if not scales and layout.format in (swscale.GBRP, swscale.RGB24) and width >= _STEP and width % 2 == 0:
        return "whole", "columns", "last columns padded", "columns padded"
    # Less than a line that libswscale writes at once, it may write in another way for each size of the source.
    return ("whole padded",) if scales and width < _STEP else ("whole", "whole padded")


def tiles_of(way: Way, source: tuple[int, int], size: tuple[int, int], layout: PlaneLayout) -> tuple[Tile, ...]:
    """The tiles of a way. Columns are cut only where nothing is resized."""
    whole = Tile(0, source, size, layout)
    if way == "whole":
        return (whole,)
    if way == "whole padded":
        return (_padded(whole),)
    height, width = size
    wide, last = (
        Tile(start, (height, count), (height, count), layout.part(start, count))
        for start, count in ((0, width - width % _STEP), (width - _STEP, _STEP))
    )
    if way == "columns":
        return wide, last
    return (wide if way == "last columns padded" else _padded(wide)), _padded(last)


def _padded(tile: Tile) -> Tile:
    return replace(tile, padded=tile.layout.padded())


def _is_right(way: Way, right: Way, size: tuple[int, int], layout: PlaneLayout, resizing: Interpolation | None) -> bool:
    for source, place in _trials(size, scales=resizing is not None):
        one, other = (
            _noise_through(tiles_of(each, source, size, layout), source, place, resizing or "bilinear")
            for each in (way, right)
        )
        if not np.array_equal(one, other):
            return False
    return True


def _trials(size: tuple[int, int], *, scales: bool) -> Iterator[tuple[tuple[int, int], int]]:
    """Sizes of crops to try, and how many bytes they and the slot lie beyond an aligned address."""
    height, width = size
    if scales:
        yield (2 * height + 2, 2 * width + 2), 0
        yield (max(2, height // 2), max(2, width // 2)), 2
        yield (height + 2, width), 6
    else:
        yield size, 0
        yield size, 2
        yield size, 18


def _noise_through(tiles: Sequence[Tile], source: tuple[int, int], place: int, interpolation: Interpolation) -> Array:
    """The bytes of a slot, and of memory after it, once a crop of noise has been converted into these tiles."""
    stride = -(-source[1] // 64) * 64 + PADDING_BYTES
    lines = source[0] + source[0] % 2
    noise = np.random.default_rng(0).integers(0, 256, (2 * lines + 1, stride), dtype=np.uint8)
    y, u, v = (noise[line:].ctypes.data for line in (0, lines, lines + lines // 2))
    num_bytes = max(tile.layout.num_bytes for tile in tiles) + PADDING_BYTES
    memory = np.random.default_rng(1).integers(0, 256, num_bytes + place, dtype=np.uint8)
    slot = memory[place:]
    for tile in tiles:
        writer = TileWriter(tile, matrix=1, full_range=False, interpolation=interpolation)
        writer.write((y, u, v), (stride,) * 3, 0, place, slot, slot.ctypes.data)
    return memory
