"""Crops, sizes and flips of all kinds, into memory of any order: against the whole picture, cut by numpy."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortgop.manifests.ragged import Array
from shortgop.readers.convert.copies import array_of
from shortgop.readers.convert.frame_writer import FrameWriter
from shortgop.readers.convert.planes import Arrangement, PlaneLayout
from shortgop.readers.convert.swscale import GBRP
from shortgop.readers.convert.tiling import possible_ways, tiles_of, way_for
from shortgop.readers.frame_format import FrameFormat, Geometry, Interpolation, PixelFormat
from test_frame_writer import make_frame, rgb_of

HEIGHT, WIDTH = 66, 98
GUARD = 77
LAYOUTS = ["".join(order) for order in itertools.permutations("TCHW")]
FRAME = make_frame(HEIGHT, WIDTH, matrix=1)
RGB = rgb_of(FRAME).transpose(2, 0, 1)
# Writers of many geometries, as a thread has them.
WRITERS: dict[PixelFormat, FrameWriter] = {}
INTERPOLATIONS = st.sampled_from(get_args(Interpolation))


def slot_in(memory: Array, layout: str, frames: int, shape: tuple[int, int, int]) -> Array:
    """Frame 1 of a clip that lies in memory in this order: (channels, height, width)."""
    lengths = dict(zip("TCHW", (frames, *shape), strict=True))
    clip = memory.reshape([lengths[dimension] for dimension in layout])
    slot: Array = clip.transpose([layout.index(dimension) for dimension in "TCHW"])[1]
    return slot


def written(
    geometry: Geometry,
    layout: str = "TCHW",
    color: Any = "rgb",
    dtype: torch.dtype = torch.uint8,
    interpolation: Interpolation = "bilinear",
) -> Array:
    """A frame as one of three of a clip; nothing else may change, neither in other frames nor around the clip."""
    pixels = PixelFormat(dtype, None, color, interpolation)
    writer = WRITERS.setdefault(pixels, FrameWriter(pixels))
    shape = pixels.shape(*geometry.size)
    count = 3 * int(np.prod(shape))
    clip = torch.full((count + 512,), GUARD, dtype=dtype)
    memory = array_of(clip)
    guard = memory[0].copy()
    slot = slot_in(memory[256 : 256 + count], layout, 3, shape)
    writer.write(FRAME, slot, geometry)
    result = slot.copy()
    slot[...] = guard
    assert (memory == guard).all()
    return result


def sides_of(side: int) -> st.SearchStrategy[int]:
    """Sides of a result: libswscale has other code for planes whose sides stay as they are."""
    return st.sampled_from([side, max(1, side // 2), min(90, 2 * side)]) | st.integers(1, 90)


@st.composite
def geometries(draw: st.DrawFn, *, scaled: bool) -> Geometry:
    height, width = draw(st.integers(1, HEIGHT)), draw(st.integers(1, WIDTH))
    top = 2 * draw(st.integers(0, (HEIGHT - height) // 2))
    left = 2 * draw(st.integers(0, (WIDTH - width) // 2))
    size = (draw(sides_of(height)), draw(sides_of(width))) if scaled else (height, width)
    return Geometry(top, left, height, width, size, draw(st.booleans()))


@settings(max_examples=150)
@given(geometries(scaled=False), st.sampled_from(LAYOUTS))
def test_a_crop_that_is_not_resized_is_a_part_of_the_whole_picture(geometry: Geometry, layout: str) -> None:
    top, left, height, width = geometry.top, geometry.left, geometry.height, geometry.width
    expected = RGB[:, top : top + height, left : left + width]
    found = written(geometry, layout)
    assert np.array_equal(found, expected[:, :, ::-1] if geometry.flip else expected)


@settings(max_examples=150)
@given(geometries(scaled=True), st.sampled_from(LAYOUTS), st.sampled_from(["rgb", "ycbcr", "grey"]), INTERPOLATIONS)
def test_a_resized_crop_changes_no_other_memory_and_does_not_depend_on_where_it_goes(
    geometry: Geometry, layout: str, color: Any, interpolation: Interpolation
) -> None:
    uint8 = torch.uint8
    found = written(geometry, layout, color, uint8, interpolation)
    # Packed RGB of libswscale's is rounded in another way than planar RGB.
    packed = color == "rgb" and layout.index("C") > layout.index("W")
    assert np.array_equal(found, written(geometry, "TCHW" if not packed else "THWC", color, uint8, interpolation))
    straight = Geometry(geometry.top, geometry.left, geometry.height, geometry.width, geometry.size)
    if geometry.flip:
        assert np.array_equal(found[:, :, ::-1], written(straight, layout, color, uint8, interpolation))


@settings(max_examples=60)
@given(geometries(scaled=True) | geometries(scaled=False), INTERPOLATIONS)
def test_planes_change_no_other_memory(geometry: Geometry, interpolation: Interpolation) -> None:
    """Their sides are even."""
    height, width, *size = (-(-side // 2) * 2 for side in (geometry.height, geometry.width, *geometry.size))
    even = Geometry(geometry.top, geometry.left, height, width, (size[0], size[1]))
    assert written(even, color="yuv420", interpolation=interpolation).shape == (1, even.size[0] * 3 // 2, even.size[1])


@settings(max_examples=60)
@given(
    geometries(scaled=True) | geometries(scaled=False),
    st.sampled_from(LAYOUTS),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    st.sampled_from(["rgb", "ycbcr", "grey"]),
    INTERPOLATIONS,
)
def test_floats_are_the_bytes_divided_by_255(
    geometry: Geometry, layout: str, dtype: torch.dtype, color: Any, interpolation: Interpolation
) -> None:
    levels = torch.from_numpy(written(geometry, layout, color, torch.uint8, interpolation))
    bits = written(geometry, layout, color, dtype, interpolation)
    found = torch.from_numpy(bits).view(dtype) if dtype == torch.bfloat16 else torch.from_numpy(bits)
    assert found.dtype == dtype
    expected = (levels.float() * torch.tensor(1 / 255)).to(dtype)
    # Numbers from 0 to 1 of float32 may differ in their last bit, which may round to another number of 16 bits.
    assert torch.allclose(found.float(), expected.float(), rtol=2 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("matrix", [1, 5, 9])
@pytest.mark.parametrize("full_range", [False, True])
def test_ycbcr_and_grey_are_the_planes_in_full_range(matrix: int, full_range: bool) -> None:
    frame = make_frame(64, 96, matrix=matrix, full_range=full_range, smooth=True)
    planes = []
    for number, plane in enumerate(frame.planes):
        lines = np.frombuffer(plane, dtype=np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]
        levels = lines.astype(np.float64)
        if not full_range:
            levels = (levels - 16) * 255 / 219 if number == 0 else (levels - 128) * 255 / 224 + 128
        planes.append(levels.clip(0, 255))
    geometry = Geometry(0, 0, 64, 96, (64, 96))
    pictures = []
    for color in ("ycbcr", "grey"):
        slot = np.zeros(PixelFormat(color=color).shape(64, 96), dtype=np.uint8)
        FrameWriter(PixelFormat(color=color)).write(frame, slot, geometry)
        pictures.append(slot.astype(np.float64))
    ycbcr, grey = pictures
    assert np.abs(ycbcr[0] - planes[0]).max() <= 1
    assert np.abs(grey[0] - planes[0]).max() <= 1
    for number in (1, 2):
        # In the middle of smooth waves, chroma of twice the size is near to what it is made from.
        found = ycbcr[number].reshape(32, 2, 48, 2).mean(axis=(1, 3))
        assert np.abs(found - planes[number])[4:-4, 4:-4].mean() < 1.5


def test_the_table_of_ways_does_not_grow_with_crops() -> None:
    """What libswscale does at the ends of lines is tried for each size of the result, not for each crop."""
    writer = FrameWriter(PixelFormat())
    way_for.cache_clear()
    slot = np.zeros((3, 32, 48), dtype=np.uint8)
    for top, left, more in itertools.product(range(0, 30, 6), range(0, 40, 8), (0, 2, 4)):
        writer.write(FRAME, slot, Geometry(top, left, 32 + more, 48 + more, (32, 48)))
    assert way_for.cache_info().misses == 2


def test_converters_are_bounded() -> None:
    writer = FrameWriter(PixelFormat())
    slot = np.zeros((3, 16, 16), dtype=np.uint8)
    for height, width in itertools.product(range(20, 44, 2), range(20, 44, 2)):
        writer.write(FRAME, slot, Geometry(0, 0, height, width, (16, 16)))
    assert len(writer._converters) == 128


def test_only_whole_tilings_resize() -> None:
    layout = PlaneLayout.of(PixelFormat(), (40, 50), Arrangement(False, 2000))
    assert layout.format == GBRP
    assert possible_ways((40, 50), layout, scales=True) == ("whole", "whole padded")
    left, right = tiles_of("columns", (40, 50), (40, 50), layout)
    assert (left.left, left.size, right.left, right.size) == (0, (40, 48), 34, (40, 16))


def test_geometries_of_frames_of_the_reader_have_no_flip() -> None:
    assert not FrameFormat(size=(4, 4), crop="center").geometry(64, 96).flip
