"""Short videos of which each is a unit of its own: a unit has 250 kB of sources at least."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from synthetic import constant_rate_pts, make_video

PADDED_FRAMES = 12
_PADDING_BYTES = 300_000


def make_padded(folder: Path, videos: int) -> Path:
    """Make so many of 480x320 at 30 frames/s; video v shows the numbers from 100 v on. Returns the folder."""
    for number in range(videos):
        path = folder / f"{number:02}.mp4"
        make_video(
            path, pts=constant_rate_pts(Fraction(30), PADDED_FRAMES), timebase=Fraction(1, 30), size=(480, 320),
            first_number=100 * number,
        )  # fmt: skip
        with path.open("ab") as file:
            file.write((_PADDING_BYTES + 8).to_bytes(4) + b"free" + bytes(_PADDING_BYTES))
    return folder
