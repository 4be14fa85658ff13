"""Puts right the times that FFmpeg gives to frames, where they are known to be wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import EncodeError
from ...manifests.ragged import Array
from ..probing.containers.edit_list import WITHOUT_EDITS_REMEDY
from ..probing.source_video import SourceVideo
from .rising_times import spaced, spaced_to_end

# Parsers count the times of at most about so many frames wrongly before they get the next stated one.
_MOST_COUNTED_WRONGLY = 32
# Demuxers of streams that may state the times of some frames only.
STATES_SOME_TIMES = ("mpeg", "mpegts")
# Frames that follow one another within such a part of an interval were not recorded so.
CROWDED_PART = 8
# So many frames of a constant rate follow one another at about its interval where a parser counted others wrongly.
_LEAST_REGULAR_PART = 0.5
# So many of the frames of a constant rate follow one another at its interval: some may be missing.
_EVEN_PART = 0.9
_ALL = slice(0, None)


def mended_times(
    source: SourceVideo, decoded_pts: Array, used: Array | slice = _ALL, *, is_damaged: bool = False
) -> Array:
    """The times of the frames in `used`, of those in the order of the decoder's output, int64, (frames,): FFmpeg's own,
    `decoded_pts`, except where they are known to be wrong. Of a damaged source the decoder may leave out any frame."""
    decoded = _Decoded(source, decoded_pts, used, is_damaged=is_damaged)
    return next(times for rule in _RULES if (times := rule(decoded)) is not None)


@dataclass(frozen=True, eq=False)
class _Decoded:
    """The frames of a source in the order of the decoder's output. `all_pts`: FFmpeg's times of all of them. `used`:
    which of them are wanted."""

    source: SourceVideo
    all_pts: Array
    used: Array | slice
    is_damaged: bool

    @property
    def pts(self) -> Array:
        """FFmpeg's times of those that are wanted."""
        return self.all_pts[self.used]

    @property
    def num_left_out(self) -> int:
        """How many frames that have packets the decoder left out; less than 0 where it put out more."""
        return 0 if self.source.pts is None else len(self.source.pts) - len(self.all_pts)


# Each rule returns the times, or None where it does not apply; the first that applies counts.


def _of_several_rates(decoded: _Decoded) -> Array | None:
    """The frames of a raw stream are counted by the rates that it states, without those before its first keyframe, or
    those that are cut off at its end. EncodeError where others are missing."""
    source, left_out = decoded.source, decoded.num_left_out
    if source.pts is None or source.first_counted is None:
        return None
    before = source.first_counted
    if left_out == before or (left_out > 0 == before and not decoded.is_damaged):
        return source.pts[before:][decoded.used]
    raise EncodeError(
        f"{source.path} is damaged, and its headers state several rates, so it is not known when its frames are shown; "
        "cut it where the rate changes (`head -c`, `tail -c`), and give each part",
        file=source.path,
    )


def _of_bursts(decoded: _Decoded) -> Array | None:
    """Frames that arrived several at once have the even times that probe found for them."""
    source = decoded.source
    if not source.has_bursts or source.pts is None or not np.isin(decoded.pts, source.arrivals).all():
        return None
    times = source.pts[np.searchsorted(source.arrivals, decoded.pts)]
    return times if (np.diff(times) > 0).all() else None


def _of_several_edits(decoded: _Decoded) -> Array | None:
    """FFmpeg does not see how several edits move frames, and probe does. EncodeError where frames are not those."""
    source = decoded.source
    if source.in_pauses is None:
        return None
    if source.pts is not None and len(decoded.pts) == len(source.pts):
        return source.pts
    raise EncodeError(
        f"{source.path} has several edits, and FFmpeg decodes more frames of it than they show, or fewer; "
        f"{WITHOUT_EDITS_REMEDY}",
        file=source.path,
    )


def _of_decoding(decoded: _Decoded) -> Array | None:
    """Where packets have the times of decoding, frames are shown as evenly as they are decoded. The decoder leaves out
    those that are shown before the first."""
    source, left_out = decoded.source, decoded.num_left_out
    if source.pts is None or not source.has_decode_times:
        return None
    are_first = left_out > 0 and not decoded.is_damaged and not len(source.not_coded)
    if left_out and not are_first:
        return None
    return _apart(_begun_evenly(source.pts[left_out:]))[decoded.used]


def _estimated(decoded: _Decoded) -> Array | None:
    """The times that a decoding of the whole source has given, if it put out these frames."""
    source = decoded.source
    is_same = len(source.estimated_times) == len(decoded.all_pts) and not decoded.is_damaged
    return source.estimated_times[decoded.used] if is_same else None


def _counted_by_parser(decoded: _Decoded) -> Array | None:
    """Streams that state the times of some frames only: parsers count the others, wrongly around B-frames."""
    source = decoded.source
    if source.pts is not None or source.demuxer not in STATES_SOME_TIMES:
        return None
    # Of a file that is only cut, the frames behind the used ones tell of times that were counted wrongly.
    times = evened(decoded.pts) if decoded.is_damaged else evened(decoded.all_pts)[decoded.used]
    return spaced_to_end(times) if source.repeats_times and not source.is_joined else times


