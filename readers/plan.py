"""Plans as pure functions: which GOPs a request needs, which samples of each, where frames go, what is read at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
class GopPlan:
    """What to decode of one GOP.

    `gop`, `segment` and `video` are rows of their tables. `first_frame` is the number of the GOP's first frame in its
    video. Frame `frames[i]` of the GOP goes to slot `slots[i]` of the output. Frames of a GOP are numbered in
    presentation order from 0; `frames` is ascending and has each frame once.
    """

    gop: int
    segment: int
    video: int
    first_frame: int
    frames: tuple[int, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True)
class DecodePlan:
    """GOPs in ascending order, and copies for frames asked for more than once: (slot to fill, slot with the frame)."""

    gops: tuple[GopPlan, ...]
    repeats: tuple[tuple[int, int], ...]


def plan_frames(layout: VideoGops, clips: Iterable[tuple[int, Sequence[int]]]) -> DecodePlan:
    """Plan clips, each a row of the table of videos and frames of that video.

    The output has a slot for each frame of the first clip, then of the second, and so on. FrameIndexError when a video
    has no such frame: in the table of GOPs, another video's GOPs follow.
    """
    # Loops rather than arrays: planning a frame takes a thousandth of its decoding. With arrays a thousand frames
    # would take about as long, and one frame many times as long.
    wanted: dict[int, dict[int, int]] = {}
    places: dict[int, tuple[int, int]] = {}
    repeats = []
    slot = 0
    for video, frames in clips:
        count = int(layout.num_frames[video])
        if frames and not 0 <= min(frames) <= max(frames) < count:
            wrong = next(frame for frame in frames if not 0 <= frame < count)
            raise FrameIndexError(f"video number {video} has no frame {wrong}: it has {count}", frame=wrong)
        gop_frames, first_gop = int(layout.gop_frames[video]), int(layout.first_gops[video])
        for frame in frames:
            number, in_gop = divmod(frame, gop_frames)
            gop = first_gop + number
            slots = wanted.get(gop)
            if slots is None:
                slots = wanted[gop] = {}
                places[gop] = (video, number)
            holder = slots.setdefault(in_gop, slot)
            if holder != slot:
                repeats.append((slot, holder))
            slot += 1
    return DecodePlan(
        tuple(_gop_plan(layout, gop, *places[gop], wanted[gop]) for gop in sorted(wanted)), tuple(repeats)
    )


def _gop_plan(layout: VideoGops, gop: int, video: int, number: int, slots: dict[int, int]) -> GopPlan:
    frames = tuple(sorted(slots))
    return GopPlan(
        gop=gop,
        segment=int(layout.first_segments[video]) + number // int(layout.segment_gops[video]),
        video=video,
        first_frame=number * int(layout.gop_frames[video]),
        frames=frames,
        slots=tuple(slots[frame] for frame in frames),
    )


def needed_samples(pattern: Pattern, frames: Iterable[int]) -> tuple[int, ...]:
    """The samples that have to be decoded for these frames of a GOP, as numbers in decode order.

    Up to the last wanted sample, these are all samples that others refer to, and the wanted ones.
    """
    wanted = set(frames)
    shown = pattern.frames
    last = max((sample for sample, frame in enumerate(shown) if frame in wanted), default=-1)
    return tuple(sample for sample in range(last + 1) if pattern.referenced[sample] or shown[sample] in wanted)


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
