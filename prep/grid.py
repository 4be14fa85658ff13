"""The frame grid: which source frame is shown at each tick of a constant rate.

Tick k of the output is at k / fps seconds after the first source frame. ffmpeg's `fps` filter shows there the last
source frame j with

    round_half_up((pts_j - pts_0) * timebase * fps) <= k

(libavfilter/vf_fps.c: pts are rescaled to 1/fps with AV_ROUND_NEAR_INF, and a frame is repeated until the next one's
turn). Planning it here, before ffmpeg runs, fixes the number of frames, and each encode is held against the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..manifests.errors import EncodeError
from ..manifests.ragged import Array

# Rates that cameras and editors write. A constant-rate file whose timebase is coarse (Matroska: milliseconds) only
# shows its rate to within that timebase; the exact one is found among these.
STANDARD_RATES = tuple(
    Fraction(n, d)
    for n, d in (
        (24000, 1001), (24, 1), (25, 1), (30000, 1001), (30, 1), (48000, 1001), (48, 1), (50, 1),
        (60000, 1001), (60, 1), (100, 1), (120000, 1001), (120, 1), (240, 1),
        (5, 1), (6, 1), (8, 1), (10, 1), (12, 1), (12000, 1001), (25, 2), (15000, 1001), (15, 1), (20, 1),
    )
)  # fmt: skip


# A slide show has a picture every ten seconds; a file with more repeats than this has a gap of hours in it, which comes
# of damaged timestamps.
_MAX_REPEATS = 1000
_ALWAYS_ALLOWED_FRAMES = 100_000
# An MP4's timescale has 32 bits.
_MAX_TIMESCALE = 1 << 32


@dataclass(frozen=True, eq=False)
class FrameGrid:
    """`source_pts[k]` is the pts of the source frame shown at tick k, int64 in the source's timebase."""

    fps: Fraction
    source_pts: Array

    def __len__(self) -> int:
        return len(self.source_pts)


def ticks_of(pts: Array, origin: int, timebase: Fraction, fps: Fraction) -> NDArray[np.int64]:
    """round_half_up((pts - origin) * timebase * fps), exactly."""
    rate = timebase * fps
    spans = pts - origin
    largest = max((abs(int(span)) for span in (spans.min(), spans.max())), default=0) if len(spans) else 0
    if largest * 2 * rate.numerator + rate.denominator >= 1 << 62:
        # Nanosecond timebases and fine rates leave 64 bits; Python's integers do not.
        spans = spans.astype(object)
    ticks = (spans * (2 * rate.numerator) + rate.denominator) // (2 * rate.denominator)
    return np.asarray(ticks, dtype=np.int64)


def plan_grid(pts: Array, end_pts: int, timebase: Fraction, fps: Fraction) -> FrameGrid:
    """The grid of a source whose frames have these `pts` (int64, strictly rising) and whose last one ends at
    `end_pts`, at the constant rate `fps`. It has at least one frame. EncodeError for one that would be nearly all
    repeats."""
    if len(pts) == 0 or (np.diff(pts) <= 0).any():
        raise ValueError("pts of a frame grid must rise, and there must be some")
    ticks = ticks_of(pts, int(pts[0]), timebase, fps)
    num_frames = max(1, int(ticks_of(np.array([end_pts]), int(pts[0]), timebase, fps)[0]))
    if num_frames > _MAX_REPEATS * len(pts) + _ALWAYS_ALLOWED_FRAMES:
        seconds = float((end_pts - int(pts[0])) * timebase)
        raise EncodeError(
            f"{len(pts)} frames spread over {seconds:.0f} s would be repeated to {num_frames} at {fps} frames/s: its "
            "timestamps are damaged, or --fps should be lower"
        )
    shown = np.searchsorted(ticks, np.arange(num_frames), side="right") - 1
    return FrameGrid(fps=fps, source_pts=pts[shown])


def constant_rate(pts: Array, timebase: Fraction, hints: tuple[Fraction, ...]) -> Fraction | None:
    """The exact rate of a constant-rate source, or None when its frames are not evenly spaced.

    `hints` are rates that the container claims; they come before the standard ones, and all only count when every
    single pts lies within one unit of the timebase of where that rate puts it. A rate whose numerator is no timescale
    that an MP4 can have is none.
    """
    if len(pts) < 2:
        return next((hint for hint in hints if hint > 0), None)
    spans = pts - pts[0]
    mean = Fraction(len(pts) - 1) / (int(spans[-1]) * timebase)
    for rate in (*hints, *STANDARD_RATES, mean):
        # A cheap look first: a wrong rate has drifted away by the last frame.
        if (
            0 < rate.numerator < _MAX_TIMESCALE
            and _lies_on(spans[-1:], np.array([len(pts) - 1]), timebase, rate)
            and _lies_on(spans, np.arange(len(pts)), timebase, rate)
        ):
            return rate
    return None


def _lies_on(spans: Array, numbers: Array, timebase: Fraction, rate: Fraction) -> bool:
    """Whether frame number n is within one timebase unit of n / rate."""
    step = 1 / (rate * timebase)
    # |span - n * step| <= 1, in integers: floats would lose it on long videos.
    drift = spans.astype(object) * step.denominator - numbers.astype(object) * step.numerator
    return bool((abs(drift) <= step.denominator).all())


def nominal_rate(pts: Array, timebase: Fraction) -> Fraction:
    """A constant rate for a variable-rate source: that of its ordinary frame intervals, so that a 30 fps recording
    with some frames missing becomes 30 fps and loses none. Intervals count as ordinary within half the median of it;
    their mean, unlike the median, is finer than the timebase. The nearest standard rate where one is within half a
    percent, else a whole number of thousandths."""
    intervals = np.diff(pts)
    median = float(np.median(intervals))
    ordinary = intervals[np.abs(intervals - median) <= median / 2]
    rate = Fraction(len(ordinary)) / (int(ordinary.sum()) * timebase)
    standard = min(STANDARD_RATES, key=lambda known: abs(known - rate))
    if abs(rate / standard - 1) <= Fraction(1, 200):
        return standard
    return max(Fraction(1, 1000), Fraction(round(rate * 1000), 1000))
