"""Surfaces of a decoder into their slots of a batch, many at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..frame_format import Geometry, PixelFormat
from .surfaces import Surface
from .torch_conversion import write_surface


def convert(
    surfaces: Sequence[Surface], geometries: Sequence[Geometry], slots: Sequence[torch.Tensor], pixels: PixelFormat
) -> None:
    """Write a part of each surface into its slot, with one pixel format.

    Slots are (channels, height, width), with any strides, on the device of the surfaces. Geometry i lies within surface
    i. A surface that several slots need comes once for each. On a GPU all work goes to the current stream, and nothing
    waits for it: until an event after this call has passed, the caller must not let a surface be written again.

    DecodeError when a slot has another shape, a part does not lie within its surface, or a matrix is not known.
    """
    for surface, geometry, slot in zip(surfaces, geometries, slots, strict=True):
        write_surface(surface, geometry, slot, pixels)
