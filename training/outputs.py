"""Outputs: what the frames of a clip become, several of them from one decode, with random crops and flips."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

import numpy as np
import torch

from ..arguments import integer, number
from ..errors import UsageError, WrongTypeError
from ..manifests.ragged import Array
from ..readers.clip_output import ClipOutput
from ..readers.convert.copies import array_of
from ..readers.frame_format import (
    Color,
    FrameFormat,
    Geometry,
    Normalize,
    PixelFormat,
    Size,
    integers_in_pixels,
    largest_part,
)
from ..readers.open_dataset import open as open_dataset
from .keyed import below, hashes, key
from .offsets import listed

Crop = Literal["center", "random", "random-scaled", "random-resized"] | tuple[int, int, int, int]
Region = tuple[int, int, int, int]
"""Top, left, height and width of a part of a frame, in pixels."""

_RANDOM = ("random", "random-scaled", "random-resized")
# Sides of random-scaled crops are those of the largest one times a multiple of one part in so many: see _STEPS.
_SCALES = 32
# Areas and aspect ratios that are tried before the middle is taken, as in torchvision.
_ATTEMPTS = 10
# Sides of random-resized crops are multiples of the short side divided by this, rounded to an even number: 16 pixels at
# 256. A converter is made for each size, so that single frames took 1.14 times as long when any even number would do.
_STEPS = 16
# Random numbers for each attempt (area, ratio, top, left), and one for the flip.
_NUMBERS = 4 * _ATTEMPTS + 1
_COLORS = ("rgb", "ycbcr", "grey")
OF_LOADERS = dict.fromkeys(
    ("batch_size", "shuffle", "num_workers", "workers", "sampler", "collate_fn", "pin_memory", "drop_last"),
    "the loader or its sampler has it",
)
"""What is often looked for in a dataset, and where it is."""
_ELSEWHERE = {
    **dict.fromkeys(
        ("num_frames", "frames", "clip_len", "clip_length", "stride", "fps", "ends", "jitter"),
        "the policy has it, such as shortgop.RandomClips(16, stride=4)",
    ),
    **OF_LOADERS,
    **dict.fromkeys(("label", "labels", "columns"), 'columns that items are to have are metadata=["label"]'),
    "split": "open the dataset and choose dataset.where(split=...)",
}
_READING = frozenset(inspect.signature(open_dataset).parameters) - {"path"}
# What Output takes and shortgop.open does not.
_OF_OUTPUTS = ("scale", "ratio", "flip", "layout")
# What else an item of ClipDataset has.
_TAKEN = ("pts_seconds", "video", "start", "frame_numbers", "mask", "draw")


@dataclass(frozen=True)
class Output:
    """What the frames of each clip become in one of ClipDataset's outputs.

        outputs={
            "input": Output(size=(112, 112), shared="target", dtype=torch.float16),
            "target": Output(size=(224, 224), crop="random", flip=0.5, frames=[1]),
        }

    - `size`: (height, width), or the length of the short side; None leaves the size as it is.
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
    - `normalize`: (mean, std), a number for each channel: values from 0 to 1, less mean, divided by std.
    - `color`: "rgb"; "ycbcr", Y, Cb and Cr from 0 to 255 as in JPEG, by the video's own matrix; "grey", the Y of these.
    - `layout`: the order of frames, channels, height and width, in the tensor and in memory: any order of "TCHW".
    - `frames`: which of the clip's frames it has, as indices of these; -1 is the last one. None stands for all.
    - `shared`: the name of another output, whose crop and flip it takes, resized to its own `size`; it has no `crop`,
      `scale`, `ratio` and `flip` then.

    All frames of a clip have the same crop and flip. They are a function of the dataset's seed, the output's name and
    the draw, so they do not depend on workers, batches or ranks, and differ from epoch to epoch. UsageError for values
    that are wrong, or that do not go together.
    """

    size: Size | None = None
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

    def __post_init__(self) -> None:
        if self.color not in _COLORS:
            raise UsageError(f'color is {self.color!r}; it can be "rgb", "ycbcr" or "grey"')
        if not isinstance(self.layout, str) or sorted(self.layout) != sorted("TCHW"):
            raise UsageError(f'layout is {self.layout!r}; it is an order of the letters of "TCHW", such as "CTHW"')
        self._set("normalize", PixelFormat(self.dtype, self.normalize, self.color).normalize)
        if isinstance(self.crop, str) and self.crop in _RANDOM:
            if not isinstance(self.size, (tuple, list)):
                raise UsageError(f'size is {self.size!r}; crop="{self.crop}" takes size=(height, width)')
            self._set("size", integers_in_pixels("size", self.size, (2,), "(height, width)"))
        elif isinstance(self.crop, str) and self.crop != "center":
            raise UsageError(
                f'crop is {self.crop!r}; it can be "center", "random", "random-scaled", "random-resized" or '
                "(top, left, height, width)"
            )
        else:
            checked = FrameFormat(self.size, self.crop)
            self._set("size", checked.size)
            self._set("crop", checked.crop)
        self._check_numbers()
        if self.frames is not None:
            frames = tuple(integer(frame, "a frame of an output") for frame in listed(self.frames, "frames"))
            if not frames:
                raise UsageError("frames is empty; an output has one frame of a clip or more")
            self._set("frames", frames)
        own = {"crop": self.crop, "scale": self.scale, "ratio": self.ratio, "flip": self.flip or None}
        given = [name for name, value in own.items() if value is not None]
        if self.shared is not None and given:
            raise UsageError(f"shared={self.shared!r} takes crop and flip of that output: leave {given[0]} out")

    def _check_numbers(self) -> None:
        self._set("flip", float(number(self.flip, "flip")))
        if not 0 <= self.flip <= 1:
            raise UsageError(f"flip is {self.flip}; it is a probability, from 0 to 1")
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
        return PixelFormat(self.dtype, self.normalize, self.color)

    def geometry(self, height: int, width: int, hash_key: int) -> Geometry:
        """The geometry for a clip of frames of this size; the key decides what is random.

        UsageError when the crop does not fit.
        """
        bits = hashes(hash_key, np.arange(_NUMBERS))
        flip = _unit(bits[-1]) < self.flip
        if self.crop == "random":
            region = _at_random(height, width, self._two_sides, bits)
        elif self.crop == "random-scaled":
            region = _scaled(height, width, self._two_sides, self.scale or (1.0, 1.0), bits)
        elif self.crop == "random-resized":
            region = _resized(height, width, self.scale or (0.08, 1.0), self.ratio or (3 / 4, 4 / 3), bits)
        else:
            fixed = FrameFormat(self.size, self.crop).geometry(height, width)
            return Geometry(fixed.top, fixed.left, fixed.height, fixed.width, fixed.size, flip)
        return Geometry(*region, self._two_sides, flip)

    def sharing(self, geometry: Geometry) -> Geometry:
        """The geometry of another output with this one's size."""
        part = (geometry.height, geometry.width)
        size = FrameFormat(self.size).geometry(*part).size
        return Geometry(geometry.top, geometry.left, *part, size, geometry.flip)

    @property
    def _two_sides(self) -> tuple[int, int]:
        return cast("tuple[int, int]", self.size)


