"""What a clip shows where its video has no frame: before the first, or behind the last."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from ...arguments import integer
from ...errors import UsageError
from ...manifests.ragged import Array

Ends = Literal["error", "drop", "repeat_last", "clamp", "wrap_clip", "loop_video", "black"]
"""What is done with frames that a clip calls for and its video does not have. For 5 frames at stride 2, from frame 4
of a video of 8 frames, 0 to 7:

    repeat_last   4 6 6 6 6   the clip's last frame that exists; before the video's start, its first one (TorchCodec)
    clamp         4 6 7 7 7   the video's last frame, or its first one (LeRobot)
    wrap_clip     4 6 4 6 4   back to the clip's start (TorchCodec's "wrap")
    loop_video    4 6 0 2 4   back to the video's start (mmaction2's "loop")
    black         4 6 - - -   black pictures
    error                     a dataset with such a clip is refused when it is made
    drop                      there is no such clip; a video too short for any is left out

All but the last two come with a mask: True where the frame is the one that was called for.
"""

PADDING = ("repeat_last", "clamp", "wrap_clip", "loop_video", "black")


def check_ends(ends: Any) -> None:
    """UsageError for anything but one of the rules."""
    if ends not in get_args(Ends):
        raise UsageError(f"ends is {ends!r}; it can be {', '.join(get_args(Ends))}")


def checked_skip(policy: Any) -> tuple[int, int]:
    """At how many frames of a video no clip of a policy starts: the first ones, and the last. UsageError where that
    makes no sense."""
    try:
        first, last = getattr(policy, "skip", (0, 0))
    except (TypeError, ValueError):
        raise UsageError(f"skip is {policy.skip!r}; it is (frames at the start, frames at the end)") from None
    skip = integer(first, "skip"), integer(last, "skip")
    if min(skip) < 0:
        raise UsageError(f"skip is {policy.skip!r}; both are 0 or more")
    if skip != (0, 0) and (policy.whole or policy.align):
        raise UsageError("skip says at which frames no clip starts, and goes with whole=False, without align")
    return skip


def frames_within(wanted: Array, num_frames: int, ends: str) -> tuple[Array, Array]:
    """Frames that the video has in place of those that are `wanted`, and which of them are the wanted ones.

    Both are (frames,): int64 and bool. Under `black` the frame in place of a missing one is the nearest, to be painted
    over. UsageError where frames are missing and no rule replaces them.
    """
    there = (wanted >= 0) & (wanted < num_frames)
    if there.all():
        return wanted, there
    if ends not in PADDING:
        raise UsageError(
            f"a clip calls for frames {wanted.tolist()} of a video of {num_frames} frames; give ends= a rule that "
            'pads, such as "repeat_last"'
        )
    if ends == "loop_video":
        return wanted % num_frames, there
    if ends in ("repeat_last", "wrap_clip") and there.any():
        kept, places = np.flatnonzero(there), np.arange(len(wanted))
        if ends == "wrap_clip":
            others = kept[(places - kept[0]) % len(kept)]
        else:
            others = kept[np.maximum(np.searchsorted(kept, places, side="right") - 1, 0)]
        return np.where(there, wanted, wanted[others]), there
    return wanted.clip(0, num_frames - 1), there
