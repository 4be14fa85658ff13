"""A surface into a slot of a batch in plain torch: the reference of the kernel, and what runs where that cannot.

All numbers are integers of 32 bits until there are levels of 0 to 255, as in libswscale. A filter along lines gives
samples of 15 bits, one along columns 27 bits of these. The formulas of a plan make levels of them:

- "replicated": levels of Y, U and V are multiplied one by one, (8 * level * factor) >> 16, and added
  (libswscale/x86/yuv_2_rgb.asm).
- "full chroma": samples of 17 bits, which are multiplied and added before they are rounded; what does not fit into 32
  bits wraps (`yuv2rgb_write_full` in libswscale/output.c).
- "tables": levels of Y, U and V; what U and V add is rounded to whole levels of luma (`ff_yuv2rgb_c_init_tables`).
- "planes": levels as they are, brought to full range unless the output is yuv420.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from ...errors import DecodeError
from ..convert.swscale import MATRICES
from ..frame_format import Geometry, PixelFormat
from .color_factors import (
    CHROMA_LIMITED,
    LUMA_LIMITED,
    ColorFactors,
    RangeFactors,
    color_factors,
    range_factors,
    table_factors,
)
from .conversion_plan import ConversionPlan, Formula, conversion_plan
from .filter_taps import COLUMN_BITS, LINE_BITS, Taps
from .host_numbers import tensor_on
from .surfaces import Surface

# Bits of samples that are filtered along lines, and the largest of them.
SAMPLE_BITS = 15
_LARGEST = (1 << SAMPLE_BITS) - 1
# From a sum over both axes to a level.
LEVEL_SHIFT = SAMPLE_BITS - 8 + LINE_BITS


@dataclass(frozen=True)
class SurfaceColors:
    """The numbers of a surface's matrix and range for one formula, and for samples of luma and of chroma."""

    factors: ColorFactors
    luma_range: RangeFactors
    chroma_range: RangeFactors


@lru_cache(maxsize=256)
def surface_colors(formula: Formula, pixels: PixelFormat, matrix: int, *, full_range: bool) -> SurfaceColors:
    """DecodeError for a matrix that libswscale does not know, if the output is RGB."""
    # Planes keep the range that they have in yuv420; RGB has its own formulas.
    kept = full_range or pixels.color in ("rgb", "yuv420")
    factors = ColorFactors(0, 0, 0, 0, 0, 0)
    if formula != "planes":
        factors = (table_factors if formula == "tables" else color_factors)(matrix, full_range=full_range)
    return SurfaceColors(
        factors, range_factors(LUMA_LIMITED, full_range=kept), range_factors(CHROMA_LIMITED, full_range=kept)
    )


@lru_cache(maxsize=64)
def float_factors(pixels: PixelFormat) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What the levels of each channel are multiplied with, and what is added, as float32: the CPU reader's."""
    mean, std = pixels.mean_and_std or ((0.0,) * pixels.channels, (1.0,) * pixels.channels)
    scale, offset = [1 / (255 * width) for width in std], [-low / width for low, width in zip(mean, std, strict=True)]
    rounded = torch.tensor([scale, offset], dtype=torch.float64, device="cpu").float().tolist()
    return tuple(rounded[0]), tuple(rounded[1])


def write_surface(surface: Surface, geometry: Geometry, slot: torch.Tensor, pixels: PixelFormat) -> None:
    """Write a part of a surface into `slot`, (channels, height, width), with any strides, on the surface's device.

    DecodeError when the slot has another shape, or the part does not lie within the surface.
    """
    # A tensor that was made in inference mode can only be written there, and this thread is another one.
    with torch.inference_mode():
        _write(surface, geometry, slot, pixels)


def _write(surface: Surface, geometry: Geometry, slot: torch.Tensor, pixels: PixelFormat) -> None:
    plan = checked_plan(surface, geometry, slot, pixels)
    levels = _levels(surface, plan, pixels)
    if geometry.flip and pixels.color != "yuv420":
        levels = [channel.flip(1) for channel in levels]
    if pixels.color == "yuv420":
        slot.copy_(torch.cat([plane.reshape(-1) for plane in levels]).reshape(slot.shape))
        return
    stacked = torch.stack(levels)
    if pixels.dtype == torch.uint8:
        slot.copy_(stacked)
        return
    factors = np.array(float_factors(pixels), dtype=np.float32)
    scale, offset = tensor_on(slot.device, factors).reshape(2, -1, 1, 1)
    floats = stacked.float() * scale
    slot.copy_(floats + offset if pixels.normalize is not None else floats)


