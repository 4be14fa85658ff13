"""What is read: patterns of access, and random requests that follow them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arguments import integer
from ..errors import UsageError
from ..wording import counted

Clip = tuple[int, Sequence[int]]
"""The number of a video and frames of it, ascending. Those that are drawn are ranges, which take little memory."""
Request = tuple[Clip, ...]
"""What is read at a time: a batch."""


@dataclass(frozen=True)
class Access:
    """Batches of clips of `frames` frames, `stride` apart."""

    frames: int
    stride: int = 1
    batch: int = 1

    def __post_init__(self) -> None:
        for name in ("frames", "stride", "batch"):
            integer(getattr(self, name), name)
        if min(self.frames, self.stride, self.batch) < 1:
            raise UsageError(f"a clip has at least 1 frame, a stride of 1 and a batch of 1, not {self}")

    @property
    def span(self) -> int:
        """Frames from the first to the last one of a clip, both included."""
        return (self.frames - 1) * self.stride + 1

    def __str__(self) -> str:
        clip = "random frames" if self.frames == 1 else f"clips of {self.frames} frames, stride {self.stride}"
        return clip if self.batch == 1 else f"{clip}, batches of {self.batch}"


def parse_clip(text: str, batch: int = 1) -> Access:
    """`16x4` is 16 frames of stride 4."""
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if not match:
        raise UsageError(f"--clip is {text!r}; it takes FRAMESxSTRIDE, such as 16x4")
    return Access(int(match[1]), int(match[2]), batch)


def draw(lengths: Sequence[int], access: Access, count: int, seed: int) -> list[Request]:
    """Random batches: every possible clip is as likely as any other. `lengths` are the videos' numbers of frames.

    The same seed gives the same requests. UsageError when each video is shorter than a clip.
    """
    starts = np.maximum(np.asarray(lengths, dtype=np.int64) - access.span + 1, 0)
    ends = np.cumsum(starts)
    if ends[-1] == 0:
        raise UsageError(
            f"no video is long enough for {access}: that takes {counted(access.span, 'frame')}, the longest has "
            f"{max(lengths)}; choose shorter clips with --clip"
        )
    drawn = np.random.default_rng(seed).integers(ends[-1], size=(count, access.batch))
    videos = np.searchsorted(ends, drawn, side="right")
    firsts = drawn - (ends - starts)[videos]
    return [
        tuple((video, range(first, first + access.span, access.stride)) for video, first in batch)
        for batch in np.stack((videos, firsts), axis=2).tolist()
    ]
