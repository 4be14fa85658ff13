"""A dataset for the examples: small videos in which a dot circles clockwise or counterclockwise.

A single frame does not show the direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import small_videos

SIDE, FRAMES = 64, 64  # pixels, frames


def make_dataset(folder: Path, count: int, seed: int = 0) -> Path:
    """Write `count` videos and a source list with their labels, and prepare them. Returns the dataset's folder."""
    rng = np.random.default_rng(seed)

    def videos() -> Iterator[tuple[Iterator[small_videos.Picture], dict[str, Any]]]:
        for number in range(count):
            clockwise = number % 2
            circling = pictures(clockwise=bool(clockwise), phase=rng.uniform(0, 2 * np.pi), radius=rng.uniform(14, 22))
            yield circling, {"label": clockwise}

    return small_videos.make_dataset(folder, videos())


def pictures(*, clockwise: bool, phase: float, radius: float) -> Iterator[small_videos.Picture]:
    """A white dot on a dark ground, with one turn in 16 frames."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    for index in range(FRAMES):
        angle = phase + (1 if clockwise else -1) * index * 2 * np.pi / 16
        y, x = SIDE / 2 + radius * np.sin(angle), SIDE / 2 + radius * np.cos(angle)
        dot = (rows - y) ** 2 + (columns - x) ** 2 < 36
        yield np.where(dot[:, :, None], 230, 30).astype(np.uint8).repeat(3, axis=2)
