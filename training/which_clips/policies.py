"""Policies: which clips a dataset has. Each is a small frozen dataclass, and drawn in its docstring.

All but RandomFrames, SegmentFrames and ClipsAt place clips at starts. A start is a frame of the video from which all
frames of a clip exist; of n frames and a clip that spans s there are n - s + 1, from 0 to n - s. A video with fewer
frames than the clip spans has none, and `ends` says what becomes of it (see `ends.py`): under "error" it is an error,
under "drop" it is left out, and under the other rules it has one start, its first frame.

What these policies have in common:

- `num_frames`: how many frames a clip has, with `stride=` (every so many frames of the video; 1 when not given) or
  `fps=` (so many frames a second, whatever the video's rate: a number, or a text such as "30000/1001"); or an Offsets
  or a MultiRate, which need neither.
- `ends`: what to do where a video has no frame. With `whole=False` every frame of a video is a start, and the rule is
  needed at the edges of all videos, not only in short ones.
- `jitter`: each frame of a clip is, independently, one of those from its own to `jitter` later; in frames, or in
  seconds where the clip goes by `fps` or by seconds. Clips span that much more.
- `joined`, where there is `clips_per_video`: the clips of a video are one item, with the frames of all, one clip after
  the other.
- `align="reference"`: clips start only on frames that other frames refer to. A stretch that has none where a clip fits
  has no clip: that is an error under "error", and under the other rules it is left out. With three unreferenced frames
  between two of them, a clip of stride 4 takes 16 packets instead of 32, and 0.73 of the time was measured. What it
  costs: training sees one of four starts there, and never the others; it is off by default. A phase drawn for each
  epoch would make up for that only in part, and clips of the other phases cost as much as without alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from reprlib import repr as shortened
from typing import Any, ClassVar, Literal

from ...arguments import exact_number
from ...errors import UsageError
from .counterparts import names_counterparts
from .ends import Ends
from .offsets import MOST_FRAMES, ClipFrames, MultiRate, Offsets, Rate, Seconds, at_least_one, listed
from .own_values import own
from .placed_clips import MOST_CLIPS, Align, placed_clips


def _shown(policy: Any) -> str:
    """A policy as code that makes it: what has its default is left out, and long lists of places are shortened."""
    told = []
    for field in fields(policy):
        value = getattr(policy, field.name)
        if type(value) is not type(field.default) or value != field.default:
            told.append(f"{field.name}={repr(value) if isinstance(value, Offsets | MultiRate) else shortened(value)}")
    return f"{type(policy).__name__}({', '.join(told)})"


@names_counterparts
@dataclass(frozen=True)
class AllClips:
    """Every start makes a clip, or every `step`-th, or one every `step_seconds`.

        frames        0 1 2 3 4 5 6 7 8
        clip 0        f . f . f
        clip 1          f . f . f              AllClips(3, stride=2): 5 clips
        ...
        clip 4                f . f . f

    Two videos of 100 frames and AllClips(5) make 192 clips, 0 to 95 in the first, as in NVVL. With `align` the starts
    that are left are counted: step=2 takes every second one of them.

    With `step_seconds`, clip i starts at the frame nearest to i * step_seconds after the first start, in exact
    arithmetic: windows are equally far apart in videos of all rates, and do not drift.

    With whole=False and `skip=(a, b)` no clip starts at the first a and the last b frames of a video, though clips may
    have these frames. Videos with fewer frames have no clip.
    """

    num_frames: ClipFrames
    stride: int | None = None
    step: int = 1
    fps: Rate | None = None
    ends: Ends = "error"
    whole: bool = True
    align: Align | None = None
    jitter: Seconds = 0
    step_seconds: Seconds | None = None
    skip: tuple[int, int] = (0, 0)

    __repr__ = _shown

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", at_least_one(self.step, "step"))
        if self.step_seconds is not None:
            if self.step != 1:
                raise UsageError(
                    f"step={self.step} and step_seconds={self.step_seconds} both say how far apart clips start; give "
                    "one of them"
                )
            if self.align:
                raise UsageError(
                    "step_seconds says where clips start, and so does align; give step=, which counts the starts that "
                    "align leaves"
                )
            if exact_number(self.step_seconds, "step_seconds") <= 0:
                raise UsageError(f"step_seconds is {self.step_seconds}; it has to be more than 0")
        placed_clips(self)

    @property
    def exact_step(self) -> Fraction | None:
        """`step_seconds`, exact."""
        return None if self.step_seconds is None else exact_number(self.step_seconds, "step_seconds")


@names_counterparts
@dataclass(frozen=True)
class RandomClips:
    """`clips_per_video` clips of each video, each at a start drawn anew in each epoch; all starts are as likely.

    frames        0 1 2 3 4 5 6 7 8
    epoch 0           f . f . f            RandomClips(3, stride=2): 1 clip a video
    epoch 1               f . f . f

    With `spread`, clip j of k is at one of the starts from floor(j * S / k) to before floor((j + 1) * S / k) of S, so
    that the clips of a video are from all of its parts.
    """

    num_frames: ClipFrames
    stride: int | None = None
    fps: Rate | None = None
    clips_per_video: int = 1
    ends: Ends = "error"
    whole: bool = True
    align: Align | None = None
    jitter: Seconds = 0
    joined: bool = False
    spread: bool = False

    __repr__ = _shown

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "clips_per_video", at_least_one(self.clips_per_video, "clips_per_video", most=MOST_CLIPS)
        )
        placed_clips(self)


@names_counterparts
@dataclass(frozen=True)
class UniformClips:
    """`clips_per_video` clips of each video, spread evenly: the first at the first start, the last at the last.

        frames        0 1 2 3 4 5 6 7 8
        clip 0        f f f
        clip 1              f f f              UniformClips(3, clips_per_video=3)
        clip 2                    f f f

    Clip j of k is at start floor(j * (S - 1) / (k - 1)) of S, so clips repeat where there are fewer starts than clips:
    TorchCodec's `clips_at_regular_indices`. A single clip is at the first start; CenterClips takes the middle.
    """

    num_frames: ClipFrames
    stride: int | None = None
    fps: Rate | None = None
    clips_per_video: int = 1
    ends: Ends = "error"
    whole: bool = True
    align: Align | None = None
    jitter: Seconds = 0
    joined: bool = False

    __repr__ = _shown

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "clips_per_video", at_least_one(self.clips_per_video, "clips_per_video", most=MOST_CLIPS)
        )
        placed_clips(self)


@names_counterparts
@dataclass(frozen=True)
class CenterClips:
    """One clip of each video, from its middle.

        frames        0 1 2 3 4 5 6 7 8
        clip 0            f . f . f            CenterClips(3, stride=2)

    It is at start floor((S - 1) / 2) of S.
    """

    num_frames: ClipFrames
    stride: int | None = None
    fps: Rate | None = None
    ends: Ends = "error"
    whole: bool = True
    jitter: Seconds = 0

    align: ClassVar[None] = None

    __repr__ = _shown

    def __post_init__(self) -> None:
        placed_clips(self)


@names_counterparts
@dataclass(frozen=True)
class RandomFrames:
    """Single frames, uniform over all frames of all videos: as many as there are in an epoch, each of them once.

        frames        0 1 2 | 0 1 2 3 4        two videos
        epoch 0       f5 f2 f7 | f0 ...        clip 0 of the epoch is any of the 8 frames, clip 1 any of the others

    The order is a part of the policy, so a DataLoader that does not shuffle reads random frames as well.
    """


@names_counterparts
@dataclass(frozen=True)
class SegmentFrames:
    """One clip of each video whose frames are spread over all of it: one frame of each of `num_frames` equal segments.

        frames        0 1 2 3 4 5 6 7 8 9 0 1
        middle            f       f       f        SegmentFrames(3, place="middle")
        epoch 0         f           f   f          SegmentFrames(3, place="random")

    Segment j of k has the frames from floor(j * n / k) to before floor((j + 1) * n / k) of n. With place="random" each
    of them is as likely, drawn anew in each epoch and for each segment. With place="middle" it is the frame in the
    middle of the video's j-th part of k, floor((j + 1/2) * n / k). Of a video with fewer frames than segments,
    neighbouring segments have the same frame, so that no video is too short.
    """

    num_frames: int
    place: Literal["random", "middle"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_frames", at_least_one(self.num_frames, "num_frames", most=MOST_FRAMES))
        if self.place not in ("random", "middle"):
            raise UsageError(
                f'place is {self.place!r}; it is which frame of each segment to take: "random", for training, or '
                '"middle"'
            )


@names_counterparts
@dataclass(frozen=True, eq=False)
class ClipsAt:
    """Clips at places that a table names: each has a video, by id or number, and a frame or a time where it starts.
    A clip has one frame unless `num_frames` says otherwise.

        frames        0 1 2 3 4 5 6 7 8
        (0, frame 4)          f f f            ClipsAt([0, 0], frames=[4, 6], num_frames=3)
        (0, frame 6)              f f f

    With `seconds=`, each frame of a clip is the one nearest to its own time, and the last one of the video just before
    its end. Nothing is required of the places but that they lie in their videos; frames beyond the ends are replaced by
    the rule `ends`, which is "error" or one of those that pad. Offsets(seconds=[-0.2, -0.1, 0]) for `num_frames` makes
    windows around each place.
    """

    videos: Sequence[str | int]
    frames: Sequence[int] | None = None
    seconds: Sequence[Seconds] | None = None
    num_frames: ClipFrames = 1
    stride: int | None = None
    fps: Rate | None = None
    ends: Ends = "error"
    jitter: Seconds = 0

    whole: ClassVar[bool] = True
    align: ClassVar[None] = None

    __repr__ = _shown

    def __post_init__(self) -> None:
        if (self.frames is None) == (self.seconds is None):
            raise UsageError("ClipsAt takes either frames=[...] or seconds=[...]: where each clip starts")
        for name in ("videos", "frames", "seconds"):
            object.__setattr__(self, name, own(getattr(self, name)))
        places = self.frames if self.seconds is None else self.seconds
        counts = (
            len(listed(self.videos, "videos")),
            len(_single(places, "frames" if self.seconds is None else "seconds")),
        )
        if counts[0] != counts[1]:
            raise UsageError(f"ClipsAt has {counts[0]} videos and {counts[1]} places; each clip has one of both")
        if self.ends == "drop":
            raise UsageError('ends="drop" would renumber the rows of the table; drop them from it beforehand')
        placed_clips(self)


def _single(places: Any, name: str) -> list[Any]:
    """The places of a table as a list; UsageError where one of them is several."""
    each_place = listed(places, name)
    for clip, place in enumerate(each_place):
        # A tensor of one number has `__iter__` too.
        is_one = isinstance(place, (str, bytes)) or not hasattr(place, "__iter__") or getattr(place, "ndim", None) == 0
        if not is_one:
            raise UsageError(
                f"{name} of ClipsAt has {place!r} for clip {clip}; each clip has one of these, where it starts. Its "
                "frames are counted from there: say which with num_frames=, a number or shortgop.Offsets(frames=[0, 1])"
            )
    return each_place


Placement = AllClips | RandomClips | UniformClips | CenterClips
"""The policies that place clips at starts."""
