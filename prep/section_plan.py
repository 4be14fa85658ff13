"""Cutting a long video into sections, each a run of its segments that is encoded by itself: where to cut.

The cuts depend on the source and the profile alone, not on the machines: the encoder starts anew with each section, so
other cuts would give other bytes. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..manifests.ragged import Array
from .profile import Size

# How many seconds of one core's work a section takes, about. Shorter ones would cost more in starts and seeks, longer
# ones would keep a cluster waiting for the last.
SECTION_SECONDS = 60.0
# Seconds of one core for a pixel, measured with H.264 in 1080p: decoding 1.4 ns, x264 as prep runs it 12 to 16 ns.
_DECODE_SECONDS, _ENCODE_SECONDS = 1.4e-9, 14e-9
# A cut may lie this part of a section away from its even place, and the frames that a section decodes before its first
# one may be this part of its frames.
_MOST_MOVED = Fraction(1, 4)
_MOST_LEAD = Fraction(1, 10)

NO_ENTRY = np.iinfo(np.int64).max


def expected_seconds(source_frames: int, source_pixels: int, frames: int, pixels: int) -> float:
    """How long one core takes, about, to decode `source_frames` of `source_pixels` each, and to encode `frames` of
    `pixels` each."""
    return source_frames * source_pixels * _DECODE_SECONDS + frames * pixels * _ENCODE_SECONDS


def expected_pixels(width: int, height: int, size: Size) -> int:
    """About how many pixels a frame of the video has, from the size of the source's pictures."""
    if size.exact:
        return min(width * height, size.exact[0] * size.exact[1])
    scale = min(Fraction(1), Fraction(size.short_side or min(width, height), max(1, min(width, height))))
    return int(width * height * scale * scale)


def lead_frames(starts: Array, pts: Array, entries: Array, least: int) -> Array:
    """How many frames have to be decoded before each of the frames at the pts `starts`, at least `least`: int64.

    `pts` are those of all frames, `entries` those of frames at which decoding may start. NO_ENTRY where there is none.
    """
    first = np.searchsorted(pts, starts)
    places = np.searchsorted(pts, entries[entries >= 0])
    entry = np.searchsorted(places, first - least, side="right") - 1
    if not len(places):
        return np.full(len(starts), NO_ENTRY)
    return np.where(entry >= 0, first - places[np.maximum(entry, 0)], NO_ENTRY)


def section_starts(leads: Sequence[int], frames: int, sections: int) -> list[int]:
    """The numbers of the segments with which sections begin, the first one 0.

    `leads` has for each segment of the video how many of the source's `frames` are decoded for nothing if a section
    begins there. There is no cut where these are more than a tenth of a section. Of the other segments near an even cut
    the one is taken for which these and those by which it is away from the even cut are the fewest: what waits for a
    video waits for its longest section.
    """
    segments = len(leads)
    most_lead = frames / max(1, sections) * _MOST_LEAD
    length = segments / max(1, sections)
    window = int(length * _MOST_MOVED)
    starts = [0]
    for number in range(1, sections):
        even = round(number * length)
        near = range(max(starts[-1] + 1, even - window), min(segments - 1, even + window) + 1)
        fit = (segment for segment in near if leads[segment] <= most_lead)
        # In frames times segments, so that it is exact.
        best = min(fit, key=lambda segment: leads[segment] * segments + abs(segment - even) * frames, default=None)
        if best is not None:
            starts.append(best)
    return starts
