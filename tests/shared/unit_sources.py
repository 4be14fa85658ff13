"""Sources for tests that interrupt jobs: each is a unit of its own."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from synthetic import constant_rate_pts, make_video


def make_unit_sources(folder: Path, count: int, frames: int) -> Path:
    """Write so many videos of half a megabyte, so that no two share a unit. Video v shows the
    numbers from 1000 * v on. Returns the folder."""
    for number in range(count):
        make_video(
            folder / f"{number}.mp4",
            pts=constant_rate_pts(Fraction(30), frames),
            timebase=Fraction(1, 30),
            size=(320, 256),
            first_number=1000 * number,
            options={"qp": "1", "preset": "ultrafast"},
        )
    return folder
