"""Who asks, where what is asked for is not told: by the frames of the callers, the nearest first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

_OF_LOADERS = ("torch.utils.data.", "torchdata.")


def callers() -> Iterator[FrameType]:
    """The frame that asks for them, its caller, the caller of that, and so on."""
    frame = sys._getframe().f_back  # noqa: SLF001  # the documented way to the callers
    while frame is not None:
        yield frame
        frame = frame.f_back


def comes_out_of_order() -> bool:
    """Whether a DataLoader with in_order=False takes the draw that is asked for: a batch may come before others whose
    draws were taken before its own. It tells a sampler nothing of this."""
    return any(
        type(asks).__module__.startswith(_OF_LOADERS) and getattr(asks, "_in_order", True) is False
        for asks in (frame.f_locals.get("self") for frame in callers())
    )
