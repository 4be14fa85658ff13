"""Which GOPs a request needs, which samples of each, and where the frames go: pure functions of the manifest's rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from ..manifests.ragged import Array
from ..manifests.video import Pattern, VideoRow


@dataclass(frozen=True)
class GopPlan:
    """What to decode of one GOP.

    `gop` and `segment` are rows of their tables, `video` is an id, and `first_frame` the number in that video of the
    GOP's first frame. Frame `frames[i]` of the GOP (0 is the first it shows; ascending, each once) goes to row
    `rows[i]` of the output.
    """

    gop: int
    segment: int
    video: str
    first_frame: int
    frames: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True)
class DecodePlan:
    """GOPs in ascending order, and frames asked for more than once: (row to fill, row that holds the frame)."""

    gops: tuple[GopPlan, ...]
    repeats: tuple[tuple[int, int], ...]


def plan_frames(video: VideoRow, frames: Array) -> DecodePlan:
    """Plan frames of one video into an output with one row for each, in the order asked for.

    `frames` is int64, 1-D, each from 0 to `video.num_frames - 1`.
    """
    # Loops, since requests are short and every frame costs a thousand times as much to decode as to plan.
    row_of: dict[int, int] = {}
    repeats = []
    for row, frame in enumerate(frames.tolist()):
        decoded = row_of.setdefault(frame, row)
        if decoded != row:
            repeats.append((row, decoded))
    gops = []
    for number, in_gop in groupby(sorted(row_of), key=lambda frame: frame // video.gop_frames):
        wanted = tuple(in_gop)
        first_frame = number * video.gop_frames
        gops.append(
            GopPlan(
                gop=video.first_gop + number,
                segment=video.first_segment + number // video.segment_gops,
                video=video.id,
                first_frame=first_frame,
                frames=tuple(frame - first_frame for frame in wanted),
                rows=tuple(row_of[frame] for frame in wanted),
            )
        )
    return DecodePlan(tuple(gops), tuple(repeats))


def needed_samples(pattern: Pattern, frames: Iterable[int]) -> tuple[int, ...]:
    """The samples of a GOP, as numbers in decode order, that must be decoded to get these frames of it.

    That is every sample that others refer to, up to the last one wanted, and of the others the wanted ones.
    """
    wanted = set(frames)
    shown = pattern.frames
    last = max((sample for sample, frame in enumerate(shown) if frame in wanted), default=-1)
    return tuple(sample for sample in range(last + 1) if pattern.referenced[sample] or shown[sample] in wanted)


@lru_cache(maxsize=256)
def reorder_depth(pattern: Pattern) -> int:
    """How many frames a decoder must hold back so that they come out in the order in which they are shown.

    For each frame, those decoded before it and shown after it; the largest of these numbers.
    """
    shown = pattern.frames
    return max((sum(before > frame for before in shown[:sample]) for sample, frame in enumerate(shown)), default=0)
