"""Pictures converted into rows of a batch piece by piece, so that every byte of a row is written, and no other.

libswscale's instructions work on many pixels at once: they write past the end of a line whose length is no multiple of
that, or leave its last pixels out. What becomes of a picture is tried out once for each geometry, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..manifests.ragged import Array
from . import swscale
from .layouts import PADDING_BYTES, Layout
from .output import Geometry

# Pixels that libswscale writes at once, or a multiple of them: lines of as many are written whole, and not further.
_STEP = 16


@dataclass(frozen=True)
class Piece:
    """Lines and columns of a picture, converted at once to `size`, (height, width).

    They are written to where they belong, `layout`, or by way of `padded`, with room behind each line.
    """

    top: int
    left: int
    height: int
    width: int
    size: tuple[int, int]
    layout: Layout
    padded: Layout | None = None


class PieceWriter:
    """Writes one piece of pictures of one colour. Belongs to one thread."""

    def __init__(self, piece: Piece, *, matrix: int, full_range: bool) -> None:
        source = (piece.height, piece.width)
        self._scaler = swscale.Scaler(
            source, piece.size, matrix=matrix, full_range=full_range, target_format=piece.layout.format
        )
        self._top, self._left, self._layout = piece.top, piece.left, piece.layout
        target = piece.padded or piece.layout
        self._starts, self._strides = target.starts, target.strides
        self._scratch: Array | None = None
        if piece.padded is not None:
            self._scratch = np.empty(piece.padded.num_bytes, dtype=np.uint8)
            self._scratch_address = self._scratch.ctypes.data
            self._scratch_lines = piece.padded.lines(self._scratch)

    def write(self, planes: Sequence[tuple[int, int]], row: Array, address: int) -> None:
        """Write it of a picture, whose planes are (address, bytes from line to line), into `row` at `address`."""
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
            for to, line in zip(self._layout.lines(row), self._scratch_lines, strict=True):
                to[...] = line


@lru_cache(maxsize=256)
def pieces(geometry: Geometry, layout: Layout) -> tuple[Piece, ...]:
    """How to convert pictures so that their rows hold what converting with room behind each line gives."""
    *others, last = candidates(geometry, layout)
    right = _noise_through(last, geometry)
    return next((each for each in others if np.array_equal(_noise_through(each, geometry), right)), last)


def candidates(geometry: Geometry, layout: Layout) -> Iterator[tuple[Piece, ...]]:
    """Ways to cut a picture up, the cheapest first; the last one is right everywhere."""
    top, left, height, width = geometry.top, geometry.left, geometry.height, geometry.width
    whole = Piece(top, left, height, width, geometry.size, layout)
    yield (whole,)
    if geometry.scales or layout.format == swscale.YUV420P or width < _STEP or width % 2:
        yield (_padded(whole),)
        return
    wide = width - width % _STEP
    columns = [
        Piece(top, left + start, height, count, (height, count), layout.part(start, count))
        for start, count in ((0, wide), (width - _STEP, _STEP))
    ]
    yield tuple(columns)
    yield columns[0], _padded(columns[1])
    yield tuple(map(_padded, columns))


def _padded(piece: Piece) -> Piece:
    return replace(piece, padded=piece.layout.padded())


def _noise_through(way: Sequence[Piece], geometry: Geometry) -> Array:
    """What becomes of a row, and of what lies behind it, when a picture of noise is converted like this."""
    stride = geometry.left + geometry.width + PADDING_BYTES
    lines = geometry.top + geometry.height + geometry.height % 2
    noise = np.random.default_rng(0).integers(0, 256, (2 * lines + 1, stride), dtype=np.uint8)
    planes = [(noise[line:].ctypes.data, stride) for line in (0, lines, lines + lines // 2)]
    num_bytes = max(piece.layout.num_bytes for piece in way) + PADDING_BYTES
    memory = np.random.default_rng(1).integers(0, 256, num_bytes, dtype=np.uint8)
    for piece in way:
        PieceWriter(piece, matrix=1, full_range=False).write(planes, memory, memory.ctypes.data)
    return memory
