"""Plans the frame grid of a source from its timestamps: gaps, rate, ticks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...errors import DamagedSourceError, EncodeError
from ...manifests.ragged import Array
from ...wording import counted
from ..options import SourcePolicy
from ..probing.packet_times import falls
from ..probing.source_video import SourceVideo, with_pts
from ..running.frame_report import NO_PTS
from .grid import FrameGrid, Gap, TickRule, find_gaps, ordinary_interval, plan_grid
from .rates import MAX_RATE, constant_rate, variable_rate
from .straight_times import may_be_copied
from .stretch import Part, Stretch, check_count, check_first, part_of

# Longer pauses do not count when the rate is chosen, whether they are closed or kept.
_PAUSE_SECONDS = Fraction(10)
# Decoders put out a few frames in the wrong order; in joined recordings times jump back by more than this.
_MAX_JUMP_BACK_SECONDS = 1
# Decoders put out no more than these frames in the wrong order.
_MOST_LEFT_OUT_TOGETHER = 4
# How much of an interval, and of a second, may be rounding.
_ROUNDED_PART, _ROUNDED_SECONDS = Fraction(1, 20), Fraction(1, 1000)
# Where more than one frame in so many would be left out, no time is right.
_MOST_LEFT_OUT_PART = 5
# Two or three frames may lie close together for other reasons than a wrong rate.
_FEWEST_FOR_A_RATE = 4
# Each is a term of an expression that ffmpeg evaluates for every frame.
_MAX_CLOSED_GAPS = 1000
# Of frames with the times of decoding, more than one in so many has a time that does not rise.
_FALLING_PART = 20


def plan_times(source: SourceVideo, fps: Fraction | None, policy: SourcePolicy) -> FrameGrid:
    """The frame grid of a source that has timestamps, at the rate `fps` (None: at a rate chosen for the source).

    DamagedSourceError for gaps that the policy refuses, EncodeError for a video that would consist almost only of
    repeats.
    """
    if source.pts is None:
        raise ValueError("a source without timestamps cannot be planned")
    gaps = gaps_of(source, policy)
    _check_gaps(source, gaps, policy)
    closed = gaps if policy.gaps == "close" else ()
    rhythm = rhythm_of(source, fps, policy)
    return grid_of(source, source.pts, TickRule.of(source.pts, source.timebase, rhythm.fps, rhythm.interval, closed))


@dataclass(frozen=True)
class Rhythm:
    """The rate of the video, and the ordinary interval of its source in seconds (None: a single frame). `is_given`:
    whether the user gave the rate."""

    fps: Fraction
    interval: Fraction | None
    is_given: bool = False


def rhythm_of(source: SourceVideo, fps: Fraction | None, policy: SourcePolicy) -> Rhythm:
    """The rate `fps`, or the one chosen for a source that has timestamps, with all pauses left out. EncodeError for a
    source with more frames per second than any video may have, whose timestamps are wrong."""
    pts, timebase = times_of(source), source.timebase
    median_seconds = float(np.median(np.diff(pts))) * float(timebase) if len(pts) >= _FEWEST_FOR_A_RATE else 1.0
    if median_seconds < 1 / MAX_RATE:
        raise EncodeError(
            f"{source.path} has {1 / median_seconds:.0f} frames/s by its timestamps, or by its header if it is a raw "
            f"stream; videos have at most {MAX_RATE}. Give its frames their times first: "
            "ffmpeg -r RATE -i FILE OUT.mp4",
            file=source.path,
        )
    pauses = find_gaps(pts, source.end_pts, timebase, min(policy.max_gap_seconds, _PAUSE_SECONDS))
    without = TickRule(timebase, Fraction(1), int(pts[0]), Fraction(0), pauses)
    spans, end = without.spans(pts), int(without.spans(np.array([source.end_pts]))[0])
    constant = constant_rate(spans, timebase, source.rate_hints)
    rate = fps or constant or variable_rate(spans, end, timebase, source.rate_hints)
    return Rhythm(rate, 1 / constant if constant else ordinary_interval(spans, timebase), fps is not None)


def gaps_of(source: SourceVideo, policy: SourcePolicy) -> tuple[Gap, ...]:
    """All gaps in a source that has timestamps."""
    return find_gaps(times_of(source), source.end_pts, source.timebase, policy.max_gap_seconds)


def plan_stretch(
    source: SourceVideo, stretch: Stretch, rhythm: Rhythm, gaps: tuple[Gap, ...], policy: SourcePolicy
) -> FrameGrid:
    """The frame grid of a stretch, at the rate of the whole source. `gaps` are those of the whole source.

    SourceError for a stretch outside the source, or with other frames than its dataset means; DamagedSourceError for
    gaps in it that the policy refuses.
    """
    pts, timebase = times_of(source), source.timebase
    part = part_of(source.path, stretch, pts, source.end_pts, timebase, rhythm.interval)
    # Times that were rounded to milliseconds, as in Matroska, and copied to finer units have no exact rate.
    has_own_ticks = rhythm.interval and abs(rhythm.interval * rhythm.fps - 1) <= _ROUNDED_PART
    interval = rhythm.interval if has_own_ticks else None
    if interval:
        part = _at_frames(part, pts, float(interval / timebase), float(_ROUNDED_SECONDS / timebase))
    befores = {gap.pts: int(pts[np.searchsorted(pts, gap.pts) - 1]) for gap in gaps}
    touched = tuple(gap for gap in gaps if befores[gap.pts] < part.end_pts and gap.pts > part.origin_pts)
    _check_gaps(source, touched, policy)
    shown = pts[part.first : part.stop]
    # A stretch that starts or ends within a gap shows the frame before the gap for as long as the stretch says.
    inside = tuple(gap for gap in touched if befores[gap.pts] >= part.origin_pts and gap.pts <= shown[-1])
    rule = TickRule.of(shown, timebase, rhythm.fps, rhythm.interval, inside if policy.gaps == "close" else ())
    grid = grid_of(replace(source, end_pts=part.end_pts), shown, replace(rule, origin_pts=part.origin_pts))
    if interval:
        check_first(source.path, stretch, int(shown[0] - pts[0]) * timebase, 1 / interval)
        # Other frames may stand in place of those that are lost, if the user says so.
        may_repeat = policy.salvage or policy.gaps != "fail"
        if not (may_repeat and len(grid) == stretch.num_frames):
            check_count(source.path, stretch, len(shown), None if rhythm.is_given else len(grid), 1 / interval)
    return grid


def _at_frames(part: Part, pts: Array, interval_units: float, rounded_units: float) -> Part:
    """The part with its ends moved to frames that are near, for a video in which each frame has a tick of its own.

    If ticks began between two frames, as at 4.25 s of 30 frames/s, times that were rounded to milliseconds would give
    some frames the tick of a neighbour. No end moves further than where frames are evenly spaced, so that a stretch is
    at most a frame longer than asked for; ends within a pause stay where they are.
    """
    origin_pts, end_pts = part.origin_pts, part.end_pts
    most = interval_units / 2 + rounded_units
    if origin_pts - int(pts[part.first]) <= most:
        origin_pts = int(pts[part.first])
    if part.stop < len(pts) and abs(int(pts[part.stop]) - end_pts) <= most:
        end_pts = int(pts[part.stop])
    return replace(part, origin_pts=origin_pts, end_pts=end_pts)


def times_of(source: SourceVideo) -> Array:
    if source.pts is None:
        raise ValueError("a source without timestamps cannot be planned")
    return source.pts


def _check_gaps(source: SourceVideo, gaps: tuple[Gap, ...], policy: SourcePolicy) -> None:
    pts, timebase = times_of(source), source.timebase
    if gaps and policy.gaps == "fail":
        before = int(pts[pts < gaps[0].pts][-1])
        gap, at = float((gaps[0].pts - before) * timebase), float((before - int(pts[0])) * timebase)
        raise DamagedSourceError(
            f"{source.path} has {counted(len(gaps), 'gap')} of more than "
            f"{float(policy.max_gap_seconds):g} s in its timestamps, the first one of {gap:.3f} s, {at:.3f} s after "
            "the first frame; --gaps close moves the frames after a gap to earlier times, --gaps keep shows the frame "
            "before a gap until its end, --max-gap allows longer gaps",
            file=source.path,
        )
    if policy.gaps == "close" and len(gaps) > _MAX_CLOSED_GAPS:
        raise EncodeError(
            f"{source.path} has {len(gaps)} gaps in its timestamps, more than the {_MAX_CLOSED_GAPS} that can be "
            "closed; raise --max-gap, or remux it first",
            file=source.path,
        )


def grid_of(source: SourceVideo, pts: Array, rule: TickRule) -> FrameGrid:
    """The grid of the source's frames at `pts`. EncodeError for a video that would consist almost only of repeats."""
    try:
        return plan_grid(pts, source.end_pts, rule)
    except EncodeError as error:
        raise EncodeError(f"{source.path}: {error.message}", file=source.path) from None


