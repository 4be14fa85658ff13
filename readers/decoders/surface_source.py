"""The interface between a decoder of a device and what decodes for it: pictures as surfaces in the device's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..gpu.surfaces import Surface
from ..plan import Place
from .base import GopRequest


@dataclass(frozen=True)
class DecodedGop:
    """The wanted pictures of a GOP, each with its places, and how many packets were decoded for them."""

    pictures: tuple[tuple[Surface, tuple[Place, ...]], ...]
    packets: int


class SurfaceSource(Protocol):
    """An open decoder of one codec configuration, for one thread at a time. After an error it is not used again."""

    def decode(self, request: GopRequest) -> DecodedGop:
        """Decode the wanted frames of a GOP. Errors are those of `Decoder.decode`.

        The surfaces are written on the decoder stream, and may still be unwritten when this returns. Their memory is
        theirs until the caller drops them, and then until what the caller launched on that stream has ended.
        """
        ...
