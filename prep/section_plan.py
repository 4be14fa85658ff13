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
# Peaks of memory, measured with H.264 and x264: 145 MB at 456x256, 370 MB at 1080p and 1.1 GB at 4K where the size
# stays, less than 500 MB from 4K to 256 lines. These give about 1.4 times as much, and Ray's own part of a worker.
_WORKER_BYTES, _SOURCE_BYTES, _ENCODE_BYTES = 250e6, 65, 90
# A cut may lie this part of a section away from its even place, and the frames that a section decodes before its first
# one may be this part of its frames.
_MOST_MOVED = Fraction(1, 4)
_MOST_LEAD = Fraction(1, 10)

NO_ENTRY = np.iinfo(np.int64).max


def expected_seconds(source_frames: int, source_pixels: int, frames: int, pixels: int) -> float:
    """How long one core takes, about, to decode `source_frames` of `source_pixels` each, and to encode `frames` of
    `pixels` each."""
    return source_frames * source_pixels * _DECODE_SECONDS + frames * pixels * _ENCODE_SECONDS


def expected_memory_bytes(source_pixels: int, pixels: int) -> int:
    """How much memory the processes need that encode pictures of `source_pixels` as ones of `pixels`: the worker, which
    decodes a few of them, and ffmpeg with one thread."""
    return int(_WORKER_BYTES + source_pixels * _SOURCE_BYTES + pixels * _ENCODE_BYTES)


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
    begins there. Of the segments near an even cut the one with the fewest is taken. There is no cut where these are
    more than a tenth of a section.
    """
    segments = len(leads)
    length = segments / max(1, sections)
    window = int(length * _MOST_MOVED)
    starts = [0]
    for number in range(1, sections):
        even = round(number * length)
        near = range(max(starts[-1] + 1, even - window), min(segments - 1, even + window) + 1)
        best = min(near, key=lambda segment: (leads[segment], abs(segment - even), segment), default=None)
        if best is not None and leads[best] <= frames / sections * _MOST_LEAD:
            starts.append(best)
    return starts
