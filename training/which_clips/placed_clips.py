"""What policies that place clips have in common, checked: which frames a clip has, and what becomes of missing ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from ...arguments import exact_number, integer
from ...errors import UsageError
from .ends import PADDING, Ends, check_ends, checked_skip
from .offsets import Spacing, spacing

Align = Literal["reference"]
# Of a video. Those of a billion videos can then be counted with 64 bits.
MOST_CLIPS = 1 << 31


@dataclass(frozen=True)
class PlacedClips:
    """What a clip looks like, wherever it starts."""

    spaced: Spacing
    ends: Ends
    whole: bool
    align: Align | None
    jitter: Any
    skip: tuple[int, int] = dataclasses.field(default=(0, 0), repr=False)

    @property
    def pads(self) -> bool:
        """Whether clips may have frames that stand in for missing ones, so that items have a mask."""
        return self.ends in PADDING


def placed_clips(policy: Any) -> PlacedClips:
    """The fields that policies have in common, checked. UsageError for what makes no sense."""
    spaced = spacing(policy.num_frames, policy.stride, policy.fps)
    check_ends(policy.ends)
    if not policy.whole and policy.ends not in PADDING:
        raise UsageError(
            f"whole=False makes clips that reach beyond their videos, and ends={policy.ends!r} has nothing to put "
            f"there; ends can be {', '.join(PADDING)}"
        )
    if policy.align not in (None, "reference"):
        raise UsageError(f'align is {policy.align!r}; it can be "reference" or None')
    lowest = min(spaced.frames or spaced.seconds or (0,))
    if policy.align and lowest != 0:
        raise UsageError("align goes with clips whose earliest frame is the one where they start")
    if spaced.needs_rate:
        jitter: Any = exact_number(policy.jitter, "jitter")
    else:
        jitter = integer(policy.jitter, "jitter")
    if jitter < 0:
        raise UsageError(f"jitter is {policy.jitter}; it has to be 0 or more")
    return PlacedClips(spaced, policy.ends, bool(policy.whole), policy.align, jitter, checked_skip(policy))
