"""What a request makes of clips: one tensor or several, each with frames, a geometry and pixels of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..errors import UsageError
from .decoders.base import Target
from .frame_format import Geometry, PixelFormat
from .plan import OutputFrames

_DIMENSIONS = "TCHW"


@dataclass(frozen=True, eq=False)
class ClipOutput:
    """One tensor that clips are read into.

    `geometries[i]` is that of clip i: they may differ in place and size of the crop and in the flip, but all make
    frames of one size. `positions` are the places of its frames in each clip; None stands for all. `layout` is the
    order of frames, channels, height and width in memory, any permutation of "TCHW".
    """

    pixels: PixelFormat
    geometries: Sequence[Geometry]
    positions: tuple[int, ...] | None = None
    layout: str = _DIMENSIONS


def check_outputs(output: ClipOutput, sizes: Sequence[tuple[int, int]], num_frames: int) -> tuple[int, ...]:
    """The shape of an output of clips of `num_frames` frames, whose pictures have these (height, width).

    UsageError when a geometry does not lie within its pictures, or when geometries make frames of different sizes.
    """
    made = (0, 0)
    for number, (geometry, (height, width)) in enumerate(zip(output.geometries, sizes, strict=True)):
        top, left = geometry.top, geometry.left
        inside = 0 <= top <= height - geometry.height and 0 <= left <= width - geometry.width
        if not inside or min(geometry.height, geometry.width, *geometry.size) < 1 or top % 2 or left % 2:
            raise UsageError(
                f"the crop (top, left, height, width) {top, left, geometry.height, geometry.width} does not lie within "
                f"frames of height {height} and width {width}, with top and left even"
            )
        if number and geometry.size != made:
            raise UsageError(
                f"frames of sizes {made} and {geometry.size} do not go into one tensor: give the output a "
                "size=(height, width)"
            )
        made = geometry.size
    frames = num_frames if output.positions is None else len(output.positions)
    channels, height, width = output.pixels.shape(*made)
    lengths = {"T": frames, "C": channels, "H": height, "W": width}
    return (len(sizes), *(lengths[dimension] for dimension in output.layout))


def target_of(output: ClipOutput, tensor: torch.Tensor) -> Target:
    """A tensor of this output's shape as slots."""
    if output.layout == _DIMENSIONS:
        return Target(output.pixels, tensor)
    order = [1 + output.layout.index(dimension) for dimension in _DIMENSIONS]
    return Target(output.pixels, tensor.permute(0, *order))


def geometry_numbers(
    outputs: Sequence[ClipOutput], rows: Sequence[int] | None = None
) -> tuple[list[Geometry], list[OutputFrames]]:
    """The geometries of all outputs, each once, and each output with their numbers and the rows of its clips."""
    numbers: dict[Geometry, int] = {}
    wanted = [
        OutputFrames(
            output.positions, [numbers.setdefault(geometry, len(numbers)) for geometry in output.geometries], rows
        )
        for output in outputs
    ]
    return list(numbers), wanted
