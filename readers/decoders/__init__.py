"""Decoders by name. Each lives in a module of its own, which is imported when it is asked for."""

from __future__ import annotations

from ...manifests.errors import UsageError
from .base import Decoder, GopRequest

__all__ = ["DECODERS", "Decoder", "GopRequest", "make_decoder"]

DECODERS = ("pyav", "torchcodec")


def make_decoder(name: str) -> Decoder:
    """The decoder of that name; "auto" takes the fastest, which is "pyav".

    UsageError for a name that there is none of, ToolError when its library does not load.
    """
    if name in ("auto", "pyav"):
        from .pyav import PyavDecoder

        return PyavDecoder()
    if name == "torchcodec":
        from .torchcodec import TorchcodecDecoder

        return TorchcodecDecoder()
    raise UsageError(f'decoder is {name!r}; it can be "auto", {", ".join(f"{known!r}" for known in DECODERS)}')
