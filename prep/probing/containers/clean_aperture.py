"""The clean aperture of an MP4 or QuickTime track: the part of its pictures that players show."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import NamedTuple

from .sample_entry import sample_entry_boxes

# ISO/IEC 14496-12, 12.1.4.
_CLAP = struct.Struct(">IIIIiIiI")


class Aperture(NamedTuple):
    """Width and height in pixels; `right` and `down` are the distance of its centre from the centre of the picture."""

    width: int
    height: int
    right: Fraction
    down: Fraction


def clean_aperture(path: str, track_id: int) -> Aperture | None:
    """The clean aperture in the first sample entry of the track, or None."""
    clap = sample_entry_boxes(path, track_id).get(b"clap", b"")
    if len(clap) < _CLAP.size:
        return None
    width, width_unit, height, height_unit, right, right_unit, down, down_unit = _CLAP.unpack_from(clap)
    if not (width_unit and height_unit and right_unit and down_unit):
        return None
    sides = (width // width_unit, height // height_unit)
    return Aperture(*sides, Fraction(right, right_unit), Fraction(down, down_unit)) if all(sides) else None
