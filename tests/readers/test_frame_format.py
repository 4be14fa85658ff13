"""What frames may be turned into, and what makes no sense."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import UsageError
from shortgop.readers.frame_format import FrameFormat, PixelFormat

MEAN_STD = ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, r"size is 0; it has to be \(height, width\) or the short side, in pixels"),
        ({"size": (1, 2, 3)}, r"size is \(1, 2, 3\)"),
        ({"size": 2.5}, "size is 2.5"),
        ({"crop": (0, 0, 4)}, r'crop is \(0, 0, 4\); it has to be "center" or \(top, left, height, width\)'),
        ({"crop": (1, 0, 4, 4)}, "top and left have to be even"),
        ({"crop": (0, -2, 4, 4)}, "in pixels"),
        ({"crop": (0, 0, 0, 4)}, "height and width 1 or more"),
        ({"crop": "center"}, "crop is 'center' and size None"),
        ({"crop": "center", "size": 224}, "crop is 'center' and size 224"),
        ({"crop": "left", "size": (2, 2)}, "crop is 'left'"),
        ({"crop": "random", "size": (2, 2)}, "random crops are those of the outputs of a ClipDataset: shortgop.Output"),
        (
            {"dtype": torch.int32},
            "dtype is torch.int32; it can be torch.uint8, torch.float16, torch.bfloat16, torch.float32",
        ),
        ({"normalize": MEAN_STD}, "normalize makes floats: give dtype=torch.float32"),
        *(
            ({"normalize": numbers, "dtype": torch.float32}, r"it has to be \(mean, std\), a number each, or three for")
            for numbers in (0.5, (0.5,), (0.5, 0.5, 0.5), ([0.5] * 2, [0.5] * 2), (0.5, [0.5] * 2), (True, True), "ab")
        ),
        # As they stand in the configurations of mmaction2 and Caffe: frames would be black to a model.
        *(
            ({"normalize": numbers, "dtype": torch.float32}, "are numbers for values from 0 to 255.*divide all of them")
            for numbers in (((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)), ((0, 0, 0), (255, 255, 255)))
        ),
        (
            {"normalize": ((0, 0, 0), (1, 0, 1)), "dtype": torch.float32},
            "by std, and the one of channel 1 is 0",
        ),
        ({"color": "bgr"}, 'color is \'bgr\'; it can be "rgb", "ycbcr", "grey" or "yuv420"'),
        ({"interpolation": "area"}, 'interpolation is \'area\'; it can be "bilinear", "bicubic" or "nearest"'),
        ({"color": "yuv420", "dtype": torch.float32}, "leave dtype and normalize out"),
        ({"color": "yuv420", "size": (3, 4)}, "takes only even numbers"),
        ({"color": "yuv420", "size": 3}, "takes only even numbers"),
        ({"color": "yuv420", "crop": (0, 0, 3, 4)}, "takes only even numbers"),
        ({"dimension_order": "CHWN"}, "dimension_order is 'CHWN'"),
    ],
)
def test_what_makes_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FrameFormat(**options)


def test_one_number_normalizes_all_channels() -> None:
    for numbers in ((0.5, 0.25), ([0.5] * 3, 0.25), (np.float32(0.5), torch.tensor(0.25)), np.array([0.5, 0.25])):
        pixels = FrameFormat(dtype=torch.float32, normalize=cast(Any, numbers)).pixels
        assert pixels == PixelFormat(torch.float32, ((0.5,) * 3, (0.25,) * 3))
        assert pixels.black(full_range=True) == (-2, -2, -2)
    assert FrameFormat(dtype=torch.float32, normalize=(0.5, 0.5), color="grey").pixels.normalize == ((0.5,), (0.5,))


@pytest.mark.parametrize(
    ("options", "height", "width", "shape"),
    [
        ({}, 66, 98, (3, 66, 98)),
        ({"dimension_order": "NHWC"}, 66, 98, (66, 98, 3)),
        ({"size": 32}, 64, 96, (3, 32, 48)),
        ({"size": 32}, 96, 64, (3, 48, 32)),
        ({"size": 33}, 66, 99, (3, 33, 49)),
        ({"size": (10, 20)}, 64, 96, (3, 10, 20)),
        ({"size": [10, 20]}, 64, 96, (3, 10, 20)),
        ({"crop": (2, 4, 11, 13)}, 64, 96, (3, 11, 13)),
        ({"crop": (2, 4, 20, 40), "size": 10}, 64, 96, (3, 10, 20)),
        ({"color": "yuv420"}, 64, 96, (1, 96, 96)),
        ({"color": "yuv420", "size": 34}, 64, 100, (1, 51, 52)),
    ],
)
def test_shapes(options: dict[str, Any], height: int, width: int, shape: tuple[int, ...]) -> None:
    assert FrameFormat(**options).frame_shape(height, width) == shape


def test_a_crop_has_to_fit() -> None:
    output = FrameFormat(crop=(0, 2, 64, 96))
    assert output.geometry(64, 98).size == (64, 96)
    with pytest.raises(UsageError, match="does not fit into frames of height 64 and width 96"):
        output.geometry(64, 96)


@given(*[st.integers(2, 600).map(lambda half: 2 * half)] * 2, *[st.integers(1, 300)] * 2)
def test_the_center_is_in_the_middle_and_as_large_as_can_be(height: int, width: int, rows: int, columns: int) -> None:
    part = FrameFormat(size=(rows, columns), crop="center").geometry(height, width)
    assert part.top % 2 == part.left % 2 == part.height % 2 == part.width % 2 == 0
    assert part.height >= height - 1 or part.width >= width - 1
    for full, start, length in ((height, part.top, part.height), (width, part.left, part.width)):
        assert start >= 0
        assert 0 <= full - length - 2 * start <= 2
    assert part.size == (rows, columns)
    if min(part.height, part.width) > 2:
        # As near to the shape as even numbers come.
        assert abs(part.height * columns - part.width * rows) <= 3 * max(rows, columns)
