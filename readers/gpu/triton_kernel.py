"""The kernel that writes many surfaces into their slots in one launch. Triton is needed to import this module.

It does what `torch_conversion` does, step by step, in the same integers. Each program makes a tile of one frame's
pixels, and reads all samples that these pixels are made of.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TYPES = {
    torch.uint8: tl.uint8,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
}
# A frame's row, int64: what says where a plane is and how it is filtered, for luma and for chroma, and then the rest.
# Addresses count bytes, distances count elements. Filters are the address of int32 values, first indices and then
# weights tap by tap, and the number of taps.
PLANE_FIELDS = tl.constexpr(8)  # samples, pitch, lines, line taps, columns, column taps, range factor, range offset
SLOT = tl.constexpr(16)  # address, and the strides of channels, lines and columns
SIZE = tl.constexpr(20)  # height, width, and whether left and right change places
FACTORS = tl.constexpr(23)  # luma, red, blue, green from U, green from V, offset
NUM_FIELDS = tl.constexpr(29)


@triton.jit
def _number(row, field):
    return tl.load(row + field).to(tl.int32)


@triton.jit
def _filtered(
    row,
    y,
    x,
    height,
    width,
    FIRST: tl.constexpr,
    SPACING: tl.constexpr,
    BIT_DEPTH: tl.constexpr,
    RANGE: tl.constexpr,
):
    """A tile of a plane, filtered along both axes: int32 of 27 bits. Elements outside of (height, width) are 0.

    Samples of the plane are `SPACING` elements apart and begin at `FIRST`.
    """
    SAMPLE: tl.constexpr = tl.uint8 if BIT_DEPTH == 8 else tl.uint16
    SAMPLE_SHIFT: tl.constexpr = 0 if BIT_DEPTH == 8 else 16 - BIT_DEPTH
    samples, pitch = tl.load(row).to(tl.pointer_type(SAMPLE)) + FIRST, tl.load(row + 1)
    lines, line_taps = tl.load(row + 2).to(tl.pointer_type(tl.int32)), _number(row, 3)
    columns, column_taps = tl.load(row + 4).to(tl.pointer_type(tl.int32)), _number(row, 5)
    in_lines, in_columns = y < height, x < width
    inside = in_lines[:, None] & in_columns[None, :]
    first_line = tl.load(lines + y, mask=in_lines, other=0)
    first_column = tl.load(columns + x, mask=in_columns, other=0)
    result = tl.zeros((y.shape[0], x.shape[0]), dtype=tl.int32)
    for line_tap in range(line_taps):
        line_weight = tl.load(lines + (1 + line_tap) * height + y, mask=in_lines, other=0)
        line = samples + ((first_line + line_tap).to(tl.int64) * pitch)[:, None]
        along = tl.zeros((y.shape[0], x.shape[0]), dtype=tl.int32)
        for column_tap in range(column_taps):
            column_weight = tl.load(columns + (1 + column_tap) * width + x, mask=in_columns, other=0)
            place = (first_column + column_tap) * SPACING
            sample = tl.load(line + place[None, :], mask=inside, other=0).to(tl.int32) >> SAMPLE_SHIFT
            along += sample * column_weight[None, :]
        along = tl.minimum(along >> (BIT_DEPTH - 1), 32767)
        if RANGE:
            along = tl.minimum((along * _number(row, 6) + _number(row, 7)) >> 14, 32767)
        result += along * line_weight[:, None]
    return result


@triton.jit
def _clipped(levels):
    return tl.minimum(tl.maximum(levels, 0), 255)


@triton.jit
def _level(sums):
    return _clipped((sums + (1 << 18)) >> 19)


@triton.jit
def _sample(sums):
    return (sums + 512) >> 10


@triton.jit
def _from_samples(value):
    return tl.minimum(tl.maximum(value, 0), (1 << 30) - 1) >> 22


@triton.jit
def _table_steps(level, factor):
    return ((level * factor) >> 16) - (factor >> 9)


@triton.jit
def _rgb(y, u, v, factors, FORMULA: tl.constexpr):
    """Levels of red, green and blue, by a formula of `torch_conversion`, from filtered planes."""
    luma, red, blue = _number(factors, 0), _number(factors, 1), _number(factors, 2)
    green_u, green_v, offset = _number(factors, 3), _number(factors, 4), _number(factors, 5)
    if FORMULA == "replicated":
        base = (8 * (_level(y) - offset) * luma) >> 16
        u, v = 8 * (_level(u) - 128), 8 * (_level(v) - 128)
        first = _clipped(base + ((v * red) >> 16))
        second = _clipped(base + ((u * green_u) >> 16) + ((v * green_v) >> 16))
        third = _clipped(base + ((u * blue) >> 16))
    elif FORMULA == "full chroma":
        base = (_sample(y) - (offset << 9)) * luma + (1 << 21)
        u, v = _sample(u) - (128 << 9), _sample(v) - (128 << 9)
        first = _from_samples(base + v * red)
        second = _from_samples(base + v * green_v + u * green_u)
        third = _from_samples(base + u * blue)
    else:
        level, u, v = _level(y), _level(u), _level(v)
        added = _table_steps(u, green_u) + _table_steps(v, green_v)
        first = _clipped((luma * (level + _table_steps(v, red)) + offset) >> 16)
        second = _clipped((luma * (level + added) + offset) >> 16)
        third = _clipped((luma * (level + _table_steps(u, blue)) + offset) >> 16)
    return first, second, third


@triton.jit
def _store(place, levels, mask, scale, offset, FLOATS: tl.constexpr, NORMALIZE: tl.constexpr):
    if FLOATS:
        values = levels.to(tl.float32) * scale
        if NORMALIZE:
            values += offset
        tl.store(place, values.to(place.dtype.element_ty), mask=mask)
    else:
        tl.store(place, levels.to(tl.uint8), mask=mask)


@triton.jit
def _store_plane(slot, start, levels, y, x, height, width, slot_width, line_stride, column_stride):
    """Write a plane of chroma to where it lies among the samples of yuv420, counted without gaps from `start`."""
    number = start + y[:, None] * width + x[None, :]
    place = (
        slot + (number // slot_width).to(tl.int64) * line_stride + (number % slot_width).to(tl.int64) * column_stride
    )
    tl.store(place, levels.to(tl.uint8), mask=(y < height)[:, None] & (x < width)[None, :])


@triton.jit
def convert_surfaces(
    rows,
    scale_0,
    scale_1,
    scale_2,
    offset_0,
    offset_1,
    offset_2,
    COLOR: tl.constexpr,
    FORMULA: tl.constexpr,
    RANGE: tl.constexpr,
    BIT_DEPTH: tl.constexpr,
    TARGET: tl.constexpr,
    FLOATS: tl.constexpr,
    NORMALIZE: tl.constexpr,
    LINES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write tile (program 1, program 0) of frame (program 2). `rows` is int64, (frames, NUM_FIELDS).

    `TARGET` is the slots' type. `RANGE` says that planes may have to be brought to full range.
    """
    row = rows + tl.program_id(2).to(tl.int64) * NUM_FIELDS
    height, width = _number(row, SIZE), _number(row, SIZE + 1)
    top, left = tl.program_id(1) * LINES, tl.program_id(0) * COLUMNS
    # Frames of a launch may differ in size: this one may have fewer tiles.
    if (top < height) & (left < width):
        y, x = top + tl.arange(0, LINES), left + tl.arange(0, COLUMNS)
        inside = (y < height)[:, None] & (x < width)[None, :]
        slot = tl.load(row + SLOT).to(tl.pointer_type(TARGET))
        channel_stride, line_stride, column_stride = (
            tl.load(row + SLOT + 1),
            tl.load(row + SLOT + 2),
            tl.load(row + SLOT + 3),
        )
        column = x if COLOR == "yuv420" else tl.where(_number(row, SIZE + 2) != 0, width - 1 - x, x)
        place = slot + y.to(tl.int64)[:, None] * line_stride + column.to(tl.int64)[None, :] * column_stride
        luma = _filtered(row, y, x, height, width, 0, 1, BIT_DEPTH, RANGE)
        if COLOR == "grey":
            _store(place, _level(luma), inside, scale_0, offset_0, FLOATS, NORMALIZE)
        elif COLOR == "yuv420":
            tl.store(place, _level(luma).to(tl.uint8), mask=inside)
            lines, columns = height // 2, width // 2
            for channel in tl.static_range(2):
                plane = _filtered(row + PLANE_FIELDS, y, x, lines, columns, channel, 2, BIT_DEPTH, RANGE)
                start = height * width + channel * lines * columns
                _store_plane(slot, start, _level(plane), y, x, lines, columns, width, line_stride, column_stride)
        else:
            u = _filtered(row + PLANE_FIELDS, y, x, height, width, 0, 2, BIT_DEPTH, RANGE)
            v = _filtered(row + PLANE_FIELDS, y, x, height, width, 1, 2, BIT_DEPTH, RANGE)
            if FORMULA == "planes":
                first, second, third = _level(luma), _level(u), _level(v)
            else:
                first, second, third = _rgb(luma, u, v, row + FACTORS, FORMULA)
            _store(place, first, inside, scale_0, offset_0, FLOATS, NORMALIZE)
            _store(place + channel_stride, second, inside, scale_1, offset_1, FLOATS, NORMALIZE)
            _store(place + 2 * channel_stride, third, inside, scale_2, offset_2, FLOATS, NORMALIZE)
