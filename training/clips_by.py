"""Clips whose frames a function of the user's own chooses, and the index over them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ..arguments import integer
from ..errors import UsageError, WrongTypeError
from ..lazy import lazy
from ..manifests.ragged import Array
from ..wording import counted
from .clip_reach import columns_of, fingerprint_of
from .clips import Clip
from .draws import split_draws
from .ends import PADDING, Ends, check_ends, frames_within
from .keyed import key
from .offsets import MOST_FRAMES, at_least_one
from .placed_clips import MOST_CLIPS
from .video_table import VideoTable


@dataclass(frozen=True)
class ClipToChoose:
    """What the function of a ClipsBy is told: the video, or the stretch of one, that a clip is taken from, and which of
    its clips that is."""

    id: str
    num_frames: int
    fps: float
    clip: int = 0
    stretch: int | None = None


Choose = Callable[[ClipToChoose, np.random.Generator], Any]


@dataclass(frozen=True)
class ClipsBy:
    """`clips_per_video` clips of each video, whose frames a function chooses, anew in each epoch.

        def any_stride(video, random):
            stride = random.integers(1, 5)
            start = random.integers(max(1, video.num_frames - 15 * stride))
            return start + stride * np.arange(16)

        clips = shortgop.ClipDataset("DATASET", shortgop.ClipsBy(any_stride, 16, ends="repeat_last"))

    The function returns `num_frames` frame numbers, in any order. It gets

    - `video.id`, `video.num_frames`, `video.fps`; `video.clip`, which of the video's clips it is, from 0 on; and
      `video.stretch`, where clips are taken from Stretches: frames then count from the start of the stretch, which has
      `num_frames`;
    - a numpy.random.Generator, seeded from the dataset's seed and the draw, so that clips are the same for any workers
      and ranks. It has to be a function of these two alone, and is called more than once for a clip.

    `ends` says what comes in place of a frame that the video does not have, as with other policies; by default that is
    an error. For workers that start anew it has to be importable. A training state is refused where the function has
    another name, or is a functools.partial with other arguments; what it does is not looked into.
    """

    choose: Choose
    num_frames: int
    clips_per_video: int = 1
    ends: Ends = "error"

    def __post_init__(self) -> None:
        if not callable(self.choose):
            raise WrongTypeError(
                f"choose is {shortened(self.choose)}; it is a function of a video and a numpy.random.Generator, which "
                "returns frame numbers"
            )
        object.__setattr__(self, "num_frames", at_least_one(self.num_frames, "num_frames", most=MOST_FRAMES))
        count = at_least_one(self.clips_per_video, "clips_per_video", most=MOST_CLIPS)
        object.__setattr__(self, "clips_per_video", count)
        check_ends(self.ends)
        if self.ends == "drop":
            raise UsageError(
                'ends="drop" leaves out videos that are too short, which only the function knows; choose among the '
                "videos beforehand, with where() of the dataset or videos="
            )

    def __repr__(self) -> str:
        more = f", clips_per_video={self.clips_per_video}" if self.clips_per_video > 1 else ""
        more += f", ends={self.ends!r}" if self.ends != "error" else ""
        return f"ClipsBy({named(self.choose)}, {self.num_frames}{more})"


def named(choose: Any) -> str:
    """What a function is called, the same in every process."""
    if isinstance(choose, functools.partial):
        keywords = [f"{name}={value!r}" for name, value in sorted(choose.keywords.items())]
        return f"partial({', '.join([named(choose.func), *map(repr, choose.args), *keywords])})"
    name = getattr(choose, "__qualname__", None)
    return name if isinstance(name, str) else re.sub(r" at 0x[0-9a-fA-F]+", "", repr(choose))


@dataclass(frozen=True, eq=False)
class ChosenIndex:
    """The clips of a ClipsBy: as many of each video."""

    policy: ClipsBy
    videos: VideoTable
    seed: int

    def __len__(self) -> int:
        return len(self.videos) * self.policy.clips_per_video

    @property
    def firsts(self) -> Array:
        return np.arange(len(self.videos) + 1) * self.policy.clips_per_video

    @property
    def too_short(self) -> Array:
        """None: only the function knows."""
        return np.zeros(0, dtype=np.int64)

    @property
    def pads(self) -> bool:
        return self.policy.ends in PADDING

    @lazy
    def fingerprint(self) -> str:
        return fingerprint_of([repr(self.policy), self.seed], columns_of(self.videos))

    def video_name(self, place: int) -> str:
        return self.videos.name(place)

    def clip_numbers(self, places: Array) -> Array:
        return places

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        _, indices = split_draws(draws, len(self))
        videos, clips = np.divmod(indices, self.policy.clips_per_video)
        return [self._clip(*each) for each in zip(draws, videos.tolist(), clips.tolist(), strict=True)]

    def _clip(self, draw: int, video: int, clip: int) -> Clip:
        stretch = None if self.videos.first_frames is None else video
        told = ClipToChoose(
            self.videos.name(video), int(self.videos.num_frames[video]), float(self.videos.fps(video)), clip, stretch
        )
        origin = self.videos.first_frame(video)
        try:
            found = self.policy.choose(told, np.random.default_rng(key(self.seed, "clips by", draw)))
            wanted = self._checked(found)
            frames, mask = frames_within(wanted, told.num_frames, self.policy.ends)
        except UsageError as error:
            raise type(error)(f"{self._of(told, draw)}: {error.message}", video=told.id) from None
        except Exception as error:
            error.add_note(self._of(told, draw))
            raise
        first = origin + int(frames[0])
        return Clip(draw, self.videos.row(video), first, origin + frames, mask if self.pads else None, stretch)

    def _of(self, told: ClipToChoose, draw: int) -> str:
        return f"{named(self.policy.choose)}, which ClipsBy called for draw {int(draw)}, of video {told.id!r}"

    def _checked(self, found: Any) -> Array:
        count = self.policy.num_frames
        if not hasattr(found, "__iter__") or getattr(found, "ndim", 1) == 0:
            raise WrongTypeError(f"it returned {shortened(found)}, and not {counted(count, 'frame number')}")
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu":
            found = [integer(frame, "a frame that it returned") for frame in found]
        if len(found) != count:
            raise UsageError(f"it returned {counted(len(found), 'frame')}, and num_frames is {count}")
        frames = np.asarray(found, dtype=np.int64)
        if frames.ndim != 1:
            raise UsageError(f"it returned frames of shape {frames.shape}, and num_frames is {count}")
        return frames
