"""ffmpeg's filters that put each source frame at its tick, and repeat it until the next one's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from ..kept_frames.joins import Join
from .expressions import sum_of
from .grid import TickRule
from .pieces import Piece


@dataclass(frozen=True)
class _Clock:
    """Time as these filters count it: so many `parts` are a unit of the source's timebase.

    A tick lasts four parts or more, so that rounding to whole parts, and the one that is added, cannot move a frame to
    another tick. The end of the stream, which `fps` rounds up, comes to the next tick by that part: at the tick of a
    last frame that is shorter than a tick, `fps` would drop that frame.
    """

    rule: TickRule
    parts: int

    @staticmethod
    def of(rule: TickRule) -> _Clock:
        return _Clock(rule, max(1, math.ceil(4 * rule.timebase * rule.fps)))

    def settb(self) -> str:
        """The filter that counts time so from here on. Earlier filters may have changed the timebase: bwdif halves
        it."""
        unit = self.rule.timebase / self.parts
        return f"settb={unit.numerator}/{unit.denominator}"

    def tick(self, span: str) -> str:
        """The tick of a frame that comes so many parts after the first one, see `TickRule.terms`."""
        a, b, c = self.rule.terms
        return f"max(1,ceil(({span}*{a}-{b * self.parts})/{c * self.parts}))"

    def setpts(self, tick: str, *, first: str = "") -> str:
        """The filter that puts each frame at this tick; `first` is evaluated before."""
        length = self.parts / (self.rule.fps * self.rule.timebase)
        return f"setpts='{first}round({tick}*{length.numerator}/{length.denominator})+1'"


def time_filters(
    rule: TickRule, num_frames: int, joins: tuple[Join, ...] = (), steps: tuple[Join, ...] | None = None
) -> list[str]:
    """Filters that put each source frame at its tick, up to `num_frames`: by its time, after `joins` have moved it, or
    with `steps` by its number."""
    clock = _Clock.of(rule)
    if steps is not None:
        first, tick = "", f"N+{sum_of(_move(step, 1) for step in steps)}"
    else:
        moves = _moves(clock, joins)
        pts, first = ("ld(0)", f"st(0,PTS+{sum_of(moves)});") if moves else ("PTS", "")
        origin = rule.origin_pts * clock.parts
        closed = sum_of(f"gte({pts},{gap.pts * clock.parts})*{gap.units * clock.parts}" for gap in rule.closed)
        tick = f"if(lte({pts},{origin}),0,{clock.tick(f'({pts}-({origin})-({closed}))')})"
    # setpts moves the end of the stream as well, and before anything else runs, fps repeats the last frame until there:
    # a damaged timestamp at the end made that millions of frames in memory.
    return [clock.settb(), clock.setpts(f"min({num_frames},{tick})", first=first)]


def piece_filters(pieces: Sequence[Piece], joins: tuple[Join, ...] = ()) -> list[str]:
    """Filters that keep only the frames of the pieces, and put each at its tick.

    The same as `time_filters` for each piece, with the origin and the first tick of the piece that a frame belongs to.
    """
    clock = _Clock.of(pieces[0].grid.rule)
    parts = clock.parts
    # What is subtracted from a frame's time, the origin of its piece and the gaps closed in it, changes at these pts.
    subtracted, changes = 0, []
    for piece in pieces:
        changes.append((piece.first_pts, piece.grid.rule.origin_pts - subtracted))
        gaps = piece.grid.rule.closed
        changes += [(gap.pts, gap.units) for gap in gaps]
        subtracted = piece.grid.rule.origin_pts + sum(gap.units for gap in gaps)
    begins = sum_of(
        [f"({changes[0][1] * parts})", *(f"gte(PTS,{pts * parts})*({units * parts})" for pts, units in changes[1:])]
    )
    base = sum_of(f"gte(PTS,{piece.first_pts * parts})*{len(before.grid)}" for before, piece in pairwise(pieces))
    tick = f"if(lte(ld(0),0),0,{clock.tick('ld(0)')})"
    if pieces[0].first_tick:
        # The first frame may be shown since an earlier tick.
        tick = f"max(0,{tick}-{pieces[0].first_tick})"
    wanted = sum_of(f"between(pts,{piece.first_pts * parts},{piece.last_pts * parts})" for piece in pieces)
    moves = _moves(clock, joins)
    return [
        clock.settb(),
        *([f"setpts='PTS+{sum_of(moves)}'"] if moves else []),
        # Ends the input behind the last piece.
        f"trim=end_pts={pieces[-1].last_pts * parts + 1}",
        f"select='{wanted}'",
        clock.setpts(f"(({base})+{tick})", first=f"st(0,PTS-({begins}));"),
    ]


def repeat_filters(fps: Fraction) -> list[str]:
    """Filters that repeat each frame until the next frame's tick, and the last one for ever; of several frames at one
    tick the last is taken."""
    return [
        # The pts are those of whole ticks already. `pass` rounds the end of the stream up, see `_Clock`.
        f"fps={fps.numerator}/{fps.denominator}:round=near:eof_action=pass",
        # The duration of the last frame is a guess of the demuxer; -frames:v ends the output at the planned frame.
        "tpad=stop=-1:stop_mode=clone",
    ]


def _moves(clock: _Clock, joins: Sequence[Join]) -> list[str]:
    return [_move(join, clock.parts) for join in joins]


def _move(join: Join, parts: int) -> str:
    """By how much a join moves a frame, of which a unit has so many parts."""
    frames = f"gte(N,{join.frame})" if join.count == 1 else f"clip(N-({join.frame - 1}),0,{join.count})"
    return f"{frames}*({join.units * parts})"
