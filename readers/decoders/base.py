"""The interface between the reader and a decoder, which decodes one GOP at a time into slots of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from ...errors import ToolError
from ...manifests.records import CodecConfig, Pattern
from ..frame_format import Geometry, PixelFormat
from ..plan import Place

Buffer = bytes | memoryview


@dataclass(frozen=True)
class GopRequest:
    """Frames to decode of one GOP.

    `data` is the GOP's moof + mdat. Frame `frames[i]` of the GOP goes to each of `places[i]`, which name a target by
    its number, a slot of it, and one of `geometries`. Frames are numbered in presentation order from 0; `frames` is
    ascending and has each frame once. Geometries lie within pictures of the codec configuration's size.

    `gop` tells GOPs of one decoder apart: a decoder may go on in a GOP where the last request for it ended. Without it,
    the GOP is decoded from its start.
    """

    config: CodecConfig
    pattern: Pattern
    data: Buffer
    frames: tuple[int, ...]
    places: tuple[tuple[Place, ...], ...]
    geometries: Sequence[Geometry]
    gop: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False)
class Target:
    """A tensor to write frames into, and what their pixels become.

    `slots` is (clips, frames, channels, height, width), with any strides. Slot n is frame n % frames of clip
    n // frames.
    """

    pixels: PixelFormat
    slots: torch.Tensor

    def slot(self, number: int) -> torch.Tensor:
        """The memory of a slot: (channels, height, width)."""
        clip, frame = divmod(number, self.slots.shape[1])
        return self.slots[clip, frame]


class DeviceFailsError(ToolError):
    """A device does not decode what the CPU does. With more memory, or another time, it may."""


class DecodeCost(NamedTuple):
    """What decoding a GOP took; `warm` says that the decoder for its codec configuration was open already."""

    packets: int
    conversion_seconds: float
    warm: bool


class Decoder(Protocol):
    """Decodes GOPs, with the same result in any order. Any number of threads may call it at the same time.

    A decoder keeps what is costly to set up (contexts, surfaces) between calls, in bounded number. After an error it
    discards what may be in a bad state.
    """

    name: str
    device: torch.device
    """Where it writes frames: the output has to be on this device."""

    def check_process(self) -> None:
        """UsageError in a process that the decoder does not work in, before memory of `device` is asked for there."""
        ...

    def request(self) -> AbstractContextManager[None]:
        """Around the decoding of all GOPs of a request, in the thread that asked for it.

        Afterwards, work that this thread gives the device finds the frames written. The host does not wait for that.
        """
        ...

    def decode(self, request: GopRequest, targets: Sequence[Target]) -> DecodeCost:
        """Write the requested frames into their places.

        The targets are on `device`. DecodeError when a frame does not come out, or has another size than the manifest
        says; CorruptDataError when the data is not a GOP of this pattern. After an error the content of the requested
        slots is undefined.
        """
        ...
