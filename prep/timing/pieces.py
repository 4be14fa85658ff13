"""Several stretches of one source as pieces of one encode: a single run of ffmpeg decodes the source once for all.

The pieces follow one another in the run's output, each from a tick of its own on, and each starts with a GOP of its
own. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np

from ...manifests.ragged import Array
from .expressions import sum_of
from .grid import FrameGrid

# ffmpeg starts about as fast as it decodes this many frames. So a run does not end for a shorter way to the next
# stretch.
SKIPPED_FRAMES = 100


@dataclass(frozen=True, eq=False)
class Piece:
    """One piece of an encode: the source frames from `first_pts` to `last_pts`. `number` is the caller's. The piece
    begins at tick `first_tick` of its grid's rule; only the first piece of an encode may have another one than 0."""

    number: int
    grid: FrameGrid
    first_tick: int = 0

    @property
    def first_pts(self) -> int:
        return int(self.grid.source_pts[0])

    @property
    def last_pts(self) -> int:
        return int(self.grid.source_pts[-1])


@dataclass(frozen=True)
class Seek:
    """A frame of the source from which on everything decodes as it was encoded. ffmpeg starts reading there, at
    `seconds`. `frames_before`: how many frames the decoder may put out before the first frame of the run; one number
    for this frame, and one for each like it before."""

    seconds: Fraction
    frames_before: frozenset[int]


@dataclass(frozen=True)
class Run:
    """One run of ffmpeg: pieces whose times rise, and where it starts reading (None: at the source's start)."""

    pieces: tuple[Piece, ...]
    seek: Seek | None = None


def runs_of(pieces: Iterable[Piece], pts: Array, entries: Array, timebase: Fraction, lead_frames: int) -> list[Run]:
    """The runs of ffmpeg that encode the pieces of a source whose frames are at `pts`.

    `entries` are the pts of frames from which on everything decodes. Pieces that overlap are in different runs. A run
    ends where the next piece's entry lies well behind its last frame, so that frames between stretches are not decoded.
    So the runs of stretches that do not overlap decode each frame of the source at most once. Filters get at least
    `lead_frames` frames before the first one of a run.
    """
    chains: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda each: (each.first_pts, each.last_pts)):
        chain = next((chain for chain in chains if chain[-1].last_pts < piece.first_pts), None)
        if chain is None:
            chains.append([piece])
        else:
            chain.append(piece)
    runs = []
    for chain in chains:
        run: list[Piece] = []
        seek = None
        for piece in chain:
            done = int(np.searchsorted(pts, run[-1].last_pts)) + 1 if run else 0
            found = _seek(piece, pts, entries, timebase, lead_frames, done + SKIPPED_FRAMES)
            if found is not None:
                if run:
                    runs.append(Run(tuple(run), seek))
                run, seek = [], found
            run.append(piece)
        runs.append(Run(tuple(run), seek))
    return runs


def _seek(  # noqa: PLR0917  # the source's times, and the limits
    piece: Piece, pts: Array, entries: Array, timebase: Fraction, lead_frames: int, from_frame: int
) -> Seek | None:
    """Where to start reading for this piece; None if no entry lies between frame number `from_frame` and it."""
    first = int(np.searchsorted(pts, piece.first_pts))
    places = np.searchsorted(pts, entries[entries <= piece.first_pts])
    places = places[places <= first - lead_frames]
    if not len(places) or places[-1] < from_frame or pts[places[-1]] < 0:
        return None
    return Seek(int(pts[places[-1]]) * timebase, frozenset((first - places).tolist()))


def joined_grid(pieces: Sequence[Piece]) -> FrameGrid:
    """The grid of all pieces, one after the other."""
    grids = [piece.grid for piece in pieces]
    return FrameGrid(
        grids[0].rule,
        np.concatenate([grid.source_pts for grid in grids]),
        dropped=sum(grid.dropped for grid in grids),
        repeated=sum(grid.repeated for grid in grids),
    )


def keyframe_expression(lengths: Sequence[int], gop_frames: int) -> str:
    """ffmpeg's expression for the frames that start a GOP: each piece starts one."""
    starts = accumulate(lengths[:-1])
    begins = [f"gte(n,{start})*{length}" for start, length in zip(starts, lengths[:-1], strict=True)]
    number = f"n-({sum_of(begins)})" if begins else "n"
    return f"expr:eq(mod({number},{gop_frames}),0)"
