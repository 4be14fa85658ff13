"""What a decoder is to the reader: something that turns the bytes of one GOP into slots of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from ...manifests.records import CodecConfig, Pattern

Buffer = bytes | memoryview


@dataclass(frozen=True)
class GopRequest:
    """Frames wanted of one GOP, and what it takes to decode them.

    `data` is the GOP's moof + mdat.
    Frame `frames[i]` of the GOP (0 is the first it shows; ascending, each once) goes to slot `slots[i]` of the output.
    """

    config: CodecConfig
    pattern: Pattern
    data: Buffer
    frames: tuple[int, ...]
    slots: tuple[int, ...]


class DecodeCost(NamedTuple):
    """What it took to decode a GOP; `warm` says that no decoder had to be opened for it."""

    packets: int
    conversion_seconds: float
    warm: bool


class Decoder(Protocol):
    """Decodes GOPs, each on its own. May be called by any number of threads at the same time.

    A decoder keeps what is costly to set up (contexts, surfaces) from call to call, but never more than a fixed
    number of them, and throws away what an error may have left in a bad state.
    """

    name: str
    device: torch.device
    """Where the frames come out: the output has to be there."""

    def decode(self, request: GopRequest, out: torch.Tensor) -> DecodeCost:
        """Write the frames asked for into `out`, (slots, ...), contiguous, on `device`: each as the `Output` that the
        decoder was made for says.

        DecodeError when a frame does not come out, or not in the size that the manifest says; CorruptDataError when
        the data is not a GOP that follows the pattern. Slots may then hold anything.
        """
        ...
