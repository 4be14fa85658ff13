"""Which frames a clip has, counted from the one where it starts: evenly spaced, at several rates, or any list.

    int 5, stride=2                       f.f.f.f.f                the video's own frames, every second one
    int 5, fps=10                         the same at 20 frames/s; at 60 frames/s every sixth one
    MultiRate([(2, 1), (4, 2)])           f...f...f.f.f.f          at 4 frames/s: two at 1 frame/s, four at 2
    Offsets(frames=[-4, -2, 0])           f.f.F                    a window that ends where the clip starts (F)
    Offsets(seconds=[-1, 0, 0.5])         f...F.f                  the same in seconds, at 4 frames/s

Where a time lies between two frames of a video, the nearer one is taken, and the later one when it lies in the middle:
offset t of a video with rate r is frame floor(t * r + 1/2). Within the last half frame of a video it is the last frame:
a time before the end of a video has a frame, unless it misses the end by less than a millionth of one, as 1 / 30 does
as a float. The arithmetic is exact, so videos of different rates get equal steps in time to within half a frame,
however long the clip is. A float counts as the decimal number that it is printed as: fps=29.97 is 2997/100. A text
counts as `prep --fps` reads it: fps="29.97" is 30000/1001.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import floor
from reprlib import repr as shortened
from typing import Any

from ...arguments import LARGEST_INT64, exact_number, finite, frame_rate, integer
from ...errors import UsageError, WrongTypeError

Seconds = float | Fraction | Decimal
Rate = Seconds | str
"""Frames per second. As text it is what `prep --fps` takes: 30000/1001, and 29.97 for the same."""


# Offsets are held for each frame of a clip: more would take all memory before any clip is found to be too long.
MOST_FRAMES = 1 << 24


@dataclass(frozen=True)
class Offsets:
    """A clip's frames by their distance from its start, in frames of the video or in seconds: one of the two.

    Distances may be negative, come in any order and come twice. `Offsets(seconds=[-0.2, -0.1, 0])` is what robotics
    calls delta timestamps. UsageError for an empty list, and for both or neither.
    """

    frames: Sequence[int] | None = None
    seconds: Sequence[Seconds] | None = None

    def __post_init__(self) -> None:
        if (self.frames is None) == (self.seconds is None):
            raise UsageError("Offsets takes either frames=[...] or seconds=[...]")
        if self.frames is not None:
            frames = tuple(integer(each, "an offset in frames") for each in listed(self.frames, "frames"))
            object.__setattr__(self, "frames", frames)
        else:
            seconds = tuple(exact_number(each, "an offset") for each in listed(self.seconds, "seconds"))
            object.__setattr__(self, "seconds", seconds)
        if not (self.frames or self.seconds):
            raise UsageError("Offsets is empty; a clip has at least one frame")


@dataclass(frozen=True)
class MultiRate:
    """Stretches of a clip with a rate each: (number of frames, frames per second), one stretch after the other.

    `MultiRate([(8, 1), (8, 2)])` is one frame a second for 8 s, then two a second for 4 s: 16 frames over 12 s. A
    stretch of n frames at rate r lasts n / r seconds, and the next one starts there.
    """

    stretches: Sequence[tuple[int, Rate]]

    def __post_init__(self) -> None:
        stretches = []
        for each in listed(self.stretches, "stretches"):
            try:
                count, fps = each
            except (TypeError, ValueError):
                raise UsageError(f"a stretch is {each!r}; it is (number of frames, frames per second)") from None
            stretches.append(
                (at_least_one(count, "the number of frames of a stretch", most=MOST_FRAMES), positive_rate(fps))
            )
        if not stretches:
            raise UsageError("MultiRate is empty; a clip has at least one stretch")
        object.__setattr__(self, "stretches", tuple(stretches))

    @property
    def seconds(self) -> tuple[Fraction, ...]:
        """When each frame is due, in seconds from the start of the clip."""
        times, start = [], Fraction(0)
        for count, fps in self.stretches:
            times += [start + index / Fraction(fps) for index in range(count)]
            start += count / Fraction(fps)
        return tuple(times)


ClipFrames = int | Offsets | MultiRate


@dataclass(frozen=True)
class Spacing:
    """The distances of a clip's frames from its start: in frames, or in seconds, from which a rate makes frames."""

    frames: tuple[int, ...] | None
    seconds: tuple[Fraction, ...] | None

    def __len__(self) -> int:
        return len(self.frames or self.seconds or ())

    @property
    def needs_rate(self) -> bool:
        """Whether the frames differ from one frame rate to another."""
        return self.seconds is not None