def _of_packets(decoded: _Decoded) -> Array | None:
    """Where pts rise in the order of decoding although frames are shown in another one, they are times of decoding,
    which FFmpeg gives to the wrong frames."""
    source = decoded.source
    if source.pts is None or source.pts_falls or decoded.num_left_out:
        return None
    return source.pts[decoded.used]


def _of_coded(decoded: _Decoded) -> Array | None:
    """FFmpeg gives the time of what is not coded to a frame near it."""
    source = decoded.source
    if source.pts is None or not len(source.not_coded):
        return None
    coded = np.setdiff1d(source.pts, source.not_coded)
    return coded if len(coded) == len(decoded.pts) else decoded.pts


def _of_ffmpeg(decoded: _Decoded) -> Array:
    """FFmpeg's own times, without those that came twice, or directly behind the one before, as it copied packets."""
    source = decoded.source
    times = spaced_to_end(decoded.pts) if source.repeats_times and not source.is_joined else decoded.pts
    return _apart(times) if len(source.decode_times) else times


_RULES = (
    _of_several_rates,
    _of_bursts,
    _of_several_edits,
    _of_decoding,
    _estimated,
    _counted_by_parser,
    _of_packets,
    _of_coded,
    _of_ffmpeg,
)


def _begun_evenly(times: Array) -> Array:
    """The times with those of the first frames put right that follow one another at once: FFmpeg gives packets that it
    copies the next times that are possible where theirs would lie before the start of a file."""
    steps = np.diff(times)
    interval = int(np.median(steps)) if len(steps) else 0
    crowded = int(np.argmin(steps * CROWDED_PART < interval)) if len(steps) else 0
    if not 0 < crowded <= _MOST_COUNTED_WRONGLY or crowded + 1 >= len(times):
        return times
    found = times.copy()
    found[: crowded + 1] = times[crowded + 1] - interval * np.arange(crowded + 1, 0, -1)
    return found if _are_even(found, interval) else times


def _apart(times: Array) -> Array:
    """The times with those evenly spaced that follow one another at once, where there is room: FFmpeg puts a packet
    whose time of decoding would not rise directly behind the one before."""
    steps = np.diff(times)
    mean = float(times[-1] - times[0]) / max(1, len(steps))
    is_close = np.concatenate([[False], (steps > 0) & (steps * CROWDED_PART < mean)])
    if not is_close.any():
        return times
    together = times[np.maximum.accumulate(np.where(is_close, 0, np.arange(len(times))))]
    found = spaced(together)
    found = evened(np.where(found == together, times, found))
    return found if _are_even(found, float(np.median(steps[~is_close[1:]]))) else times


def _are_even(times: Array, interval: float) -> bool:
    """Whether nearly all frames follow one another at this interval. Those of a variable rate may well follow one
    another at once, as where a screen moves after a pause."""
    return bool(np.mean(np.abs(np.diff(times) - interval) <= interval / 4) >= _EVEN_PART)


def evened(times: Array) -> Array:
    """The times of frames in the order of the decoder's output, with those put right that were counted wrongly.

    Streams may state the time of only some frames; parsers count the others, wrongly around B-frames. Where such times
    lie closer together than half an interval, or fall, and as many frames as fit lie between two whose times are right,
    these are evenly spaced. `times`: int64, (frames,).
    """
    interval = float(np.median(np.diff(times))) if len(times) > 2 else 0.0
    steps = np.diff(times)
    wrong = np.flatnonzero(steps < interval / 2)
    # Of a variable rate, many frames may lie as if evenly spaced between two that do.
    is_constant = np.mean(np.abs(steps - interval) <= interval / 4) >= _LEAST_REGULAR_PART if len(steps) else False
    if interval <= 0 or not len(wrong) or not is_constant:
        return times
    regular = np.abs(steps - interval) <= 1
    # The first and the last frame have nothing to be compared with on one side.
    right = np.flatnonzero(np.concatenate([[True], regular]) | np.concatenate([regular, [True]]))
    found = times.copy()
    for place in wrong.tolist():
        middle = int(np.searchsorted(right, place, side="right"))
        befores = right[max(0, middle - _MOST_COUNTED_WRONGLY) : middle][::-1]
        counts = right[middle : middle + _MOST_COUNTED_WRONGLY] - befores[:, None]
        spans = times[right[middle : middle + _MOST_COUNTED_WRONGLY]] - times[befores][:, None]
        # Each of them may be rounded, but not so that there is room for one more.
        fits = np.argwhere(np.abs(spans - counts * interval) <= np.minimum(counts, interval / 4))
        if len(fits):
            # The fewest frames are moved.
            shortest = tuple(fits[np.argmin(counts[tuple(fits.T)])])
            before, count, span = int(befores[shortest[0]]), int(counts[shortest]), int(spans[shortest])
            found[before : before + count] = times[before] + np.arange(count) * span // count
    return found
