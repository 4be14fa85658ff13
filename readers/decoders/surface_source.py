"""The interface between a decoder of a device and what decodes for it: pictures as surfaces in the device's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..gpu.surfaces import Surface
from ..plan import Place
from .base import GopRequest

Pictures = Sequence[tuple[Surface, tuple[Place, ...]]]
"""Wanted pictures of a GOP, each with its places."""


class SurfaceSource(Protocol):
    """An open decoder for one thread at a time. After an error it is not used again."""

    def decode(self, request: GopRequest, convert: Callable[[Pictures], None]) -> int:
        """Decode the wanted frames of a GOP, and call `convert` with them, all at once or in groups.

        Returns how many packets were decoded. Errors are those of `Decoder.decode`.

        The surfaces are written on the calling thread's stream, which `convert` launches its work on: they may still be
        unwritten when it is called, and unread when it returns. It keeps none. The source writes their memory again
        only after that work has ended.
        """
        ...