def spacing(clip_frames: ClipFrames, stride: int | None, fps: Rate | None) -> Spacing:
    """What a policy's `num_frames`, `stride` and `fps` mean together; UsageError where they contradict each other."""
    if isinstance(clip_frames, (Offsets, MultiRate)):
        if stride is not None or fps is not None:
            raise UsageError(f"{clip_frames!r} says which frames a clip has; it goes with neither stride nor fps")
        if isinstance(clip_frames, MultiRate):
            return Spacing(None, clip_frames.seconds)
        frames, seconds = clip_frames.frames, clip_frames.seconds
        times = None if seconds is None else tuple(Fraction(each) for each in seconds)
        return Spacing(None if frames is None else tuple(frames), times)
    count = at_least_one(clip_frames, "num_frames", most=MOST_FRAMES)
    if stride is not None and fps is not None:
        raise UsageError(f"stride={stride} and fps={fps} both say how far apart frames are; give one of them")
    if fps is not None:
        exact = positive_rate(fps)
        return Spacing(None, tuple(index / exact for index in range(count)))
    step = 1 if stride is None else at_least_one(stride, "stride")
    return Spacing(tuple(index * step for index in range(count)), None)


@lru_cache(maxsize=4096)
def frame_offsets(spaced: Spacing, fps: Fraction) -> tuple[int, ...]:
    """The distances in frames of a video with this rate."""
    if spaced.frames is not None:
        return spaced.frames
    return tuple(nearest_frame(time, fps) for time in spaced.seconds or ())


def nearest_frame(seconds: Fraction, fps: Fraction) -> int:
    """The frame that is shown nearest to a time; the later one when the time lies in the middle of two."""
    return floor(seconds * fps + Fraction(1, 2))


def nearest_frames(times: Iterable[Fraction], fps: Fraction, num_frames: int) -> list[int]:
    """The frames nearest to times of a video: the last one for times in its last half frame, and numbers of frames that
    do not exist for times from its end on."""
    return [num_frames - 1 if floor(time * fps) == num_frames - 1 else nearest_frame(time, fps) for time in times]


def positive_rate(fps: Any) -> Fraction:
    """A rate in frames per second, exact."""
    exact = finite(frame_rate(fps, "fps"), "fps")
    if exact <= 0:
        raise UsageError(f"fps is {fps!r}; it is how many frames of a clip make a second, more than 0")
    return exact


def at_least_one(value: Any, what: str, *, most: int = LARGEST_INT64) -> int:
    """An integer of 1 or more, and of no more than `most`."""
    count = integer(value, what)
    if not 1 <= count <= most:
        raise UsageError(f"{what} is {count}; it has to be 1 or more" + (f", up to {most}" if count > most else ""))
    return count


def listed(values: Any, what: str) -> list[Any]:
    """The values of any list, array or tensor; WrongTypeError for anything else, and for what has no order or only keys
    in it."""
    if isinstance(values, (set, frozenset, Mapping)):
        raise WrongTypeError(f"{what} is the {type(values).__name__} {shortened(values)}; it has to be a list")
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise WrongTypeError(f"{what} is {values!r}; it has to be a list")
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):
        raise WrongTypeError(
            f"{what} is a {type(values).__name__}, which has names of columns in it; for its rows give it .to_numpy(), "
            "or choose one column"
        )
    return list(values)
