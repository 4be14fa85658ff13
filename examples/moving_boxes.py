"""A dataset for the examples: small videos in which sharp-edged boxes of many colours turn and move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import small_videos

SIDE, FRAMES, BOXES = 128, 32, 12  # pixels, frames, boxes


def make_dataset(folder: Path, count: int, seed: int = 0) -> Path:
    """Write `count` videos and prepare them. Returns the dataset's folder."""
    rng = np.random.default_rng(seed)
    return small_videos.make_dataset(folder, ((pictures(rng), {}) for _ in range(count)))


def pictures(rng: np.random.Generator) -> Iterator[small_videos.Picture]:
    """Boxes that turn, and move by up to 4 pixels from frame to frame; their edges are one pixel wide."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    ground, colors = rng.uniform(0, 255, 3), rng.uniform(0, 255, (BOXES, 3))
    places, steps = rng.uniform(0, SIDE, (BOXES, 2)), rng.uniform(-4, 4, (BOXES, 2))
    halves = rng.uniform(4, 20, (BOXES, 2))
    angles, turns = rng.uniform(0, np.pi, BOXES), rng.uniform(-0.2, 0.2, BOXES)
    for _ in range(FRAMES):
        picture = np.broadcast_to(ground, (SIDE, SIDE, 3))
        for (y, x), (half_height, half_width), angle, color in zip(places, halves, angles, colors, strict=True):
            across = (columns - x) * np.cos(angle) + (rows - y) * np.sin(angle)
            along = (rows - y) * np.cos(angle) - (columns - x) * np.sin(angle)
            inside = np.minimum(half_width - abs(across), half_height - abs(along))
            covered = np.clip(inside + 0.5, 0, 1)[:, :, None]
            picture = picture * (1 - covered) + color * covered
        yield picture.round().astype(np.uint8)
        places, angles = (places + steps) % SIDE, angles + turns
