"""Surfaces of a GPU's decoder into slots: in plain torch, which has to give the CPU reader's pixels."""

from __future__ import annotations

import ctypes
import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import av
import numpy as np
import pytest
import torch
from gpu_conversion import PIXELS, by_torch, cases, filled, wrong_frames
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_surfaces import empty_slot, from_cpu_reader, noise_frame, surface_of
from rounding import MOST_LEVELS
from shortgop.errors import DatasetWarning, DecodeError
from shortgop.readers.convert import swscale
from shortgop.readers.frame_format import Color, FrameFormat, Geometry, Interpolation, Normalize, PixelFormat
from shortgop.readers.gpu.color_factors import _COEFFICIENTS, color_factors
from shortgop.readers.gpu.conversion_plan import conversion_plan
from shortgop.readers.gpu.filter_taps import resized
from shortgop.readers.gpu.surface_conversion import conversion_way, convert, tell_once
from shortgop.readers.gpu.surfaces import Surface
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.usefixtures("one_torch_thread")

RGB = PixelFormat()
INTERPOLATIONS = get_args(Interpolation)
MATRICES = sorted(swscale.MATRICES)
COLOURS = list(itertools.product(MATRICES, (False, True)))
IMAGENET: Normalize = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def converted(frame: Any, geometry: Geometry, pixels: PixelFormat, order: str = "NCHW") -> torch.Tensor:
    slot = empty_slot(geometry, pixels, order)
    convert([surface_of(frame)], [geometry], [slot], pixels)
    return slot


def difference(frame: Any, geometry: Geometry, pixels: PixelFormat, order: str = "NCHW") -> int:
    """The largest difference to the CPU reader, in levels."""
    found, expected = (make(frame, geometry, pixels, order) for make in (converted, from_cpu_reader))
    return int((found.int() - expected.int()).abs().max())


def whole(height: int, width: int, size: tuple[int, int] | None = None) -> Geometry:
    return Geometry(0, 0, height, width, size or (height, width))


# What was found for a device is kept, so each value has a device of its own.
@pytest.mark.parametrize(("number", "value"), [(7, "1"), (8, "true"), (9, "ON")])
def test_tritons_interpreter_is_not_tried_with_memory_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, number: int, value: str
) -> None:
    """It runs on the CPU, where the first address of a GPU would end the process."""
    monkeypatch.setenv("TRITON_INTERPRET", value)
    way = conversion_way(torch.device("cuda", number))
    assert way == ("torch", "TRITON_INTERPRET is set, and Triton's interpreter runs on the CPU")