def _two_numbers(name: str, values: Any) -> tuple[float, float]:
    try:
        low, high = (float(number(value, name)) for value in values)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is {values!r}; it is two numbers, (least, most)") from None
    return low, high


def _unit(bits: Any) -> float:
    """Random bits as a number from 0 to below 1, with the 53 bits that a float has."""
    return int(bits >> np.uint64(11)) / (1 << 53)


def _even_below(bits: Any, most: int) -> int:
    """A random even number from 0 to `most`."""
    return 2 * int(below(bits, most // 2 + 1))


def _at_random(height: int, width: int, size: tuple[int, int], bits: Array) -> Region:
    if size[0] > height or size[1] > width:
        raise UsageError(
            f"a random crop of {size[0]} lines and {size[1]} columns does not fit into frames of height {height} and "
            f'width {width}: make size smaller, or use crop="random-scaled", which is resized'
        )
    return _even_below(bits[0], height - size[0]), _even_below(bits[1], width - size[1]), *size


def _scaled(height: int, width: int, shape: tuple[int, int], scale: tuple[float, float], bits: Array) -> Region:
    part = round((scale[0] + _unit(bits[0]) * (scale[1] - scale[0])) * _SCALES) / _SCALES
    lines, columns = (_in_steps(part * side, 2, side) for side in largest_part(height, width, shape))
    return _even_below(bits[1], height - lines), _even_below(bits[2], width - columns), lines, columns


def _resized(height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float], bits: Array) -> Region:
    """As torchvision.transforms.v2.RandomResizedCrop draws it, with sides in steps and even offsets."""
    step = max(2, 2 * round(min(height, width) / (2 * _STEPS)))
    logs = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(_ATTEMPTS):
        of_area, of_ratio, of_top, of_left = bits[4 * attempt : 4 * attempt + 4]
        area = height * width * (scale[0] + _unit(of_area) * (scale[1] - scale[0]))
        aspect = math.exp(logs[0] + _unit(of_ratio) * (logs[1] - logs[0]))
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


@dataclass(frozen=True)
class Views:
    """The geometries of some clips in each output."""

    geometries: Mapping[str, Sequence[Geometry]]
    drawn: Mapping[str, str]
    """For each output with random choices of its own, what follows "crop" and "flip" in the names of an item's
    entries: "" where there is one such output, else "_" and its name."""

    def columns(self) -> dict[str, torch.Tensor]:
        """What was drawn, as items have it: `crop`, int64, (clips, 4), and `flip`, bool, (clips,)."""
        columns = {}
        for name, suffix in self.drawn.items():
            made = self.geometries[name]
            regions = [(each.top, each.left, each.height, each.width) for each in made]
            columns[f"crop{suffix}"] = torch.tensor(regions, dtype=torch.int64, device="cpu").view(-1, 4)
            columns[f"flip{suffix}"] = torch.tensor([each.flip for each in made], dtype=torch.bool, device="cpu")
        return columns


def check_reading(
    reading: Mapping[str, Any], reader: str = "ClipDataset", elsewhere: Mapping[str, str] | None = None
) -> None:
    """UsageError where what is given this reader for reading is something that only an output has, such as a random
    crop; WrongTypeError for what nothing has, with what `elsewhere` says of it."""
    named, shown = [name for name in _OF_OUTPUTS if name in reading], dict(reading)
    if isinstance(crop := reading.get("crop"), str) and crop in _RANDOM:
        named.insert(0, f"crop={crop!r}")
        shown.setdefault("size", (224, 224))
    if named:
        own = [field.name for field in fields(Output) if field.name in reading]
        given = [f"{field.name}={shown[field.name]!r}" for field in fields(Output) if field.name in shown]
        example = f"shortgop.Output({', '.join(given)})"
        example = f'{{"frames": {example}}}' if reader == "ClipDataset" else example
        raise UsageError(
            f"{', '.join(named)}: an output has this; give {reader} outputs={example} in place of {', '.join(own)}"
        )
    for name in reading:
        if name not in _READING:
            known = _ELSEWHERE if elsewhere is None else elsewhere
            remedy = known.get(name, "its docstring and that of shortgop.open have all")
            raise WrongTypeError(f"{reader} has no parameter {name!r}: {remedy}")


class Outputs:
    """The outputs of a dataset by their names.

    `taken` are the other columns that items have. UsageError for a name that items use twice, and for a wrong `shared`.
    """

    def __init__(self, outputs: Mapping[str, Output], *, taken: Sequence[str], seed: int) -> None:
        if not isinstance(outputs, Mapping) or not outputs:
            raise WrongTypeError(
                f'outputs is {outputs!r}; it is a dict of shortgop.Output by name, such as {{"frames": Output()}}'
            )
        for name, output in outputs.items():
            if not isinstance(name, str) or not isinstance(output, Output):
                raise WrongTypeError(f"output {name!r} is {output!r}; it has to be a shortgop.Output with a name")
            if name in (*_TAKEN, *taken):
                raise UsageError(f"output {name!r}: items have something else of that name; give it another one")
            source = None if output.shared is None else outputs.get(output.shared)
            if output.shared is not None and (source is None or source.shared is not None):
                drawing = [each for each, other in outputs.items() if other.shared is None]
                raise UsageError(
                    f"output {name!r}: shared is {output.shared!r}; it can be the name of an output with a crop of its "
                    f"own: {', '.join(drawing) or 'there is none'}"
                )
        self.named = dict(outputs)
        self._keys = {name: key(seed, "view", name) for name, output in outputs.items() if output.shared is None}
        self._suffixes = {name: f"_{name}" if len(self._keys) > 1 else "" for name in self._keys}
        drawn = {f"{word}{suffix}" for suffix in self._suffixes.values() for word in ("crop", "flip")}
        for name in (*outputs, *taken):
            if name in drawn:
                raise UsageError(f"{name!r} is what items call a crop or a flip that was drawn; choose another name")

    @property
    def are_random(self) -> bool:
        """Whether an output has a random crop or flip."""
        return any(output.crop in _RANDOM or 0 < output.flip < 1 for output in self.named.values())

    def views(self, draws: Sequence[int], sizes: Sequence[tuple[int, int]], ids: Sequence[str]) -> Views:
        """The geometries of clips of these draws; `sizes` are (height, width) of their frames, `ids` their videos'."""
        made: dict[str, list[Geometry]] = {}
        for name, hash_key in self._keys.items():
            made[name] = []
            for draw, size, video in zip(draws, sizes, ids, strict=True):
                try:
                    made[name].append(self.named[name].geometry(*size, key(hash_key, draw)))
                except UsageError as error:
                    raise UsageError(f"output {name!r}, video {video!r}: {error.message}", video=video) from None
        for name, output in self.named.items():
            if output.shared is not None:
                made[name] = [output.sharing(geometry) for geometry in made[output.shared]]
        return Views(made, self._suffixes)

    def positions(self, num_frames: int) -> dict[str, tuple[int, ...] | None]:
        """The places of each output's frames in clips of so many; UsageError when they have no such frame."""
        places: dict[str, tuple[int, ...] | None] = {}
        for name, output in self.named.items():
            frames = output.frames
            if frames is not None and not -num_frames <= min(frames) <= max(frames) < num_frames:
                raise UsageError(
                    f"output {name!r}: frames is {list(frames)}, and clips have {num_frames} frames, 0 to "
                    f"{num_frames - 1}"
                )
            places[name] = None if frames is None else tuple(frame % num_frames for frame in frames)
        return places

    def requests(self, views: Views, num_frames: int) -> dict[str, ClipOutput]:
        """What the reader is asked for; UsageError when an output has frames of several sizes."""
        positions = self.positions(num_frames)
        requests = {}
        for name, output in self.named.items():
            geometries = views.geometries[name]
            sizes = {geometry.size for geometry in geometries}
            if len(sizes) > 1:
                raise UsageError(
                    f"output {name!r}: frames of sizes {sorted(sizes)} do not go into one batch; give it "
                    "size=(height, width)"
                )
            requests[name] = ClipOutput(output.pixels, geometries, positions[name], output.layout)
        return requests


def paint_black(clip: torch.Tensor, pixels: PixelFormat, layout: str, mask: Array, *, full_range: bool = True) -> None:
    """Make black the frames of a clip where `mask` is False.

    `layout` is the order of the clip's dimensions, `full_range` that of the planes of yuv420.
    """
    black = torch.tensor(pixels.black(full_range=full_range), dtype=torch.float64, device="cpu").to(clip.dtype)
    order = [layout.index(dimension) for dimension in "TCHW"]
    painted, chroma = black.reshape(-1, 1, 1), slice(clip.shape[order[2]] * 2 // 3, None)
    if clip.device.type != "cpu":
        missing = torch.from_numpy(~mask).to(clip.device)
        clip.permute(order)[missing] = painted.to(clip.device)
        if pixels.color == "yuv420":
            clip.permute(order)[missing, :, chroma] = 128
        return
    # As arrays: torch would use threads, which do not survive a fork.
    frames = array_of(clip).transpose(order)
    frames[~mask] = array_of(painted)
    if pixels.color == "yuv420":
        # Two thirds of the lines are luma.
        frames[~mask, :, chroma] = 128
