"""A stretch of a source that becomes a video of its own (a cut): which frames belong to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from ...errors import SourceError
from ...manifests.ragged import Array

# Durations in annotations are often those of a file whose sound is longer than its picture.
_SLACK_SECONDS = Fraction(1, 2)
_CORRECT = "correct it, or leave out its end for the rest of the file"
# How much of an interval a frame that is meant may be away.
_BESIDE = Fraction(1, 4)
# A source whose rate is nearer to its dataset's has the same frames at both.
_FASTER = Fraction(21, 20)


@dataclass(frozen=True)
class Stretch:
    """The time [start, end) of a source, in seconds after its first frame; to the source's end where `end` is None.
    `place` is where the user named it, for messages. It may end half a second after the source, or half of the source's
    ordinary interval.

    With `num_frames`, a dataset says that it has so many, and means frames by their times: it has to end with the
    source, and at the source's own rate it has to begin at a frame and to have so many.

    With `in_frames`, `start` and `end` are numbers of frames, whole ones, and the source has to have them all."""

    start: Fraction
    end: Fraction | None = None
    place: str = field(default="", compare=False)
    in_frames: bool = False
    num_frames: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.start < 0 or (self.end is not None and self.end <= self.start):
            raise ValueError(f"the stretch {self} is empty")

    def __str__(self) -> str:
        times = f"{plain_seconds(self.start)}-{'' if self.end is None else plain_seconds(self.end)}"
        return f"f{times}" if self.in_frames else times


@dataclass(frozen=True)
class Part:
    """The frames of a stretch: `first` and `stop` are numbers of frames. The video begins at `origin_pts` and ends at
    `end_pts`, in units of the source's timebase."""

    first: int
    stop: int
    origin_pts: int
    end_pts: int


def reaches_end(stretch: Stretch, pts: Array, timebase: Fraction) -> bool:
    """Whether a stretch has the last frame of a source whose frames are at `pts`: not if it ends less than half an
    interval behind that frame's time, as in `part_of`."""
    if stretch.end is None or stretch.in_frames:
        return stretch.end is None or stretch.end >= len(pts)
    half_interval = Fraction(int(np.median(np.diff(pts))) if len(pts) > 1 else 0, 2)
    return stretch.end >= (int(pts[-1] - pts[0]) + half_interval) * timebase


def plain_seconds(seconds: Fraction) -> str:
    """The shortest text that says the number: 12.5, or 1/3 where decimals do not end."""
    places = 0
    while 10**places % seconds.denominator and places <= seconds.denominator.bit_length():
        places += 1
    if 10**places % seconds.denominator:
        return str(seconds)
    text = f"{seconds.numerator * 10**places // seconds.denominator:0{places + 1}d}"
    return f"{text[: len(text) - places]}.{text[len(text) - places :]}" if places else text


def part_of(  # noqa: PLR0917  # the source's times, and how to round to them
    path: str, stretch: Stretch, pts: Array, end_pts: int, timebase: Fraction, interval: Fraction | None
) -> Part:
    """The frames of a source, whose `pts` rise, that belong to a stretch. `interval`: the source's ordinary interval.

    Its first frame is the one that a tick at `start` shows: the last frame whose time is at most `start` plus half the
    ordinary interval, as everywhere (`grid.py`). Then come all frames whose time is at most `end` minus half the
    ordinary interval. So times that were rounded to milliseconds find the frames that were meant, and of evenly spaced
    frames each belongs to exactly one of two stretches that meet.

    SourceError for a stretch that starts after the end of the source, or ends more than it may after it.
    """
    if stretch.in_frames:
        return _part_by_numbers(path, stretch, pts, end_pts)
    zero, half = int(pts[0]), (interval or Fraction(0)) / 2
    lasts = (end_pts - zero) * timebase
    end = lasts if stretch.end is None else stretch.end
    slack = half if stretch.num_frames is not None else max(_SLACK_SECONDS, half)
    if stretch.start >= lasts or end > lasts + slack:
        what = "starts" if stretch.start >= lasts else "ends"
        raise SourceError(
            f"{stretch.place + ': ' if stretch.place else ''}the stretch {_shown(stretch)} {what} after the end of "
            f"{path}, which lasts {float(lasts):.3f} s; {'copy the file again' if stretch.num_frames else _CORRECT}",
            file=path,
        )
    last_start = zero + (stretch.start + half) / timebase
    first = int(np.searchsorted(pts, last_start.__floor__(), side="right")) - 1
    last_end = zero + (end - half) / timebase
    stop = len(pts) if end >= lasts else int(np.searchsorted(pts, last_end.__floor__(), side="right"))
    origin_pts = max(int(pts[first]), round(zero + stretch.start / timebase))
    stop_pts = end_pts if end >= lasts else round(zero + end / timebase)
    return Part(first, max(first + 1, stop), origin_pts, max(origin_pts + 1, stop_pts))


