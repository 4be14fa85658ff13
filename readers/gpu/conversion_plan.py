"""Which filters and which formula give what was asked for, with the CPU reader's pixels.

libswscale has several ways from YCbCr to RGB, which differ by more than rounding. Which one it takes depends on the
sizes and on the depth of the samples. A plan names the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from ..frame_format import Color, Geometry, Interpolation
from .filter_taps import Taps, resized, same

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
    frame_size: tuple[int, int],
    geometry: Geometry,
    color: Color,
    interpolation: Interpolation = "bilinear",
    *,
    bit_depth: int,
    tagged: bool,
) -> ConversionPlan:
    """The plan for a part of frames of this (height, width). The geometry lies within the frame.

    `tagged` says that the matrix is one of those that the CPU reader gives to libswscale itself.
    """
    part = (geometry.height, geometry.width)
    if geometry.scales and interpolation == "nearest":
        # Pixels of the part as it is.
        unscaled = replace(geometry, size=part)
        plan = conversion_plan(frame_size, unscaled, color, bit_depth=bit_depth, tagged=tagged)
        filters = _nearest(plan.filters, geometry.size, half=color == "yuv420")
        return replace(plan, size=geometry.size, filters=filters)
    odd = bool(geometry.height % 2 or geometry.width % 2)
    # The CPU reader leaves what is none of these to PyAV, which heeds that chroma lies to the left.
    straight = bit_depth == 8 and (geometry.scales or (tagged and not odd))
    if straight or geometry.scales or color == "yuv420":
        resizing = interpolation if geometry.scales else "bilinear"
        formula, filters = _filters(part, geometry.size, color, bit_depth, resizing, left=not straight)
        return ConversionPlan(formula, geometry.top, geometry.left, geometry.size, filters)
    # PyAV converts the whole frame, and the part is cut out. So the filters go beyond the edges of the part.
    formula, whole = _filters(frame_size, frame_size, color, bit_depth, "bilinear", left=True)
    lines, columns = (geometry.top, geometry.height), (geometry.left, geometry.width)
    filters = PlaneFilters(
        whole.lines.part(*lines),
        whole.columns.part(*columns),
        whole.chroma_lines.part(*lines),
        whole.chroma_columns.part(*columns),
    )
    return ConversionPlan(formula, 0, 0, geometry.size, filters)


@lru_cache(maxsize=1024)
def _nearest(filters: PlaneFilters, size: tuple[int, int], *, half: bool) -> PlaneFilters:
    """The filters of the nearest pixels; with `half`, chroma has half of the (height, width)."""
    (height, width), chroma = size, (size[0] // 2, size[1] // 2) if half else size
    return PlaneFilters(
        filters.lines.nearest(height),
        filters.columns.nearest(width),
        filters.chroma_lines.nearest(chroma[0]),
        filters.chroma_columns.nearest(chroma[1]),
    )


@lru_cache(maxsize=1024)
def _filters(
    source: tuple[int, int],
    target: tuple[int, int],
    color: Color,
    bit_depth: int,
    interpolation: Interpolation,
    *,
    left: bool,
) -> tuple[Formula, PlaneFilters]:
    (height, width), chroma = source, (-(-source[0] // 2), -(-source[1] // 2))
    lines, columns = (
        resized(height, target[0], "lines", interpolation),
        resized(width, target[1], "columns", interpolation),
    )
    if color == "rgb" and source == target and bit_depth == 8 and height % 2 == 0:
        chroma_lines, chroma_columns = same(chroma[0], "lines"), same(chroma[1], "columns")
        repeated = PlaneFilters(lines, columns, chroma_lines.repeated(height), chroma_columns.repeated(width))
        return "replicated", repeated
    if color == "rgb" and source == target and width % 2 == 0:
        chroma_lines = resized(chroma[0], height, "lines")
        chroma_columns = resized(chroma[1], chroma[1], "columns", left=left).repeated(width)
        return "tables", PlaneFilters(lines, columns, chroma_lines, chroma_columns)
    chroma_target = (target[0] // 2, target[1] // 2) if color == "yuv420" else target
    return "full chroma" if color == "rgb" else "planes", PlaneFilters(
        lines,
        columns,
        resized(chroma[0], chroma_target[0], "lines", interpolation),
        resized(chroma[1], chroma_target[1], "columns", interpolation, left=left and color != "yuv420"),
    )
