"""Sources that do not share a unit, so that a job over them has several steps."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from synthetic import constant_rate_pts, make_video


def make_own_units(folder: Path, count: int, frames: int = 60) -> Path:
    """Make so many videos of some hundred kilobytes in a new folder. Video i shows numbers from 1000 i on."""
    folder.mkdir()
    for number in range(count):
        make_video(
            folder / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), frames), timebase=Fraction(1, 30),
            size=(320, 256), first_number=1000 * number, options={"qp": "1", "preset": "ultrafast"},
        )  # fmt: skip
    return folder