def check_first(path: str, stretch: Stretch, first: Fraction, fps: Fraction) -> None:
    """SourceError where a dataset means other frames than those of a stretch by their times: the first one is shown
    `first` seconds after that of the source, whose own rate is `fps`."""
    off = abs(first - stretch.start) * fps
    if stretch.num_frames is None or off <= _BESIDE:
        return
    begins = f"{stretch.place} begins at {float(stretch.start):.6g} s, "
    if off >= 1:
        raise SourceError(f"{begins}where {path} has no frame; copy the file again", file=path)
    raise SourceError(
        f"{begins}between two frames of {path}, so it is not known which are its frames; write the dataset's "
        "description of episodes again",
        file=path,
    )


def check_count(path: str, stretch: Stretch, num_frames: int, num_ticks: int | None, fps: Fraction) -> None:
    """SourceError where a dataset says that a stretch has another number of frames than it has in the source, whose own
    rate is `fps`, or than the `num_ticks` of its video (None: these may differ)."""
    if stretch.num_frames is None or stretch.end is None:
        return
    if num_frames == stretch.num_frames and num_ticks in {None, stretch.num_frames}:
        return
    of_dataset = stretch.num_frames / (stretch.end - stretch.start)
    remedy = f"give --fps {plain_seconds(of_dataset)}"
    if num_frames != stretch.num_frames:
        # At a higher rate the frames of other rows would be repeated, and at its own rate there are as many as before.
        is_faster = num_frames > stretch.num_frames and fps > of_dataset * _FASTER
        remedy = f"copy the file again{f', or {remedy} if only its rate is wrong' if is_faster else ''}"
    made = f", which make a video of {num_ticks}" if num_frames == stretch.num_frames else ""
    raise SourceError(
        f"{stretch.place}: {path} has {num_frames} frames in the stretch {_shown(stretch)} at {float(fps):.6g} "
        f"frames/s{made}, and the dataset says {stretch.num_frames}; {remedy}",
        file=path,
    )


def _shown(stretch: Stretch) -> str:
    """A stretch in a message: a dataset's times are sums of floats."""
    if stretch.num_frames is None or stretch.end is None:
        return str(stretch)
    return f"{float(stretch.start):.6g}-{float(stretch.end):.6g}"


def _part_by_numbers(path: str, stretch: Stretch, pts: Array, end_pts: int) -> Part:
    first, stop = int(stretch.start), len(pts) if stretch.end is None else int(stretch.end)
    if first >= len(pts) or stop > len(pts):
        what = "starts" if first >= len(pts) else "ends"
        raise SourceError(
            f"{stretch.place + ': ' if stretch.place else ''}the stretch {stretch} {what} after the last frame of "
            f"{path}, which has {len(pts)}, numbered from 0; {_CORRECT}",
            file=path,
        )
    return Part(first, stop, int(pts[first]), int(pts[stop]) if stop < len(pts) else end_pts)
