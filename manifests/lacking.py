"""Which videos lack many frames of their sources, the end of them, or their rate. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .tables import Manifest

# A rate that was chosen for a source leaves out at most one frame in a hundred, and frames that nearly coincide.
_FEW = 50
_SHOWN = 10

CUT_OFF = "cut off at its end"
"""In `given_up` of a video whose source ends before the end that it states."""

GUESSED_RATE = "no rate is stated: taken as 25 frames/s"
"""In `given_up` of a video whose source says neither when its frames are shown nor how many there are in a second."""


@dataclass(frozen=True)
class Lacking:
    """How many `videos` lack many frames. `shown` has the id of some of them, and how many frames are left out."""

    videos: int = 0
    shown: tuple[tuple[str, int], ...] = ()


NONE_LACK_FRAMES = Lacking()


def lacking_frames(manifest: Manifest) -> Lacking:
    """The videos that lack more than one frame of their sources, and more than one in fifty. Call this only for a
    dataset whose videos have the rates of their sources: another rate leaves out frames on purpose."""
    videos = manifest.videos
    # -1 where that is unknown.
    dropped = videos.dropped.astype(np.int64)
    rows = np.flatnonzero((dropped > 1) & (dropped * _FEW > videos.num_frames + dropped))
    return Lacking(len(rows), tuple((videos.id.text(row), int(dropped[row])) for row in rows[:_SHOWN].tolist()))


def cut_off(manifest: Manifest) -> tuple[str, ...]:
    """The ids of the videos whose sources end before the end that they state."""
    return _with_text(manifest, CUT_OFF)


def guessed_rates(manifest: Manifest) -> tuple[str, ...]:
    """The ids of the videos whose sources have neither times nor a rate."""
    return _with_text(manifest, GUESSED_RATE)


def _with_text(manifest: Manifest, text: str) -> tuple[str, ...]:
    """The ids of the videos that have this text in `given_up`."""
    texts = manifest.videos.given_up
    # All texts at once, and no copy of them: few have it, and a dataset may have a million.
    places = [match.start() for match in re.finditer(text.encode(), texts.values.data)]
    rows = np.searchsorted(texts.offsets, places, side="right") - 1
    return tuple(manifest.videos.id.text(row) for row in rows.tolist())
