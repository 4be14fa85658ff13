"""Outputs of ClipDataset that make no sense, whatever the videos are, and what earlier ones become."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from shortgop import Output
from shortgop.errors import UsageError
from shortgop.readers.frame_format import FrameFormat, PixelFormat

MEAN_STD = ((0.5, 0.4, 0.3), (0.25, 0.5, 1.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "TCH"}, "layout is 'TCH'; it is an order of the letters of \"TCHW\""),
        ({"layout": "NCHW"}, "layout is 'NCHW'"),
        ({"color": "yuv420"}, 'color is \'yuv420\'; it can be "rgb", "ycbcr" or "grey"'),
        ({"crop": "random"}, r'size is None; crop="random" takes size=\(height, width\)'),
        ({"crop": "random-resized", "size": 9}, "size is 9"),
        ({"crop": "left", "size": (9, 9)}, "crop is 'left'; it can be"),
        ({"crop": (1, 0, 8, 8)}, "top and left have to be even"),
        ({"scale": (0.5, 1.0)}, 'scale is for crop="random-resized" or "random-scaled", and crop is None'),
        ({"ratio": (1, 2), "crop": "random-scaled", "size": (8, 8)}, 'ratio is for crop="random-resized", and crop is'),
        ({"crop": "random-scaled", "size": 9}, "size is 9"),
        ({"scale": (0.5, 1.5), "crop": "random-resized", "size": (8, 8)}, r"scale is \(0.5, 1.5\).*up to 1"),
        ({"ratio": (2, 1), "crop": "random-resized", "size": (8, 8)}, r"ratio is \(2, 1\)"),
        ({"ratio": 2, "crop": "random-resized", "size": (8, 8)}, "two numbers"),
        ({"flip": 1.5}, "flip is 1.5; it is a probability"),
        ({"flip": "often"}, "flip is 'often'"),
        ({"normalize": ((0.5,), (0.5,)), "dtype": torch.float32}, "a number each, or three for red, green and blue"),
        ({"normalize": MEAN_STD, "dtype": torch.float32, "color": "grey"}, "a number each"),
        ({"dtype": torch.int32}, "dtype is torch.int32"),
        ({"interpolation": "lanczos"}, 'interpolation is \'lanczos\'; it can be "bilinear", "bicubic" or "nearest"'),
        ({"frames": []}, "frames is empty"),
        ({"frames": "ab"}, "frames is 'ab'"),
        ({"shared": "x", "flip": 0.5}, "leave flip out"),
    ],
)
def test_outputs_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Output(**options)


@pytest.mark.parametrize(
    "made", [Output(size=(8, 8)), FrameFormat(size=8), PixelFormat()], ids=lambda made: type(made).__name__
)
def test_what_was_pickled_before_there_was_a_choice_is_bilinear(made: Any) -> None:
    old = copy.copy(made)
    del old.__dict__["interpolation"]
    assert pickle.loads(pickle.dumps(old)) == made  # of this test
    assert made.interpolation == "bilinear"
