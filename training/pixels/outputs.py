"""Output: what the frames of a clip become, with random crops and flips."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import torch

from ...arguments import integer, number
from ...errors import UsageError
from ...readers.frame_format import (
    Color,
    FrameFormat,
    Geometry,
    Interpolation,
    Normalize,
    PixelFormat,
    Size,
    integers_in_pixels,
)
from ..which_clips.keyed import hashes
from ..which_clips.offsets import listed
from .random_crops import NUMBERS, random_part, resized_part, scaled_part, unit_number

SizeOf = Callable[[int, int, int], Size]
"""How large a clip of so many frames of this height and width becomes."""
Crop = Literal["center", "random", "random-scaled", "random-resized"] | tuple[int, int, int, int]
SameFor = Literal["clip", "video"]
RANDOM_CROPS = ("random", "random-scaled", "random-resized")
_COLORS = ("rgb", "ycbcr", "grey")


@dataclass(frozen=True)
class Output:
    """What the frames of each clip become in one of ClipDataset's outputs.

        outputs={
            "input": Output(size=(112, 112), shared="target", dtype=torch.float16),
            "target": Output(size=(224, 224), crop="random", flip=0.5, frames=[1]),
        }

    - `size`: (height, width), or the length of the short side, for which (224,) stands too, as with torchvision's
      Resize; None leaves the size as it is. Or a function of a
      clip's number of frames and of their height and width, which returns one of these, such as the smart_resize of
      vision-language models. It has to be a function of these alone. Clips may have several sizes then, of which the
      `collate_fn` of a DataLoader makes a batch.
    - `crop`: the part of each frame to take. None is all of it; "center" the largest part in the middle with the aspect
      ratio of `size`; "random" a part of just `size`, at a random place, which is not resized; "random-scaled" a part
      with the aspect ratio of `size` at a random place, the largest or with `scale` a smaller one; "random-resized" one
      of random area and aspect ratio at a random place, resized to `size`, as torchvision's RandomResizedCrop does it;
      (top, left, height, width) that part. Parts begin at even lines and columns, as the chroma has only these, and the
      sides of a random-resized one are multiples of a sixteenth of the frame's short side.
    - `scale`, `ratio`: for "random-resized": the bounds of its area, as a part of the frame's, from which it is drawn
      uniformly; and the bounds of width / height before resizing, from which it is drawn uniformly in its logarithm.
      After ten draws that do not fit, the largest part in the middle whose ratio lies within the bounds is taken. For
      "random-scaled" `scale` has the bounds of its sides, as a part of those of the largest part, from which it is
      drawn uniformly, in steps of 1/32: a short side scaled to 256 to 320 and a crop of 224 is (224 / 320, 224 / 256).
    - `flip`: the probability that left and right change places.
    - `dtype`: torch.uint8, or a float with values from 0 to 1: torch.float32, torch.float16, torch.bfloat16.
    - `normalize`: (mean, std), a number for each channel or one for all: values from 0 to 1, less mean, divided by std.
    - `color`: "rgb"; "ycbcr", Y, Cb and Cr from 0 to 255 as in JPEG, by the video's own matrix; "grey", the Y of these.
    - `layout`: the order of frames, channels, height and width, in the tensor and in memory: any order of "TCHW".
    - `frames`: which of the clip's frames it has, as indices of these; -1 is the last one. None stands for all.
    - `shared`: the name of another output, whose crop and flip it takes, resized to its own `size`; it has no `crop`,
      `scale`, `ratio`, `flip` and `same_for` then.
    - `same_for`: what has the same crop and flip: all frames of a "clip", or all clips of a "video", as models need it
      that carry a state from clip to clip. Each entry of `videos=`, such as one of Stretches, counts as a video. They
      are the same each time that the videos are gone through; where an order repeats clips within an epoch (Weighted,
      Systematic, ClassBalanced, ClassBatches, Mixture), others each time. What is random in a `transform` is drawn for
      each clip all the same.
    - `interpolation`: how frames are resized: "bilinear", or "bicubic" as by PIL, both antialiased; or "nearest", for
      masks, with the pixels of torchvision's NEAREST_EXACT, save where a middle lies just between two pixels.

    Crops and flips are a function of the dataset's seed, the output's name and the draw (with same_for="video" of the
    epoch and the video's place in the dataset), so they do not depend on workers, batches or ranks, and differ from
    epoch to epoch. UsageError for values that are wrong, or that do not go together.
    """

    size: Size | SizeOf | None = None
    crop: Crop | None = None
    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] | None = None
    flip: float = 0.0
    dtype: torch.dtype = torch.uint8
    normalize: Normalize | None = None
    color: Color = "rgb"
    layout: str = "TCHW"
    frames: Sequence[int] | None = None
    shared: str | None = None
    same_for: SameFor = "clip"
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if callable(self.size):
            # Whatever else is wrong is told now, and not by a worker.
            like = replace(self, size=(2, 2))
            for field in fields(self):
                if field.name != "size":
                    self._set(field.name, getattr(like, field.name))
            return
        if self.color not in _COLORS:
            raise UsageError(f'color is {self.color!r}; it can be "rgb", "ycbcr" or "grey"')
        if not isinstance(self.layout, str) or sorted(self.layout) != sorted("TCHW"):
            raise UsageError(f'layout is {self.layout!r}; it is an order of the letters of "TCHW", such as "CTHW"')
        self._set("normalize", self.pixels.normalize)
        if isinstance(self.crop, str) and self.crop in RANDOM_CROPS:
            if not isinstance(self.size, (tuple, list)):
                raise UsageError(f'size is {self.size!r}; crop="{self.crop}" takes size=(height, width)')
            self._set("size", integers_in_pixels("size", self.size, (2,), "(height, width)"))
        elif isinstance(self.crop, str) and self.crop != "center":
            raise UsageError(
                f'crop is {self.crop!r}; it can be "center", "random", "random-scaled", "random-resized" or '
                "(top, left, height, width)"
            )
        else:
            checked = FrameFormat(self._no_function, self.crop)
            self._set("size", checked.size)
            self._set("crop", checked.crop)
        self._check_numbers()
        if self.frames is not None:
            frames = tuple(integer(frame, "a frame of an output") for frame in listed(self.frames, "frames"))
            if not frames:
                raise UsageError("frames is empty; an output has one frame of a clip or more")
            self._set("frames", frames)
        own = {"crop": self.crop, "scale": self.scale, "ratio": self.ratio, "flip": self.flip or None}
        given = [name for name, value in own.items() if value is not None] + ["same_for"] * (self.same_for != "clip")
        if self.shared is not None and given:
            raise UsageError(f"shared={self.shared!r} takes crop and flip of that output: leave {given[0]} out")

    def _check_numbers(self) -> None:
        self._set("flip", float(number(self.flip, "flip")))
        if not 0 <= self.flip <= 1:
            raise UsageError(f"flip is {self.flip}; it is a probability, from 0 to 1")
        if self.same_for not in get_args(SameFor):
            raise UsageError(f'same_for is {self.same_for!r}; it can be "clip" or "video"')
        for name, most in (("scale", 1.0), ("ratio", math.inf)):
            bounds = getattr(self, name)
            if bounds is None:
                continue
            if self.crop != "random-resized" and (name, self.crop) != ("scale", "random-scaled"):
                also = ' or "random-scaled"' if name == "scale" else ""
                raise UsageError(f'{name} is for crop="random-resized"{also}, and crop is {self.crop!r}')
            low, high = _two_numbers(name, bounds)
            if not 0 < low <= high <= most or math.isinf(high):
                limit = ", up to 1" if name == "scale" else ""
                raise UsageError(f"{name} is {bounds!r}; it is (least, most), positive{limit}")
            self._set(name, (low, high))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def pixels(self) -> PixelFormat:
        return PixelFormat(self.dtype, self.normalize, self.color, self.interpolation)

    def sized(self, num_frames: int, height: int, width: int) -> Output:
        """The same output with the size that it has for a clip of so many frames of this height and width. UsageError
        where `size` is a function that returns none."""
        if not callable(self.size):
            return self
        made = self.size(num_frames, height, width)
        try:
            return replace(self, size=made)
        except UsageError as error:
            raise type(error)(
                f"the function size was called with {num_frames} frames, height {height} and width {width}, and "
                f"returned {made!r}: {error.message}"
            ) from None

    def geometry(self, height: int, width: int, hash_key: int) -> Geometry:
        """The geometry for a clip of frames of this height and width, with a size that is no function; the key decides
        what is random.

        UsageError when the crop does not fit.
        """
        bits = hashes(hash_key, np.arange(NUMBERS))
        flip = unit_number(bits[-1]) < self.flip
        if self.crop == "random":
            region = random_part(height, width, self._two_sides, bits)
        elif self.crop == "random-scaled":
            region = scaled_part(height, width, self._two_sides, self.scale or (1.0, 1.0), bits)
        elif self.crop == "random-resized":
            region = resized_part(height, width, self.scale or (0.08, 1.0), self.ratio or (3 / 4, 4 / 3), bits)
        else:
            fixed = FrameFormat(self._no_function, self.crop).geometry(height, width)
            return Geometry(fixed.top, fixed.left, fixed.height, fixed.width, fixed.size, flip)
        return Geometry(*region, self._two_sides, flip)

    def sharing(self, geometry: Geometry) -> Geometry:
        """The geometry of another output with this one's size."""
        part = (geometry.height, geometry.width)
        size = FrameFormat(self._no_function).geometry(*part).size
        return Geometry(geometry.top, geometry.left, *part, size, geometry.flip)

    @property
    def _no_function(self) -> Size | None:
        return cast("Size | None", self.size)

    @property
    def _two_sides(self) -> tuple[int, int]:
        return cast("tuple[int, int]", self.size)


def _two_numbers(name: str, values: Any) -> tuple[float, float]:
    try:
        low, high = (float(number(value, name)) for value in values)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is {values!r}; it is two numbers, (least, most)") from None
    return low, high
