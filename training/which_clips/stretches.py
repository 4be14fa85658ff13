"""Stretches: clips are taken from parts of videos, such as intervals that somebody annotated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...arguments import exact_number, integer
from ...errors import UsageError
from ...readers.times import seconds_of
from ...wording import and_others, counted
from .offsets import Seconds, listed, nearest_frame
from .video_table import VideoTable

# By so much a stretch may end behind its video, which is where times that were rounded, or read off a player, may lie.
_SPARE_SECONDS = Fraction(1, 2)


@dataclass(frozen=True, eq=False)
class Stretches:
    """Parts of videos, in place of whole ones: ClipDataset(..., videos=Stretches(...)) takes its clips from within.

        Stretches(["a.mp4", "a.mp4", "b.mp4"], seconds=[(0, 4.5), (7, 9.25), (2, None)])
        Stretches([0, 0], frames=[(0, 135), (210, None)])

    Stretch i is of the video `videos[i]`, an id or number: from `seconds[i]`, (start, end), or `frames[i]`, (first
    frame, the one after the last). None stands for the start or the end of the video. A video may have several
    stretches, which may overlap.

    What policies, orders and `ends` say of a video they then say of a stretch: RandomClips(16, clips_per_video=2) makes
    two clips of each stretch, OneClipPerVideo takes one of each, ClassBalanced has a label for each, and frames that
    lie beyond a stretch do not exist. Items have `stretch`, its number in this list, for labels that stretches have.

    A stretch in seconds has the frames from the one nearest to its start to before the one nearest to its end, as with
    `shortgop prep --cuts`: where two stretches meet, each frame belongs to one of them. It has one frame at least. It
    may end up to half a second behind its video.
    """

    videos: Sequence[str | int]
    seconds: Sequence[tuple[Seconds | None, Seconds | None]] | None = None
    frames: Sequence[tuple[int | None, int | None]] | None = None

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.frames is None):
            raise UsageError(
                "Stretches takes either seconds=[(start, end), ...] or frames=[(first, after the last), ...]"
            )
        object.__setattr__(self, "videos", listed(self.videos, "videos"))
        name = "frames" if self.seconds is None else "seconds"
        pairs = [_pair(each, name, number) for number, each in enumerate(listed(getattr(self, name), name))]
        object.__setattr__(self, name, pairs)
        if len(self.videos) != len(pairs):
            raise UsageError(
                f"Stretches has {counted(len(self.videos), 'video')} and {len(pairs)} of {name}; each stretch has one "
                "of both"
            )

    def __len__(self) -> int:
        return len(self.videos)

    def __repr__(self) -> str:
        return f"<Stretches: {len(self)} in {'frames' if self.seconds is None else 'seconds'}>"


def _pair(given: Any, name: str, number: int) -> tuple[Any, Any]:
    try:
        start, end = given
    except (TypeError, ValueError):
        raise UsageError(f"{name} of stretch {number} is {given!r}; it is (start, end)") from None
    return start, end


def within(stretches: Stretches, videos: VideoTable) -> VideoTable:
    """The stretches as entries of a table, from one of their videos, an entry for each. UsageError for stretches that
    do not lie in their videos."""
    bounds = np.zeros((2, len(stretches)), dtype=np.int64)
    in_seconds = stretches.seconds is not None
    wrong = []
    for number in range(len(stretches)):
        fps, num_frames = videos.fps(number), int(videos.num_frames[number])
        start, end = _ends(stretches, number, videos)
        length, spare = (num_frames / fps, _SPARE_SECONDS) if in_seconds else (num_frames, 0)
        if not (0 <= start < length and start < end <= length + spare):
            wrong.append(number)
        elif in_seconds:
            # In the last half frame the last one is shown.
            first = min(nearest_frame(Fraction(start), fps), num_frames - 1)
            bounds[:, number] = first, min(max(nearest_frame(Fraction(end), fps), first + 1), num_frames)
        else:
            bounds[:, number] = start, end
    if wrong:
        raise UsageError(
            f"{_what_is_wrong(stretches, wrong[0], videos)}{and_others(wrong, len(stretches), 'stretches')}; correct "
            "them, or leave them out; None stands for the start or the end of a video"
        )
    return videos.within(bounds[0], bounds[1] - bounds[0])


def _ends(stretches: Stretches, number: int, videos: VideoTable) -> tuple[Fraction | int, Fraction | int]:
    """From where to where a stretch is: times, or the first frame and the one after the last."""
    fps, num_frames = videos.fps(number), int(videos.num_frames[number])
    named = _named(number, videos)
    pairs: Any = stretches.frames if stretches.seconds is None else stretches.seconds
    start, end = pairs[number]
    if stretches.seconds is None:
        return (
            0 if start is None else integer(start, f"the first frame of {named}"),
            num_frames if end is None else integer(end, f"the frame after {named}"),
        )
    return (
        Fraction(0) if start is None else exact_number(start, f"the start of {named}"),
        num_frames / fps if end is None else exact_number(end, f"the end of {named}"),
    )


def _named(number: int, videos: VideoTable) -> str:
    return f"stretch {number}, of video {videos.name(number)!r},"


def _what_is_wrong(stretches: Stretches, number: int, videos: VideoTable) -> str:
    """What is said of a stretch that does not lie in its video."""
    named, num_frames = _named(number, videos), int(videos.num_frames[number])
    start, end = _ends(stretches, number, videos)
    if stretches.frames is not None:
        return f"{named} is from frame {start} to before frame {end}, and the video has {counted(num_frames, 'frame')}"
    interval = f"{named} is from {float(start)} s to {float(end)} s"
    length = num_frames / videos.fps(number)
    if 0 <= start < length and end <= start:
        return f"{interval}, which is nothing"
    return f"{interval}, and the video lasts from 0 s to {seconds_of(num_frames, videos.fps(number))} s"
