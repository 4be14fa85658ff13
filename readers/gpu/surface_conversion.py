"""Surfaces of a decoder into their slots of a batch, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

import torch

from ...warned import warn
from ..frame_format import Geometry, PixelFormat
from .surfaces import Surface
from .torch_conversion import write_surface
from .triton_conversion import launch, why_not_triton


class ConversionWay(NamedTuple):
    """What converts surfaces on a device; and where that is plain torch, why it is not Triton."""

    name: Literal["triton", "torch"]
    reason: str


def conversion_way(device: torch.device) -> ConversionWay:
    """What `convert` uses on this device. The first call on a GPU compiles a kernel, in about a second."""
    reason = why_not_triton(device)
    return ConversionWay("torch" if reason else "triton", reason)


@cache
def tell_once(device: torch.device, reason: str) -> None:
    """DatasetWarning that the kernel does not run on a GPU, and what it wants."""
    warn(
        f"frames are converted on {device} by plain torch, and not by the kernel: {' '.join(reason.split())[:500]}. "
        "Triton wants a C compiler, Python's headers, and a folder for its cache that can be written (TRITON_CACHE_DIR)"
    )


def convert(
    surfaces: Sequence[Surface], geometries: Sequence[Geometry], slots: Sequence[torch.Tensor], pixels: PixelFormat
) -> None:
    """Write a part of each surface into its slot, with one pixel format.

    Slots are (channels, height, width), with any strides, on the device of the surfaces. Geometry i lies within surface
    i. A surface that several slots need comes once for each. On a GPU all work goes to the current stream, and nothing
    waits for it: until an event after this call has passed, the caller must not let a surface be written again.

    DecodeError when a slot has another shape, a part does not lie within its surface, or a matrix is not known.
    """
    if not slots:
        return
    device = slots[0].device
    reason = why_not_triton(device)
    if not reason:
        launch(surfaces, geometries, slots, pixels)
        return
    if device.type == "cuda":
        tell_once(device, reason)
    for surface, geometry, slot in zip(surfaces, geometries, slots, strict=True):
        write_surface(surface, geometry, slot, pixels)
