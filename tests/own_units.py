"""Sources that do not share a unit, so that a job over them has several steps."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from synthetic import constant_rate_pts, make_video


def make_sources(folder: Path, count: int) -> Path:
    """Make so many videos of two seconds and some hundred kilobytes in a new folder."""
    folder.mkdir()
    for number in range(count):
        make_video(
            folder / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), 60), timebase=Fraction(1, 30),
            size=(320, 256), first_number=100 * number, options={"qp": "1", "preset": "ultrafast"},
        )  # fmt: skip
    return folder
