"""What frames are converted to: crop, size, dtype, colour and dimension order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch

from ..arguments import integer, number
from ..errors import UsageError

DimensionOrder = Literal["NCHW", "NHWC"]
Color = Literal["rgb", "ycbcr", "grey", "yuv420"]
Interpolation = Literal["bilinear", "bicubic", "nearest"]
Size = int | tuple[int, int]
Crop = Literal["center"] | tuple[int, int, int, int]
MeanStd = tuple[tuple[float, ...], tuple[float, ...]]
Normalize = MeanStd | tuple[float, float]
"""Mean and std: for each channel, or a number for all of them."""

_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
# Values from 0 to 1 have a standard deviation of at most a half; more than this is one of values from 0 to 255.
_MOST_STD = 10.0
_CHANNELS = {"rgb": 3, "ycbcr": 3, "grey": 1, "yuv420": 1}


@dataclass(frozen=True)
class Geometry:
    """The part of a frame to take, the (height, width) that it is resized to, and whether left and right change places.

    All in pixels. `top` and `left` are even.
    """

    top: int
    left: int
    height: int
    width: int
    size: tuple[int, int]
    flip: bool = False

    @property
    def scales(self) -> bool:
        return self.size != (self.height, self.width)


@dataclass(frozen=True)
class PixelFormat:
    """What the pixels of a frame become. Each field means what `shortgop.open`'s parameter means.

    UsageError for values that are wrong, or that do not go together.
    """

    dtype: torch.dtype = torch.uint8
    normalize: Normalize | None = None
    color: Color = "rgb"
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if self.interpolation not in get_args(Interpolation):
            raise UsageError(f"interpolation is {self.interpolation!r}; it can be {_names(get_args(Interpolation))}")
        if self.color not in _CHANNELS:
            raise UsageError(f"color is {self.color!r}; it can be {_names(_CHANNELS)}")
        if self.dtype not in _DTYPES:
            raise UsageError(f"dtype is {self.dtype!r}; it can be {', '.join(map(str, _DTYPES))}")
        if self.color == "yuv420" and (self.dtype != torch.uint8 or self.normalize is not None):
            raise UsageError('color="yuv420" gives the planes as they are decoded: leave dtype and normalize out')
        if self.normalize is not None:
            object.__setattr__(self, "normalize", self._checked_normalize(self.normalize))

    @property
    def mean_and_std(self) -> MeanStd | None:
        """`normalize` with a number for each channel, as it is once it was checked."""
        return cast("MeanStd | None", self.normalize)

    def _checked_normalize(self, given: Normalize) -> MeanStd:
        if self.dtype == torch.uint8:
            raise UsageError("normalize makes floats: give dtype=torch.float32 or torch.float16 as well")
        count = self.channels
        try:
            mean, std = (_for_each_channel(values, count) for values in given)
        except (TypeError, ValueError, OverflowError):
            mean, std = (), ()
        if len(mean) == len(std) == count and min(std) <= 0:
            raise UsageError(
                f"normalize is {self.normalize!r}; values are divided by std, and the one of channel "
                f"{std.index(min(std))} is {min(std):g}: it has to be more than 0"
            )
        if len(mean) != count or len(std) != count or not all(map(math.isfinite, mean + std)):
            names = {"rgb": "red, green and blue", "ycbcr": "Y, Cb and Cr"}.get(self.color)
            channels = f", or three for {names}," if names else ""
            raise UsageError(
                f"normalize is {self.normalize!r}; it has to be (mean, std), a number each{channels} from 0 to 1"
            )
        if max(mean) > 1 or max(std) > _MOST_STD:
            raise UsageError(
                f"normalize is {self.normalize!r}: these are numbers for values from 0 to 255, and values are from 0 "
                "to 1, so divide all of them by 255"
            )
        return mean, std

    @property
    def channels(self) -> int:
        return _CHANNELS[self.color]

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        """The shape of a frame of this size, its channels first."""
        return (self.channels, height + height // 2 if self.color == "yuv420" else height, width)

    def black(self, *, full_range: bool) -> tuple[float, ...]:
        """The value of each channel of a black pixel; `full_range` says what the range of yuv420's planes is.

        The chroma of yuv420 is 128.
        """
        if self.color == "yuv420":
            return (0 if full_range else 16,)
        levels = (0, 128, 128) if self.color == "ycbcr" else (0,) * self.channels
        if self.dtype == torch.uint8:
            return levels
        mean, std = self.mean_and_std or ((0.0,) * self.channels, (1.0,) * self.channels)
        return tuple((level / 255 - low) / width for level, low, width in zip(levels, mean, std, strict=True))


@dataclass(frozen=True)
class FrameFormat:
    """What all frames of a dataset are converted to. Each field means what `shortgop.open`'s parameter means.

    UsageError for values that are wrong, or that do not go together.
    """

    size: Size | None = None
    crop: Crop | None = None
    dtype: torch.dtype = torch.uint8
    normalize: Normalize | None = None
    color: Color = "rgb"
    dimension_order: DimensionOrder = "NCHW"
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if self.dimension_order not in get_args(DimensionOrder):
            raise UsageError(f'dimension_order is {self.dimension_order!r}; it can be "NCHW" or "NHWC"')
        object.__setattr__(self, "normalize", self.pixels.normalize)
        if self.size is not None:
            size = integers_in_pixels("size", self.size, (1, 2), "(height, width) or the short side")
            object.__setattr__(self, "size", size if len(size) == 2 else size[0])
            self._check_even("size", size)
        if self.crop is not None:
            self._check_crop()

    @property
    def pixels(self) -> PixelFormat:
        return PixelFormat(self.dtype, self.normalize, self.color, self.interpolation)

    @property
    def layout(self) -> str:
        """The order of the dimensions of a clip."""
        return "TCHW" if self.dimension_order == "NCHW" or self.color == "yuv420" else "THWC"

    def _check_crop(self) -> None:
        if isinstance(self.crop, str):
            if self.crop != "center" or not isinstance(self.size, tuple):
                raise UsageError(
                    f'crop is {self.crop!r} and size {self.size!r}; crop="center" is the largest part in the middle '
                    "with the aspect ratio of size=(height, width), and random crops are those of the outputs of a "
                    "ClipDataset: shortgop.Output"
                )
            return
        crop = integers_in_pixels("crop", self.crop, (4,), '"center" or (top, left, height, width)', least=0)
        object.__setattr__(self, "crop", crop)
        # 4:2:0 has one sample of colour for 2x2 pixels.
        if crop[0] % 2 or crop[1] % 2 or 0 in crop[2:]:
            raise UsageError(f"crop is {crop}; top and left have to be even, height and width 1 or more")
        self._check_even("crop", crop[2:])

    def _check_even(self, name: str, values: Any) -> None:
        if self.color == "yuv420" and any(value % 2 for value in values):
            raise UsageError(f'{name} is {getattr(self, name)}; color="yuv420" takes only even numbers')

    def geometry(self, height: int, width: int) -> Geometry:
        """The geometry for frames of this size; UsageError when the crop does not fit into them."""
        top, left, wanted = 0, 0, (height, width)
        if isinstance(self.crop, tuple):
            top, left, *rest = self.crop
            wanted = (rest[0], rest[1])
            if top + wanted[0] > height or left + wanted[1] > width:
                raise UsageError(f"crop {self.crop} does not fit into frames of height {height} and width {width}")
        elif self.crop == "center" and isinstance(self.size, tuple):
            wanted = largest_part(height, width, self.size)
            top, left = ((full - part) // 4 * 2 for full, part in zip((height, width), wanted, strict=True))
        return Geometry(top, left, *wanted, self._size_of(*wanted))

    def _size_of(self, height: int, width: int) -> tuple[int, int]:
        if self.size is None:
            return height, width
        if isinstance(self.size, tuple):
            return self.size
        # Rounded as torchvision's Resize does it.
        other = max(1, self.size * max(height, width) // min(height, width))
        if self.color == "yuv420":
            other -= other % 2
        return (self.size, other) if height <= width else (other, self.size)

    def frame_shape(self, height: int, width: int) -> tuple[int, int, int]:
        """The shape of the tensor that a decoded frame of this size becomes."""
        return self._shape_of(*self.geometry(height, width).size)

    def shape_of_no_frame(self) -> tuple[int, int, int]:
        """The shape for a frame of unknown size: a side that depends on that size is 0."""
        if isinstance(self.size, tuple):
            return self._shape_of(*self.size)
        if isinstance(self.crop, tuple):
            return self._shape_of(*self._size_of(*self.crop[2:]))
        return self._shape_of(0, 0)

    def _shape_of(self, height: int, width: int) -> tuple[int, int, int]:
        channels, height, width = self.pixels.shape(height, width)
        return (channels, height, width) if self.layout == "TCHW" else (height, width, channels)


def _for_each_channel(values: Any, count: int) -> tuple[float, ...]:
    """The mean or std of each of so many channels: a single number is that of all."""
    if not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        return (float(number(values, "normalize")),) * count
    return tuple(float(number(value, "normalize")) for value in values)


def largest_part(height: int, width: int, shape: tuple[int, int]) -> tuple[int, int]:
    """The largest even (height, width) within a frame that has about the aspect ratio of `shape`."""
    if height * shape[1] > width * shape[0]:
        height = max(2, round(width * shape[0] / shape[1]))
    else:
        width = max(2, round(height * shape[1] / shape[0]))
    return height - height % 2, width - width % 2


def integers_in_pixels(
    name: str, value: Any, counts: tuple[int, ...], meaning: str, *, least: int = 1
) -> tuple[int, ...]:
    """`value` as a tuple of integers of at least `least`; their number is one of `counts`."""
    try:
        integers = tuple(integer(each, name) for each in (value if isinstance(value, (tuple, list)) else (value,)))
    except UsageError:
        integers = ()
    if len(integers) not in counts or min(integers) < least:
        raise UsageError(f"{name} is {value!r}; it has to be {meaning}, in pixels")
    return integers


def _names(values: Iterable[str]) -> str:
    *others, last = (f'"{value}"' for value in values)
    return f"{', '.join(others)} or {last}"
