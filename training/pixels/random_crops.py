"""Random parts of frames, as functions of random bits: which part an output with such a crop takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import UsageError
from ...manifests.ragged import Array
from ...readers.frame_format import largest_part
from ..which_clips.keyed import below

Region = tuple[int, int, int, int]
"""Top, left, height and width of a part of a frame, in pixels."""

# Sides of random-scaled crops are those of the largest one times a multiple of one part in so many: see _STEPS.
_SCALES = 32
# Areas and aspect ratios that are tried before the middle is taken, as in torchvision.
_ATTEMPTS = 10
# Sides of random-resized crops are multiples of the short side divided by this, rounded to an even number: 16 pixels at
# 256. A converter is made for each size, so that single frames took 1.14 times as long when any even number would do.
_STEPS = 16
# Random numbers for each attempt (area, ratio, top, left), and one for the flip.
NUMBERS = 4 * _ATTEMPTS + 1


def unit_number(bits: Any) -> float:
    """Random bits as a number from 0 to below 1, with the 53 bits that a float has."""
    return int(bits >> np.uint64(11)) / (1 << 53)


def _even_below(bits: Any, most: int) -> int:
    """A random even number from 0 to `most`."""
    return 2 * int(below(bits, most // 2 + 1))


def random_part(height: int, width: int, size: tuple[int, int], bits: Array) -> Region:
    """A part of just this size at a random place. UsageError when the frames are smaller."""
    if size[0] > height or size[1] > width:
        raise UsageError(
            f"a random crop of {size[0]} lines and {size[1]} columns does not fit into frames of height {height} and "
            f'width {width}: make size smaller, or use crop="random-scaled", which is resized'
        )
    return _even_below(bits[0], height - size[0]), _even_below(bits[1], width - size[1]), *size


def scaled_part(height: int, width: int, shape: tuple[int, int], scale: tuple[float, float], bits: Array) -> Region:
    """A part with the aspect ratio of `shape` at a random place: its sides are those of the largest such part times a
    number that is drawn from `scale`."""
    part = round((scale[0] + unit_number(bits[0]) * (scale[1] - scale[0])) * _SCALES) / _SCALES
    lines, columns = (_in_steps(part * side, 2, side) for side in largest_part(height, width, shape))
    return _even_below(bits[1], height - lines), _even_below(bits[2], width - columns), lines, columns


def resized_part(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float], bits: Array
) -> Region:
    """A part of random area and aspect ratio at a random place, as torchvision.transforms.v2.RandomResizedCrop draws
    it, with sides in steps and even offsets."""
    step = max(2, 2 * round(min(height, width) / (2 * _STEPS)))
    logs = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(_ATTEMPTS):
        of_area, of_ratio, of_top, of_left = bits[4 * attempt : 4 * attempt + 4]
        area = height * width * (scale[0] + unit_number(of_area) * (scale[1] - scale[0]))
        aspect = math.exp(logs[0] + unit_number(of_ratio) * (logs[1] - logs[0]))
        exact = math.sqrt(area / aspect), math.sqrt(area * aspect)
        if round(exact[0]) <= height and round(exact[1]) <= width:
            lines, columns = _in_steps(exact[0], step, height), _in_steps(exact[1], step, width)
            return _even_below(of_top, height - lines), _even_below(of_left, width - columns), lines, columns
    aspect = min(max(width / height, ratio[0]), ratio[1])
    lines, columns = _in_steps(width / aspect, 2, height), _in_steps(height * aspect, 2, width)
    return (height - lines) // 4 * 2, (width - columns) // 4 * 2, lines, columns


def _in_steps(length: float, step: int, most: int) -> int:
    """The nearest multiple of the step that is positive, or `most` where that is less."""
    return min(most, step * max(1, round(length / step)))