@st.composite
def parts(draw: st.DrawFn, even: bool) -> tuple[tuple[int, int], Geometry]:
    """Sizes of frames, and parts of them that are resized or not; with `even`, those that yuv420 can have."""
    step = 2 if even else 1
    sides = []
    for _ in range(2):
        full = 2 * draw(st.integers(1, 60))
        count = draw(st.integers(1, full // step)) * step
        sides.append((full, count, draw(st.integers(0, (full - count) // 2)) * 2, draw(st.integers(1, 70)) * step))
    (height, *_), (width, *_) = sides
    size = tuple(side[3] for side in sides) if draw(st.booleans()) else tuple(side[1] for side in sides)
    return (height, width), Geometry(sides[0][2], sides[1][2], sides[0][1], sides[1][1], (size[0], size[1]))


def test_coefficients_are_those_of_libswscale() -> None:
    library = swscale.library()
    for matrix in MATRICES:
        address = library.sws_getCoefficients(matrix)
        assert tuple((ctypes.c_int * 4).from_address(address)) == _COEFFICIENTS[matrix]


def test_an_unknown_matrix_is_an_error_that_names_it() -> None:
    with pytest.raises(DecodeError, match="matrix coefficients 8, which are not converted"):
        color_factors(8, full_range=False)


@pytest.mark.parametrize(("matrix", "full_range"), COLOURS)
def test_rgb_of_the_frame_s_size_equals_the_cpu_reader_s(matrix: int, full_range: bool) -> None:
    for height, width in ((2, 2), (34, 40), (64, 98)):
        frame = noise_frame(height, width, matrix=matrix, full_range=full_range)
        for order in ("NCHW", "NHWC"):
            assert difference(frame, whole(height, width), RGB, order) <= MOST_LEVELS
            assert difference(frame, whole(height - 1, width - 1), RGB, order) <= MOST_LEVELS


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("matrix", "full_range"), COLOURS)
def test_resized_rgb_equals_the_cpu_reader_s_planes(
    matrix: int, full_range: bool, interpolation: Interpolation
) -> None:
    frame = noise_frame(96, 128, matrix=matrix, full_range=full_range)
    for size in ((48, 64), (33, 44), (96, 200), (224, 224), (7, 9)):
        found = difference(frame, whole(96, 128, size), PixelFormat(interpolation=interpolation))
        assert found <= (MOST_LEVELS if interpolation == "nearest" else 0)


@pytest.mark.parametrize(
    ("size", "interpolation"),
    [
        # A side that the bicubic filter reduces by more than 42 is resized in two steps by libswscale.
        *itertools.product([(8, 8)], ["bilinear", "nearest"]),
        *itertools.product([(180, 320), (360, 202), (224, 398), (10, 16), (720, 1280), (500, 900)], INTERPOLATIONS),
    ],
)
def test_resizing_equals_the_cpu_reader_s_at_sizes_of_footage(
    size: tuple[int, int], interpolation: Interpolation
) -> None:
    found = difference(noise_frame(360, 640), whole(360, 640, size), PixelFormat(interpolation=interpolation))
    assert found <= (MOST_LEVELS if interpolation == "nearest" else 0)


@settings(max_examples=80, deadline=None)
@given(parts(even=False), st.sampled_from(COLOURS), st.integers(0, 9), st.sampled_from(INTERPOLATIONS))
def test_any_part_of_any_frame_is_within_a_level(
    part: tuple[tuple[int, int], Geometry], colour: tuple[int, bool], seed: int, interpolation: Interpolation
) -> None:
    (height, width), geometry = part
    frame = noise_frame(height, width, matrix=colour[0], full_range=colour[1], seed=seed)
    filtered = geometry.scales and interpolation != "nearest"
    rounding = 0 if filtered else MOST_LEVELS
    rgb, grey, ycbcr = (PixelFormat(color=color, interpolation=interpolation) for color in ("rgb", "grey", "ycbcr"))
    assert difference(frame, geometry, rgb) <= rounding
    # libswscale rounds packed pixels otherwise where it enlarges them.
    assert difference(frame, geometry, rgb, "NHWC") <= int(geometry.scales) + rounding
    assert difference(frame, geometry, grey) == 0
    # What chroma of the frame's size is multiplied with is rounded by the CPU's vector code.
    assert difference(frame, geometry, ycbcr) <= (0 if filtered else 1)


@settings(max_examples=30, deadline=None)
@given(parts(even=True), st.booleans(), st.integers(0, 9), st.sampled_from(INTERPOLATIONS))
def test_planes_equal_the_cpu_reader_s(
    part: tuple[tuple[int, int], Geometry], full_range: bool, seed: int, interpolation: Interpolation
) -> None:
    (height, width), geometry = part
    frame = noise_frame(height, width, full_range=full_range, seed=seed)
    assert difference(frame, geometry, PixelFormat(color="yuv420", interpolation=interpolation)) == 0


@pytest.mark.parametrize(("matrix", "full_range"), COLOURS)
def test_ten_bits_are_converted_as_the_cpu_reader_does(matrix: int, full_range: bool) -> None:
    frame = noise_frame(66, 98, matrix=matrix, full_range=full_range, bit_depth=10)
    for size in ((66, 98), (33, 44), (96, 200)):
        assert difference(frame, whole(66, 98, size), RGB) == 0
        assert difference(frame, whole(66, 98, size), PixelFormat(color="ycbcr")) <= 1
    assert difference(frame, Geometry(4, 6, 21, 30, (21, 30)), RGB) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
@pytest.mark.parametrize("normalize", [None, IMAGENET])
def test_floats_equal_the_cpu_reader_s(dtype: torch.dtype, order: str, normalize: Normalize | None) -> None:
    pixels = PixelFormat(dtype, normalize)
    frame = noise_frame(66, 98)
    for geometry in (whole(66, 98), Geometry(2, 4, 60, 80, (30, 40), flip=True)):
        assert torch.equal(converted(frame, geometry, pixels, order), from_cpu_reader(frame, geometry, pixels, order))


@pytest.mark.parametrize("color", ["rgb", "ycbcr", "grey"])
def test_flipped_frames_are_the_mirrored_ones(color: Color) -> None:
    pixels, frame = PixelFormat(color=color), noise_frame(66, 98)
    for size in ((40, 60), (20, 31)):
        plain, flipped = (converted(frame, Geometry(2, 4, 40, 60, size, flip), pixels) for flip in (False, True))
        assert torch.equal(flipped, plain.flip(2))


def test_many_surfaces_go_to_their_slots_of_a_batch_and_nothing_else_is_written() -> None:
    frames = [noise_frame(34, 50, seed=seed) for seed in range(4)]
    batch = torch.full((2, 3, 3, 20, 24), 77, dtype=torch.uint8)
    geometries = [Geometry(2 * number, 4, 20 + number, 24, (20, 24), flip=number == 2) for number in range(4)]
    slots = [batch[number // 2, number % 2] for number in range(4)]
    convert([surface_of(frame) for frame in frames], geometries, slots, RGB)
    for frame, geometry, slot in zip(frames, geometries, slots, strict=True):
        assert torch.equal(slot, from_cpu_reader(frame, geometry, RGB))
    assert (batch[:, 2] == 77).all()


def test_decoded_frames_show_their_numbers(tmp_path: Path) -> None:
    rate = Fraction(30)
    video = make_video(tmp_path / "x.mp4", pts=constant_rate_pts(rate, 12), timebase=1 / rate, size=(96, 64))
    enlarged = FrameFormat(size=(128, 192)).geometry(64, 96)
    with av.open(str(video.path)) as container:
        for number, frame in zip(video.numbers, container.decode(video=0), strict=True):
            for geometry in (whole(64, 96), enlarged):
                assert read_number(converted(frame, geometry, RGB)) == number


@pytest.mark.parametrize("axis", ["columns", "lines"])
@settings(max_examples=100, deadline=None)
@given(source=st.integers(1, 3000), target=st.integers(1, 1500), interpolation=st.sampled_from(["bilinear", "bicubic"]))
def test_filters_lie_within_the_source_and_keep_flat_colours(
    axis: Any, source: int, target: int, interpolation: Any
) -> None:
    taps = resized(source, target, axis, interpolation)
    assert taps.first.shape == (target,)
    assert taps.first.min() >= 0
    assert (taps.first + taps.weights.shape[1]).max() <= source
    assert (np.diff(taps.first) >= 0).all()
    total = 1 << (14 if axis == "columns" else 12)
    assert np.abs(taps.weights.sum(axis=1) - total).max() <= 1


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_a_part_at_another_place_shares_its_filters(interpolation: Interpolation) -> None:
    """Random crops of one size make one table."""
    geometries = (Geometry(top, 8, 128, 128, (64, 64)) for top in (0, 40))
    one, other = (
        conversion_plan((256, 456), geometry, "rgb", interpolation, bit_depth=8, tagged=True) for geometry in geometries
    )
    assert (one.top, other.top) == (0, 40)
    assert one.filters is other.filters


@pytest.mark.parametrize("pixels", [PIXELS[0], PIXELS[-1]], ids=str)
def test_the_check_on_a_gpu_compares_what_it_says(pixels: PixelFormat) -> None:
    for case in cases(pixels, largest=120):
        expected = filled(case, torch.device("cpu"), by_torch)
        found = filled(case, torch.device("cpu"), convert)
        assert wrong_frames(found, expected) == 0
        found[3][0, 5, 7] += 1
        assert wrong_frames(found, expected) == 1


def test_what_does_not_fit_is_an_error() -> None:
    surface = surface_of(noise_frame(34, 50))
    slot = torch.zeros((3, 34, 50), dtype=torch.uint8)
    with pytest.raises(DecodeError, match=r"a frame of \(34, 48\) for a slot of shape \(3, 34, 50\)"):
        convert([surface], [whole(34, 48)], [slot], RGB)
    with pytest.raises(DecodeError, match="a surface of 50x34, which does not contain"):
        convert([surface], [Geometry(2, 0, 34, 50, (34, 50))], [slot], RGB)
    with pytest.raises(DecodeError, match="a surface on cpu for a slot on meta"):
        convert([surface], [whole(34, 50)], [slot.to("meta")], RGB)
    with pytest.raises(DecodeError, match="not 4:2:0"):
        Surface(surface.y, surface.uv[:5], 8, 1, False)
    with pytest.raises(DecodeError, match="10 bits need torch.uint16"):
        Surface(surface.y, surface.uv, 10, 1, False)
    with pytest.raises(DecodeError, match="gaps within a line"):
        Surface(surface.y[:, ::2], surface.uv[:, ::2][:, :13], 8, 1, False)


def test_that_a_gpu_has_no_kernel_is_said_once_with_what_triton_wants() -> None:
    """Here on the CPU, which nobody is told of: Triton never runs there."""
    device, reason = torch.device("cuda", 7), "Triton does not compile: RuntimeError: Failed to find\n C compiler"
    with pytest.warns(DatasetWarning, match="cuda:7 by plain torch.* Failed to find C compiler. .*Python's headers"):
        tell_once(device, reason)
    tell_once(device, reason)
    surface, slot = surface_of(noise_frame(16, 16)), empty_slot(Geometry(0, 0, 16, 16, (16, 16)), RGB, "NCHW")
    convert([surface], [Geometry(0, 0, 16, 16, (16, 16))], [slot], RGB)
