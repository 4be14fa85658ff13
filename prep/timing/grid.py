"""The frame grid: which source frame is shown at each tick of a constant rate.

Tick k of the output is k / fps seconds after the first source frame. It shows the last source frame whose time is at
most

    k / fps + tolerance,    tolerance = min(half a tick, half the source's ordinary interval)

and tick 0 shows the first one. So at the source's own rate every frame keeps its place, and jitter of less than half an
interval loses no frame. A lower rate takes the nearest frames, a higher rate repeats frames, and no frame is shown more
than half a tick before its time.

So frame j is shown from tick ceil((time_j - tolerance) * fps) on; `tick_filters.py` gives ffmpeg this formula. The
plan, made before ffmpeg runs, fixes the number of frames, and each encode is compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...errors import EncodeError
from ...manifests.ragged import Array
from ...wording import counted

# A file with more repeats than this has a gap of hours, or --fps does not suit it.
_MAX_REPEATS = 1000
_ALWAYS_ALLOWED_FRAMES = 100_000
# With fewer frames, the median interval says nothing about which interval is a gap.
_FEWEST_FOR_A_RHYTHM = 4
# Converted repetitions of a frame that may be in ffmpeg's memory at once: 50 MB in 1080p.
_MOST_REPETITIONS = 16
# Rounding to the timebase changes intervals a little.
_NEARLY_ONE = Fraction(19, 20)


@dataclass(frozen=True)
class Gap:
    """An interval without a frame, which ends at the frame at `pts`. Closing it moves this frame to an earlier time, by
    `units` of the timebase."""

    pts: int
    units: int


@dataclass(frozen=True)
class TickRule:
    """The rule for the tick from which on a source frame is shown, by its pts.

    `origin_pts` is the pts of the first frame, `tolerance` is in seconds, as above. Frames after a gap in `closed` move
    to earlier times.
    """

    timebase: Fraction
    fps: Fraction
    origin_pts: int
    tolerance: Fraction
    closed: tuple[Gap, ...] = ()

    @staticmethod
    def of(
        pts: Array, timebase: Fraction, fps: Fraction, interval: Fraction | None, closed: tuple[Gap, ...] = ()
    ) -> TickRule:
        """The rule for frames at these `pts`. Their median interval is `interval` seconds, None for a single frame."""
        tick = 1 / fps
        return TickRule(timebase, fps, int(pts[0]), min(tick, interval or tick) / 2, closed)

    @property
    def terms(self) -> tuple[int, int, int]:
        """Integers (a, b, c) such that max(1, ceil((a * span - b) / c)) is the tick of a frame `span` units after the
        first one. The first frame itself is at tick 0."""
        scale, shift = self.timebase * self.fps, self.tolerance * self.fps
        common = np.lcm.reduce(np.array([scale.denominator, shift.denominator], dtype=object))
        return int(scale * common), int(shift * common), int(common)

    def spans(self, pts: Array) -> Array:
        """The time after the first frame, in units of the timebase, with gaps closed."""
        moved = np.cumsum([0, *(gap.units for gap in self.closed)])
        before = np.searchsorted(np.array([gap.pts for gap in self.closed], dtype=np.int64), pts, side="right")
        return np.asarray(pts - self.origin_pts - moved[before])

    def ticks(self, pts: Array) -> Array:
        """The tick from which on the frame at each of these pts is shown, int64; computed in integers, without rounding
        errors."""
        ticks = self._ceil(pts, *self.terms)
        return np.where(pts <= self.origin_pts, 0, np.maximum(ticks, 1))

    def rounded(self, pts: int) -> int:
        """The tick nearest to this pts."""
        scale = self.timebase * self.fps
        return int(self._ceil(np.array([pts]), 2 * scale.numerator, scale.denominator - 1, 2 * scale.denominator)[0])

    def _ceil(self, pts: Array, a: int, b: int, c: int) -> Array:
        spans = self.spans(pts)
        largest = int(np.abs(spans).max(initial=0))
        if largest * a + b + c >= 1 << 62:
            # With nanosecond timebases and fine rates the product exceeds 64 bits; Python's integers have no limit.
            spans = spans.astype(object)
        return np.asarray(-((b - a * spans) // c), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class FrameGrid:
    """`source_pts[k]` is the pts of the source frame that tick k shows, int64 in the source's timebase. `dropped`: how
    many source frames no tick shows. `repeated`: how many are shown at more than one tick."""

    rule: TickRule
    source_pts: Array
    dropped: int
    repeated: int

    def __len__(self) -> int:
        return len(self.source_pts)

    @property
    def converts_first(self) -> bool:
        """Whether the source's pictures are converted before they are repeated: where that converts fewer of them, and
        where a frame is shown so long that its converted repetitions would fill the memory.

        ffmpeg's filter `fps` puts out all repetitions of a frame at once, and FFmpeg runs the filters behind it on each
        of them before the encoder takes the first.
        """
        begins = np.flatnonzero(np.diff(self.source_pts, prepend=self.source_pts[:1] - 1))
        longest_run = np.diff(begins, append=len(self)).max(initial=0)
        return bool(len(begins) + self.dropped < len(self) or longest_run > _MOST_REPETITIONS)


def ordinary_interval(pts: Array, timebase: Fraction) -> Fraction | None:
    """The median interval between frames in seconds, the lower median of an even number; None for a single frame."""
    if len(pts) < 2:
        return None
    return int(np.quantile(np.diff(pts), 0.5, method="lower")) * timebase


def find_gaps(pts: Array, end_pts: int, timebase: Fraction, max_gap_seconds: Fraction) -> tuple[Gap, ...]:
    """The intervals longer than `max_gap_seconds`; closed, each becomes as long as the median interval. The interval
    from the last frame to `end_pts` counts too.

    In a time-lapse all intervals are long and none is a gap: with four frames or more, a gap is also more than twice
    the median interval.
    """
    ordinary = int((ordinary_interval(pts, timebase) or 0) / timebase)
    ends = np.append(pts[1:], end_pts)
    intervals = ends - pts
    allowed = int(max_gap_seconds / timebase)
    longest = max(allowed, 2 * ordinary)
    if len(pts) < _FEWEST_FOR_A_RHYTHM:
        longest, ordinary = allowed, min(ordinary, allowed)
    return tuple(
        Gap(int(ends[number]), int(intervals[number]) - ordinary)
        for number in np.flatnonzero(intervals > longest).tolist()
    )


def plan_grid(pts: Array, end_pts: int, rule: TickRule) -> FrameGrid:
    """The grid of a source whose frames have these `pts` (int64, strictly rising); the last frame ends at `end_pts`.

    EncodeError for a video that would consist almost only of repeats.
    """
    if len(pts) == 0 or (np.diff(pts) <= 0).any():
        raise ValueError("the pts of a frame grid must rise, and there must be at least one")
    ticks = rule.ticks(pts)
    num_frames = _count_ticks(rule, ticks, end_pts)
    if num_frames > _MAX_REPEATS * len(pts) + _ALWAYS_ALLOWED_FRAMES:
        seconds = float((end_pts - int(pts[0])) * rule.timebase)
        raise EncodeError(
            f"{counted(len(pts), 'frame')} spread over {seconds:.0f} s would be repeated to {num_frames} at {rule.fps} "
            "frames/s: give a lower --fps, or --gaps close where its timestamps have gaps"
        )
    shown = np.searchsorted(ticks, np.arange(num_frames), side="right") - 1
    counts = np.bincount(shown, minlength=len(pts))
    return FrameGrid(
        rule, pts[shown], dropped=int(np.count_nonzero(counts == 0)), repeated=int(np.count_nonzero(counts > 1))
    )


def _count_ticks(rule: TickRule, ticks: Array, end_pts: int) -> int:
    """The number of ticks that is nearest to the source's duration, at least one. At the source's own rate or above,
    the last frame is shown in any case, however short it is."""
    nearest = max(1, rule.rounded(end_pts))
    own_rate_or_above = 2 * rule.tolerance * rule.fps >= _NEARLY_ONE
    return max(nearest, int(ticks[-1]) + 1) if own_rate_or_above else nearest


def count_dropped(rule: TickRule, pts: Array, end_pts: int) -> int:
    """How many of the frames no tick shows, computed without the grid."""
    ticks = rule.ticks(pts)
    taken = ticks[ticks < _count_ticks(rule, ticks, end_pts)]
    return len(pts) - len(np.unique(taken))