def checked_plan(surface: Surface, geometry: Geometry, slot: torch.Tensor, pixels: PixelFormat) -> ConversionPlan:
    """The plan for this surface.

    DecodeError when the slot does not fit, or the part does not lie within the surface.
    """
    if tuple(slot.shape) != pixels.shape(*geometry.size) or slot.dtype != pixels.dtype:
        raise DecodeError(f"a frame of {geometry.size} for a slot of shape {tuple(slot.shape)} and {slot.dtype}")
    if geometry.top + geometry.height > surface.height or geometry.left + geometry.width > surface.width:
        raise DecodeError(f"a surface of {surface.width}x{surface.height}, which does not contain {geometry}")
    if slot.device != surface.y.device:
        raise DecodeError(f"a surface on {surface.y.device} for a slot on {slot.device}")
    size, tagged = (surface.height, surface.width), surface.matrix in MATRICES
    return conversion_plan(
        size, geometry, pixels.color, pixels.interpolation, bit_depth=surface.bit_depth, tagged=tagged
    )


def _levels(surface: Surface, plan: ConversionPlan, pixels: PixelFormat) -> list[torch.Tensor]:
    """The levels of each channel: int32, (height, width)."""
    colors = surface_colors(plan.formula, pixels, surface.matrix, full_range=surface.full_range)
    filters = plan.filters
    y = _filtered(surface.y[plan.top :, plan.left :], filters.lines, filters.columns, surface, colors.luma_range)
    if pixels.color == "grey":
        return [_level(y)]
    chroma = surface.uv[plan.top // 2 :, plan.left // 2 :]
    u, v = (
        _filtered(chroma[..., number], filters.chroma_lines, filters.chroma_columns, surface, colors.chroma_range)
        for number in range(2)
    )
    if plan.formula == "planes":
        return [_level(y), _level(u), _level(v)]
    if plan.formula == "full chroma":
        return _full_chroma(y, u, v, colors.factors)
    return (_replicated if plan.formula == "replicated" else _by_tables)(
        _level(y), _level(u), _level(v), colors.factors
    )


def _filtered(
    plane: torch.Tensor, lines: Taps, columns: Taps, surface: Surface, of_range: RangeFactors
) -> torch.Tensor:
    """A plane filtered along both axes: int32 of 27 bits."""
    device = plane.device
    first, weights = _on(columns, device)
    top, bottom = int(lines.first[0]), int(lines.first[-1]) + lines.weights.shape[1]
    samples = plane[top:bottom]
    if surface.bit_depth == 8:
        samples = samples.to(torch.int32)
    else:
        # torch can do little with uint16.
        samples = (samples.view(torch.int16).to(torch.int32) & 0xFFFF) >> (16 - surface.bit_depth)
    along = torch.zeros((samples.shape[0], len(first)), dtype=torch.int32, device=device)
    for tap in range(weights.shape[1]):
        along += samples[:, first + tap] * weights[:, tap]
    along = (along >> (COLUMN_BITS + surface.bit_depth - SAMPLE_BITS)).clamp_(max=_LARGEST)
    along = ((along * of_range.factor + of_range.offset) >> 14).clamp_(max=_LARGEST)
    first, weights = _on(lines, device)
    result = torch.zeros((len(first), along.shape[1]), dtype=torch.int32, device=device)
    for tap in range(weights.shape[1]):
        result += along[first - top + tap] * weights[:, tap : tap + 1]
    return result


def _on(taps: Taps, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor_on(device, taps.first), tensor_on(device, taps.weights)


def _level(sums: torch.Tensor) -> torch.Tensor:
    return ((sums + (1 << (LEVEL_SHIFT - 1))) >> LEVEL_SHIFT).clamp(0, 255)


def _replicated(y: torch.Tensor, u: torch.Tensor, v: torch.Tensor, factors: ColorFactors) -> list[torch.Tensor]:
    luma = (8 * (y - factors.offset) * factors.luma) >> 16
    u, v = 8 * (u - 128), 8 * (v - 128)
    red = luma + ((v * factors.red) >> 16)
    green = luma + ((u * factors.green_u) >> 16) + ((v * factors.green_v) >> 16)
    blue = luma + ((u * factors.blue) >> 16)
    return [channel.clamp(0, 255) for channel in (red, green, blue)]


def _full_chroma(y: torch.Tensor, u: torch.Tensor, v: torch.Tensor, factors: ColorFactors) -> list[torch.Tensor]:
    # Samples have 9 bits more than levels.
    luma = (((y + 512) >> 10) - (factors.offset << 9)) * factors.luma + (1 << 21)
    u, v = (((each + 512) >> 10) - (128 << 9) for each in (u, v))
    red = luma + v * factors.red
    green = luma + v * factors.green_v + u * factors.green_u
    blue = luma + u * factors.blue
    return [channel.clamp(0, (1 << 30) - 1) >> 22 for channel in (red, green, blue)]


def _by_tables(y: torch.Tensor, u: torch.Tensor, v: torch.Tensor, factors: ColorFactors) -> list[torch.Tensor]:
    red, blue, green_u, green_v = (
        ((level * factor) >> 16) - (factor >> 9)
        for level, factor in (
            (v, factors.red),
            (u, factors.blue),
            (u, factors.green_u),
            (v, factors.green_v),
        )
    )
    return [
        ((factors.luma * (y + added) + factors.offset) >> 16).clamp(0, 255) for added in (red, green_u + green_v, blue)
    ]
