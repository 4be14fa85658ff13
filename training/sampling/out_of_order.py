"""Whether the batches of a DataLoader come in another order than they are counted in."""

from __future__ import annotations

import sys
from types import FrameType

_OF_LOADERS = ("torch.utils.data.", "torchdata.")


def comes_out_of_order() -> bool:
    """Whether a DataLoader with in_order=False takes the draw that is asked for: a batch may come before others whose
    draws were taken before its own.

    It tells a sampler nothing of this, so this looks at who takes the draw.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # the documented way to the callers
    while frame is not None:
        iterator = frame.f_locals.get("self")
        if type(iterator).__module__.startswith(_OF_LOADERS) and getattr(iterator, "_in_order", True) is False:
            return True
        frame = frame.f_back
    return False
