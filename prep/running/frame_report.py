"""Parses the lines in STATS_FORMAT that ffmpeg writes for each frame: which source frame it shows."""

from __future__ import annotations

import io
from array import array
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...manifests.ragged import Array

# The number of the frame in the decoder's output, the pts of its packet in the source (missing where the container has
# none), and the pts with which the encoder gets the frame; each pts with its timebase.
STATS_FORMAT = "{ni} {ptsi} {tbi} {pts} {tb}"
NO_PTS = -(1 << 63)


@dataclass(frozen=True, eq=False)
class Shown:
    """The columns of STATS_FORMAT. Pts are int64 in the source's timebase; NO_PTS where there is none, or where it is
    not a whole number of units."""

    numbers: Array
    packet_pts: Array
    pts: Array


def parse_stats(stats: bytes, timebase: Fraction) -> Shown:
    """Parse lines in STATS_FORMAT; `timebase` is the source's."""
    scales: dict[bytes, tuple[int, int]] = {}

    def rescale(value: bytes, base: bytes) -> int:
        pts = int(value)
        if pts == NO_PTS:
            return NO_PTS
        if base not in scales:
            scales[base] = (Fraction(base.decode()) / timebase).as_integer_ratio()
        numerator, denominator = scales[base]
        exact, rest = divmod(pts * numerator, denominator)
        return NO_PTS if rest else exact

    numbers, packet_pts, shown_pts = array("q"), array("q"), array("q")
    # A film has hundreds of thousands of lines, and as Python objects they would take more memory than ffmpeg.
    for line in io.BytesIO(stats):
        number, packet, packet_base, shown, base = line.split()
        numbers.append(int(number))
        packet_pts.append(rescale(packet, packet_base))
        shown_pts.append(rescale(shown, base))
    return Shown(*(np.array(column, dtype=np.int64) for column in (numbers, packet_pts, shown_pts)))


def pts_by_number(decoded_pts: Array, numbers: Array) -> Array:
    """The pts of the decoded frames with these numbers; NO_PTS for a number that no decoded frame has."""
    known = (numbers >= 0) & (numbers < len(decoded_pts))
    return np.where(known, decoded_pts[np.where(known, numbers, 0)], NO_PTS)
