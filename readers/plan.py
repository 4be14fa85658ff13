"""Plans as pure functions: which GOPs a request needs, which samples of each, where frames go, what is read at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..errors import FrameIndexError
from ..manifests.ragged import Array
from ..manifests.records import Pattern
from ..manifests.tables import Manifest


@dataclass(frozen=True, eq=False)
class VideoGops:
    """How the videos of a dataset are divided into GOPs and segments: each array has an entry for each video."""

    num_frames: Array
    gop_frames: Array
    segment_gops: Array
    first_gops: Array
    first_segments: Array

    @staticmethod
    def of(manifest: Manifest) -> VideoGops:
        videos = manifest.videos
        return VideoGops(
            videos.num_frames, videos.gop_frames, videos.segment_gops, manifest.first_gops, manifest.first_segments
        )


@dataclass(frozen=True)
class OutputFrames:
    """Which frames an output has of each clip, and with which geometry.

    `positions` are places in the list of a clip's frames, the same for every clip; None stands for all. `geometries[i]`
    is the number of the geometry of clip i; None stands for 0, for every clip. `rows[i]` is the row of the output that
    clip i goes to; None stands for i.
    """

    positions: Sequence[int] | None = None
    geometries: Sequence[int] | None = None
    rows: Sequence[int] | None = None


class Place(NamedTuple):
    """Where a frame goes: to a slot of an output, with the geometry of this number."""

    output: int
    slot: int
    geometry: int


class Repeat(NamedTuple):
    """A slot to fill with a copy of another slot of the same output, `original`."""

    output: int
    slot: int
    original: int


@dataclass(frozen=True)
class GopPlan:
    """What to decode of one GOP.

    `gop`, `segment` and `video` are rows of their tables. `first_frame` is the number of the GOP's first frame in its
    video. Frame `frames[i]` of the GOP goes to all of `places[i]`. Frames of a GOP are numbered in presentation order
    from 0; `frames` is ascending and has each frame once.
    """

    gop: int
    segment: int
    video: int
    first_frame: int
    frames: tuple[int, ...]
    places: tuple[tuple[Place, ...], ...]


@dataclass(frozen=True)
class DecodePlan:
    """GOPs in ascending order, and copies for frames that an output has more than once with the same geometry.

    A copy takes a fifth of the time of a conversion, and a thirtieth where frames are resized. A frame with several
    geometries is converted with each.
    """

    gops: tuple[GopPlan, ...]
    repeats: tuple[Repeat, ...]


_EVERYTHING = (OutputFrames(),)


def plan_frames(
    layout: VideoGops,
    clips: Iterable[tuple[int, Sequence[int]]],
    outputs: Sequence[OutputFrames] = _EVERYTHING,
) -> DecodePlan:
    """Plan clips, each a row of the table of videos and frames of that video, for one output or several.

    An output has a slot for each of its frames of the first clip, then of the second, and so on; where it names rows,
    of the clip in row 0, then of that in row 1. A frame that no output has is not decoded. FrameIndexError when a video
    has no such frame: in the table of GOPs, another video's GOPs follow.
    """
    # Loops rather than arrays: planning a frame takes a thousandth of its decoding. With arrays a thousand frames
    # would take about as long, and one frame many times as long.
    wanted: dict[int, dict[int, dict[tuple[int, int], int]]] = {}
    origins: dict[int, tuple[int, int]] = {}
    repeats = []
    next_slots = [0] * len(outputs)
    for clip, (video, frames) in enumerate(clips):
        count = int(layout.num_frames[video])
        if frames and not 0 <= min(frames) <= max(frames) < count:
            wrong = next(frame for frame in frames if not 0 <= frame < count)
            raise FrameIndexError(f"video number {video} has no frame {wrong}: it has {count}", frame=wrong)
        gop_frames, first_gop = int(layout.gop_frames[video]), int(layout.first_gops[video])
        for output, each in enumerate(outputs):
            use = output, 0 if each.geometries is None else each.geometries[clip]
            chosen = frames if each.positions is None else [frames[position] for position in each.positions]
            slot = next_slots[output] if each.rows is None else each.rows[clip] * len(chosen)
            for frame in chosen:
                number, in_gop = divmod(frame, gop_frames)
                gop = first_gop + number
                of_gop = wanted.get(gop)
                if of_gop is None:
                    of_gop = wanted[gop] = {}
                    origins[gop] = (video, number)
                slots = of_gop.get(in_gop)
                if slots is None:
                    of_gop[in_gop] = {use: slot}
                elif (holder := slots.setdefault(use, slot)) != slot:
                    repeats.append(Repeat(output, slot, holder))
                slot += 1
            next_slots[output] = slot
    return DecodePlan(
        tuple(_gop_plan(layout, gop, *origins[gop], wanted[gop]) for gop in sorted(wanted)), tuple(repeats)
    )


def _gop_plan(
    layout: VideoGops, gop: int, video: int, number: int, wanted: dict[int, dict[tuple[int, int], int]]
) -> GopPlan:
    frames = tuple(sorted(wanted))
    return GopPlan(
        gop=gop,
        segment=int(layout.first_segments[video]) + number // int(layout.segment_gops[video]),
        video=video,
        first_frame=number * int(layout.gop_frames[video]),
        frames=frames,
        places=tuple(
            [
                tuple([Place(output, slot, geometry) for (output, geometry), slot in wanted[frame].items()])
                for frame in frames
            ]
        ),
    )


def needed_samples(pattern: Pattern, frames: Iterable[int]) -> tuple[int, ...]:
    """The samples that have to be decoded for these frames of a GOP, as numbers in decode order.

    Up to the last wanted sample, these are all samples that others refer to, and the wanted ones.
    """
    wanted = set(frames)
    shown = pattern.frames
    last = max((sample for sample, frame in enumerate(shown) if frame in wanted), default=-1)
    return tuple(sample for sample in range(last + 1) if pattern.referenced[sample] or shown[sample] in wanted)


def next_samples(pattern: Pattern, frames: Sequence[int]) -> tuple[int, ...]:
    """The samples behind those that these frames need, without which no later frame is decoded. They also make a
    decoder output the frames that it holds back."""
    sample, frame = max(pattern.frames.index(each) for each in frames), max(frames)
    later = range(sample + 1, len(pattern))
    return tuple(each for each in later if pattern.referenced[each] or pattern.frames[each] > frame)


@lru_cache(maxsize=256)
def reorder_depth(pattern: Pattern) -> int:
    """How many frames a decoder has to hold back to output frames in presentation order.

    For each frame, count the frames that are decoded before it and shown after it: this is the largest count.
    """
    shown = pattern.frames
    return max((sum(before > frame for before in shown[:sample]) for sample, frame in enumerate(shown)), default=0)


@dataclass(frozen=True)
class ByteRange:
    """Bytes [start, stop) of a file; `file` is its row in the table of shards."""

    file: int
    start: int
    stop: int


@dataclass(frozen=True)
class Read:
    """A read that covers the ranges whose numbers are in `parts`, in the order of their first bytes."""

    range: ByteRange
    parts: tuple[int, ...]


def coalesce(
    ranges: Sequence[ByteRange], *, max_gap_bytes: int, max_read_bytes: int, max_parts: int
) -> tuple[Read, ...]:
    """Plan reads that together cover all ranges, ordered by file and offset.

    A read covers ranges that are at most `max_gap_bytes` apart, at most `max_parts` of them, and at most
    `max_read_bytes`, except that a single range may be longer. Ranges may touch, overlap or be equal.
    """
    reads: list[Read] = []
    current: ByteRange | None = None
    parts: list[int] = []
    for part in sorted(range(len(ranges)), key=lambda part: (ranges[part].file, ranges[part].start)):
        one = ranges[part]
        if current is not None:
            stop = max(current.stop, one.stop)
            near = one.file == current.file and one.start - current.stop <= max_gap_bytes
            if near and len(parts) < max_parts and stop - current.start <= max_read_bytes:
                current = ByteRange(current.file, current.start, stop)
                parts.append(part)
                continue
            reads.append(Read(current, tuple(parts)))
        current, parts = one, [part]
    if current is not None:
        reads.append(Read(current, tuple(parts)))
    return tuple(reads)
