"""Rows of the manifest as plain Python values, and the arithmetic from a frame to its GOP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass(frozen=True)
class VideoRow:
    """A video in the dataset.

    Frame k of the video is shown at exactly k / fps seconds and lies in GOP `first_gop + k // gop_frames`. All
    GOPs but the last have `gop_frames` frames; all segments but the last have `segment_gops` GOPs.
    """

    id: str
    source: str
    path: str
    attributes_json: str
    fps_num: int
    fps_den: int
    num_frames: int
    gop_frames: int
    segment_gops: int
    config: int
    timebase_num: int
    timebase_den: int
    first_gop: int
    first_segment: int
    first_frame: int

    @property
    def fps(self) -> Fraction:
        """Frames per second, exact."""
        return Fraction(self.fps_num, self.fps_den)

    @property
    def source_timebase(self) -> Fraction:
        """Seconds per unit of the source's pts."""
        return Fraction(self.timebase_num, self.timebase_den)

    @property
    def duration(self) -> Fraction:
        """Seconds, exact."""
        return self.num_frames / self.fps

    @property
    def attributes(self) -> dict[str, Any]:
        """The columns of the source list for this video, other than its path and id."""
        return dict(json.loads(self.attributes_json))

    @property
    def num_gops(self) -> int:
        return -(-self.num_frames // self.gop_frames)

    def frames_in_gop(self, gop: int) -> int:
        """Number of frames in the video's GOP number `gop`, counted from 0."""
        return min(self.gop_frames, self.num_frames - gop * self.gop_frames)


@dataclass(frozen=True)
class SourceChanges:
    """How a video's frames differ from those of its source.

    `given_up` lists in a few words each what the source has and the video does not ("audio dropped", "tone-mapped").
    `dropped` counts source frames that are never shown, `repeated` those that are shown more than once; both are None
    for a video that was prepared before this was counted. `salvaged` are runs [first, stop) of the video's frames that
    show an earlier frame of the source in place of one that does not decode.
    """

    given_up: tuple[str, ...] = ()
    dropped: int | None = None
    repeated: int | None = None
    salvaged: tuple[tuple[int, int], ...] = ()

    @property
    def num_salvaged(self) -> int:
        """Number of frames that show an earlier source frame in place of one that does not decode."""
        return sum(stop - first for first, stop in self.salvaged)


@dataclass(frozen=True)
class CodecConfig:
    """What a decoder needs before the first packet.

    `codec` is "h264", "hevc" or "av1", `extradata` the payload of the avcC, hvcC or av1C box. `primaries`, `transfer`
    and `matrix` are code points of ISO/IEC 23091-2 (2 is unspecified).
    """

    codec: str
    extradata: bytes
    width: int
    height: int
    primaries: int
    transfer: int
    matrix: int
    full_range: bool


# The side of the blocks that pictures are made of: H.264's macroblocks, and the smallest that HEVC may have. AV1 codes
# any size.
_BLOCK_SIDES = {"h264": 16, "hevc": 8, "av1": 1}


def least_coded_size(codec: str, width: int, height: int) -> tuple[int, int]:
    """The width and height in whole blocks of pictures that show so many pixels: they are coded in this size or in a
    larger one, and cropped. A decoder's limits are about the coded size."""
    side = _BLOCK_SIDES[codec]
    return -(-width // side) * side, -(-height // side) * side


@dataclass(frozen=True)
class Pattern:
    """The samples of a GOP in decode order: which frame of the GOP each one shows (0 is the first shown), and whether
    any other frame refers to it. A sample that no frame refers to need not be decoded unless its own frame is wanted.
    """

    frames: tuple[int, ...]
    referenced: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.frames)
