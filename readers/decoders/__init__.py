"""Decoders by name. Each lives in a module of its own, which is imported when it is asked for."""

from __future__ import annotations

from ...errors import UsageError
from ..output import Output
from .base import DecodeCost, Decoder, GopRequest

__all__ = ["DECODERS", "DecodeCost", "Decoder", "GopRequest", "make_decoder"]

DECODERS = ("pyav", "torchcodec")


def make_decoder(name: str, output: Output) -> Decoder:
    """The decoder of that name, for such an output; "auto" takes the fastest, which is "pyav".

    UsageError for a name that there is none of or an output that it does not make, ToolError when its library does
    not load.
    """
    if name in ("auto", "pyav"):
        from .pyav import PyavDecoder

        return PyavDecoder(output)
    if name == "torchcodec":
        from .torchcodec import TorchcodecDecoder

        return TorchcodecDecoder(output)
    raise UsageError(f'decoder is {name!r}; it can be "auto", {", ".join(f"{known!r}" for known in DECODERS)}')