def check_order(source: SourceVideo, decoded_pts: Array, rising: Array) -> None:
    """DamagedSourceError where times jump back by more than a second, as in recordings that were joined, or where a run
    of frames, or many of them, would be left out. `rising` is the `longest_rise` of the times."""
    latest = np.maximum.accumulate(decoded_pts)
    back = np.flatnonzero((latest - decoded_pts) * float(source.timebase) > _MAX_JUMP_BACK_SECONDS)
    if not len(back):
        # Matroska's demuxer gives no times before 0, and those that decoders guess are of other frames.
        begins_before_0 = source.pts is None and source.demuxer == "matroska" and not source.repeats_times
        back = _runs_left_out(decoded_pts, rising, 0 if begins_before_0 else _MOST_LEFT_OUT_TOGETHER)
        num_left_out = int(np.count_nonzero(~rising))
        if num_left_out > max(_MOST_LEFT_OUT_TOGETHER, len(rising) // _MOST_LEFT_OUT_PART):
            back = np.flatnonzero(np.diff(decoded_pts) <= 0)[:1] + 1
    if len(back):
        first = int(back[0])
        seconds, at = (
            float(int(span) * source.timebase)
            for span in (latest[first] - decoded_pts[first], latest[first] - decoded_pts[0])
        )
        raise DamagedSourceError(
            f"{source.path}: its timestamps jump back by {seconds:.3f} s, {at:.3f} s after the first frame, at frame "
            f"{first}: cut or remux it so that they rise, or give --salvage, with which each recording of a joined "
            "file continues after the one before",
            file=source.path,
        )


def _runs_left_out(decoded_pts: Array, rising: Array, span: int) -> Array:
    """Where times first jump back in a run of more than `span` frames that do not rise, which is too long for a
    decoder's mistake: the number of a frame, or none."""
    # Frames at the time of the one before are shown for no time, as at a cut that FFmpeg copied.
    moves_on = np.concatenate([[True], np.diff(decoded_pts) != 0]) | (span == 0)
    begins = np.flatnonzero(moves_on)
    left_out = np.flatnonzero(~np.logical_or.reduceat(rising, begins))
    runs = np.flatnonzero(left_out[span:] - left_out[: max(0, len(left_out) - span)] == span)
    falls = np.flatnonzero(np.diff(decoded_pts) <= 0) + 1
    return falls[:1] if len(runs) else runs


def with_decode_times(source: SourceVideo, packet_pts: Array) -> SourceVideo:
    """The source with its frames at the times of decoding, if its packets have no others: the pts of frames' packets,
    in the order of the decoder's output, fall more often than in the order of decoding."""
    shown = falls(packet_pts[packet_pts != NO_PTS].tolist())
    is_late = shown > source.pts_falls and shown * _FALLING_PART > len(packet_pts)
    if source.has_decode_times or source.has_hidden or not len(source.decode_times) or not is_late:
        return source
    return replace(with_pts(source, source.decode_times), has_decode_times=True, repeats_times=False)


def states_times(source: SourceVideo) -> bool:
    """Whether the packets of a source say when its frames are shown, as far as is known before it is decoded."""
    if source.pts is None or source.has_decode_times:
        return False
    return not may_be_copied(source.pts, source.timebase, source.rate_hints)


def at_times(source: SourceVideo, times: Array) -> SourceVideo:
    """The source with its frames at these times. The last one is shown for as long as edits say, or as its part of
    several rates."""
    has_end = source.in_pauses is not None or source.first_counted is not None
    is_last = has_end and source.pts is not None and times[-1] == source.pts[-1]
    return with_pts(source, times, source.end_pts - int(times[-1]) if is_last else 0)


def used_numbers(source: SourceVideo, used: range, num_decoded: int) -> Array:
    """The numbers of the frames to use of those in `used`, of the ones that the decoder puts out: int64, rising. Those
    in place of a pause and before a cut are left out; the decoder may leave out some of the first itself.
    DamagedSourceError where none is left."""
    left_out = 0 if source.pts is None or not source.cut.num_hidden else len(source.pts) - num_decoded
    numbers = np.arange(max(used.start, source.cut.num_hidden - left_out), used.stop)
    numbers = numbers if source.in_pauses is None else np.setdiff1d(numbers, source.in_pauses)
    if not len(numbers):
        raise DamagedSourceError(
            f"{source.path} is damaged: not one of the frames that its edits show is certain to decode as it was "
            "encoded; copy or download it again",
            file=source.path,
        )
    return numbers


def may_have_lost(source: SourceVideo, decoded_pts: Array) -> bool:
    """Whether the decoder did not put out some frame, other than frames before the first that it can decode."""
    is_counted = source.has_decode_times or (not source.pts_falls and len(decoded_pts) == source.num_packets)
    if source.pts is None or is_counted or len(np.setdiff1d(decoded_pts, source.pts)):
        # Times that are not those of packets can only be counted.
        return len(decoded_pts) < source.num_packets
    return len(np.setdiff1d(source.pts[source.pts > decoded_pts[0]], decoded_pts)) > 0
