"""Which filters and which formula give what was asked for, with the CPU reader's pixels.

libswscale has several ways from YCbCr to RGB, which differ by more than rounding. Which one it takes depends on the
sizes and on the depth of the samples. A plan names the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ..frame_format import Color, Geometry
from .filter_taps import Taps, repeated, resized, same

Formula = Literal["replicated", "full chroma", "tables", "planes"]
"""How filtered samples become levels: see `torch_conversion`."""


@dataclass(frozen=True, eq=False)
class ConversionPlan:
    """How a part of a frame is converted.

    The filters' indices count from `top` and `left` of the frame, and from half of them in the planes of chroma. `size`
    is that of the result; in yuv420 the planes of chroma have half of it.
    """

    formula: Formula
    top: int
    left: int
    size: tuple[int, int]
    filters: PlaneFilters


@dataclass(frozen=True, eq=False)
class PlaneFilters:
    """The filters of luma and of chroma."""

    lines: Taps
    columns: Taps
    chroma_lines: Taps
    chroma_columns: Taps


@lru_cache(maxsize=1024)
def conversion_plan(
    frame_size: tuple[int, int], geometry: Geometry, color: Color, *, bit_depth: int, tagged: bool
) -> ConversionPlan:
    """The plan for a part of frames of this (height, width). The geometry lies within the frame.

    `tagged` says that the matrix is one of those that the CPU reader gives to libswscale itself.
    """
    part = (geometry.height, geometry.width)
    formula, filters = _filters(part, geometry.size, color, bit_depth)
    if not _of_whole_frame(geometry, color, straight=bit_depth == 8 and tagged):
        return ConversionPlan(formula, geometry.top, geometry.left, geometry.size, filters)
    # The CPU reader converts the whole frame and cuts the part out, so the filters go beyond the edges of the part.
    formula, whole = _filters(frame_size, frame_size, color, bit_depth)
    lines, columns = (geometry.top, geometry.height), (geometry.left, geometry.width)
    filters = PlaneFilters(
        whole.lines.part(*lines),
        whole.columns.part(*columns),
        whole.chroma_lines.part(*lines),
        whole.chroma_columns.part(*columns),
    )
    return ConversionPlan(formula, 0, 0, geometry.size, filters)


def _of_whole_frame(geometry: Geometry, color: Color, *, straight: bool) -> bool:
    odd = bool(geometry.height % 2 or geometry.width % 2)
    return not geometry.scales and color != "yuv420" and (odd or not straight)


@lru_cache(maxsize=1024)
def _filters(
    source: tuple[int, int], target: tuple[int, int], color: Color, bit_depth: int
) -> tuple[Formula, PlaneFilters]:
    chroma = (-(-source[0] // 2), -(-source[1] // 2))
    lines, columns = resized(source[0], target[0], "lines"), resized(source[1], target[1], "columns")
    if color == "rgb" and source == target:
        return _unscaled_rgb(source, bit_depth)
    chroma_target = (target[0] // 2, target[1] // 2) if color == "yuv420" else target
    return "planes" if color != "rgb" else "full chroma", PlaneFilters(
        lines,
        columns,
        resized(chroma[0], chroma_target[0], "lines"),
        resized(chroma[1], chroma_target[1], "columns"),
    )


def _unscaled_rgb(size: tuple[int, int], bit_depth: int) -> tuple[Formula, PlaneFilters]:
    height, width = size
    lines, columns = same(height, "lines"), same(width, "columns")
    if bit_depth == 8 and height % 2 == 0:
        return "replicated", PlaneFilters(lines, columns, repeated(height, "lines"), repeated(width, "columns"))
    chroma_lines = resized(-(-height // 2), height, "lines")
    if width % 2 == 0:
        return "tables", PlaneFilters(lines, columns, chroma_lines, repeated(width, "columns"))
    chroma_columns = resized(-(-width // 2), width, "columns")
    return "full chroma", PlaneFilters(lines, columns, chroma_lines, chroma_columns)
