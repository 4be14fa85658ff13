"""Clips whose frames a function of the user's own chooses, and the index over them."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np
import torch

from ...arguments import integer
from ...errors import UsageError, WrongTypeError
from ...lazy import lazy
from ...manifests.ragged import Array
from ...warned import warn
from ...wording import counted
from .clip_reach import columns_of, fingerprint_of
from .clips import Clip, OfVideos
from .counterparts import names_counterparts
from .draws import split_draws
from .ends import PADDING, Ends, check_ends, frames_within
from .keyed import key
from .offsets import MOST_FRAMES, at_least_one
from .placed_clips import MOST_CLIPS
from .video_table import VideoTable

# Larger files than these bytes are not read for a digest, and so many values at once.
_LARGEST_FILE_BYTES = 1 << 30
_BLOCK = 1 << 20


@dataclass(frozen=True)
class ClipToChoose:
    """What the function of a ClipsBy is told: the video, or the stretch of one, that a clip is taken from, and which of
    its clips that is."""

    id: str
    num_frames: int
    fps: float
    clip: int = 0
    stretch: int | None = None


Choose = Callable[[ClipToChoose, np.random.Generator], Any] | Callable[[ClipToChoose], Any]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@names_counterparts
@dataclass(frozen=True)
class ClipsBy:
    """`clips_per_video` clips of each video, whose frames a function chooses, anew in each epoch if it draws them.

        def any_stride(video, random):
            stride = random.integers(1, 5)
            start = random.integers(max(1, video.num_frames - 15 * stride))
            return start + stride * np.arange(16)

        clips = shortgop.ClipDataset("DATASET", shortgop.ClipsBy(any_stride, 16, ends="repeat_last"))

    The function returns `num_frames` frame numbers, in any order; where that is None, as many as it likes, one or more.
    Of clips of several lengths the `collate_fn` of a DataLoader makes a batch. It gets

    - `video.id`, `video.num_frames`, `video.fps`; `video.clip`, which of the video's clips it is, from 0 on; and
      `video.stretch`, where clips are taken from Stretches: frames then count from the start of the stretch, which has
      `num_frames`;
    - a numpy.random.Generator, seeded from the dataset's seed and the draw, so that clips are the same for any workers
      and ranks. A function of one parameter gets none, and its clips are the same in each epoch.

    It has to be a function of these alone, and is called more than once for a clip.

    `ends` says what comes in place of a frame that the video does not have, as with other policies; by default that is
    an error. For workers that start anew it has to be importable. A training state is refused where the function has
    another name, or is a functools.partial with other arguments; what it does is not looked into. Of arguments, also in
    dicts, lists, tuples and sets, arrays and tensors on the CPU count by all their values (an array of a file of more
    than 1 GiB by its type, its shape and the file's name), and others by their `__repr__`: that of a dataclass leaves
    values of a large array out. An object whose class has none counts by its class alone, and a DatasetWarning says so.
    """

    choose: Choose
    num_frames: int | None = None
    clips_per_video: int = 1
    ends: Ends = "error"

    def __post_init__(self) -> None:
        if not callable(self.choose):
            raise WrongTypeError(
                f"choose is {shortened(self.choose)}; it is a function of a video and a numpy.random.Generator, which "
                "returns frame numbers"
            )
        if self.num_frames is not None:
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
        count = "" if self.num_frames is None else f", {self.num_frames}"
        return f"ClipsBy({self.name}{count}{more})"

    @lazy
    def name(self) -> str:
        """What the function is called, with its arguments: the same in every process."""
        return _named(self.choose)

    @lazy
    def is_random(self) -> bool:
        """Whether the function takes random numbers."""
        try:
            parameters = inspect.signature(self.choose).parameters.values()
        except (TypeError, ValueError):
            return True
        needed = [each for each in parameters if each.kind in _POSITIONAL and each.default is each.empty]
        return len(needed) != 1 or any(each.kind is each.VAR_POSITIONAL for each in parameters)


def _named(choose: Any) -> str:
    if isinstance(choose, functools.partial):
        keywords = [f"{name}={_shown(value)}" for name, value in sorted(choose.keywords.items())]
        return f"partial({', '.join([_named(choose.func), *map(_shown, choose.args), *keywords])})"
    name = getattr(choose, "__qualname__", None)
    return name if isinstance(name, str) else _shown(choose)


def _shown(value: Any) -> str:
    """The repr of a value without what differs from process to process: addresses, which a text has none of, and the
    order of a set. Arrays and tensors, whose repr leaves values out, are told by a digest of all of them."""
    array = _array_of(value)
    if array is not None:
        return f"{type(value).__name__}({value.dtype}, {tuple(value.shape)}, {_digest(array)})"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}({', '.join(sorted(map(_shown, value)))})"
    kind = "" if type(value) in {dict, list, tuple} else type(value).__name__
    if isinstance(value, dict):
        return f"{kind}{{{', '.join(f'{_shown(name)}: {_shown(each)}' for name, each in value.items())}}}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_shown, value))
        return f"{kind}[{inner}]" if isinstance(value, list) else f"{kind}({inner}{',' if len(value) == 1 else ''})"
    return repr(value) if isinstance(value, str) else re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _array_of(value: Any) -> Array | None:
    """The values of an array or tensor; None for what is none, or has them in another form than one after the other in
    memory."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject or isinstance(value, np.ma.MaskedArray) else value
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return None
    if value.is_nested or value.is_quantized:
        return None
    # numpy has not all types of torch.
    array: Array = value.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy()
    return array


def _digest(array: Array) -> str:
    if isinstance(array, np.memmap) and array.nbytes > _LARGEST_FILE_BYTES:
        return Path(array.filename or "").name
    digest = hashlib.blake2b(digest_size=8)
    values = array.reshape(-1)
    for first in range(0, len(values), _BLOCK):
        digest.update(values[first : first + _BLOCK].tobytes())
    return digest.hexdigest()


def _warn_of_class_alone(name: str) -> None:
    """DatasetWarning where the name of a function has an object without values."""
    found = re.search(r"<(\S+) object>", name)
    if found:
        warn(
            f"the function of ClipsBy has an object of {found[1]}, which has no __repr__: a training state is taken on "
            "also where that object has other values. Give the class a __repr__ that says them, or make it a dataclass"
        )


@dataclass(frozen=True, eq=False)
class ChosenIndex(OfVideos):
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
        _warn_of_class_alone(self.policy.name)
        return fingerprint_of([repr(self.policy), self.seed], columns_of(self.videos))

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        _, indices = split_draws(draws, len(self))
        videos, clips = np.divmod(indices, self.policy.clips_per_video)
        return [self._clip(*each) for each in zip(draws, videos.tolist(), clips.tolist(), strict=True)]

    def _clip(self, draw: int, video: int, clip: int) -> Clip:
        stretch = None if self.videos.first_frames is None else video
        told = ClipToChoose(
            self.videos.name(video), int(self.videos.num_frames[video]), float(self.videos.fps(video)), clip, stretch
        )
        try:
            choose: Callable[..., Any] = self.policy.choose
            random = [np.random.default_rng(key(self.seed, "clips by", draw))] if self.policy.is_random else []
            found = choose(told, *random)
            wanted = self._checked(found)
            frames, mask = frames_within(wanted, told.num_frames, self.policy.ends)
        except UsageError as error:
            raise type(error)(f"{self._of(told, draw)}: {error.message}", video=told.id) from None
        except Exception as error:
            error.add_note(self._of(told, draw))
            raise
        return self.clip_of(draw, video, int(frames[0]), frames, mask if self.pads else None)

    def _of(self, told: ClipToChoose, draw: int) -> str:
        return f"{self.policy.name}, which ClipsBy called for draw {int(draw)}, of video {told.id!r}"

    def _checked(self, found: Any) -> Array:
        count = self.policy.num_frames
        wanted = "frame numbers" if count is None else counted(count, "frame number")
        if not hasattr(found, "__iter__") or getattr(found, "ndim", 1) == 0:
            raise WrongTypeError(f"it returned {shortened(found)}, and not {wanted}")
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu":
            found = [integer(frame, "a frame that it returned") for frame in found]
        frames = np.asarray(found, dtype=np.int64)
        if count is None:
            count = at_least_one(len(frames), "the number of frames that it returned", most=MOST_FRAMES)
        if len(frames) != count:
            raise UsageError(f"it returned {counted(len(frames), 'frame')}, and num_frames is {count}")
        if frames.ndim != 1:
            raise UsageError(f"it returned frames of shape {frames.shape}, and not {wanted}")
        return frames
