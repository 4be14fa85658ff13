"""Who asks, where what is asked for is not told: by the frames of the callers, the nearest first."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

_OF_LOADERS = ("torch.utils.data.", "torchdata.")


def callers() -> Iterator[FrameType]:
    """The frame that asks for them, its caller, the caller of that, and so on."""
    frame = sys._getframe().f_back  # noqa: SLF001  # the documented way to the callers
    while frame is not None:
        yield frame
        frame = frame.f_back


class TakingLoader:
    """The DataLoader that takes the draw that is asked for, if one does: it tells samplers nothing of deliveries.

    Its iterator is not kept alive. A copy knows of none.
    """

    def __init__(self) -> None:
        of_loaders = _loaders_that_ask()
        self.is_out_of_order = any(getattr(each, "_in_order", True) is False for each in of_loaders)
        """Whether it has in_order=False: a batch may come before others whose draws were taken before its own."""
        reads_ahead = [each for each in of_loaders if hasattr(each, "_send_idx") and hasattr(each, "_rcvd_idx")]
        self._iterator = weakref.ref(reads_ahead[0]) if reads_ahead else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterator": None}

    def delivered(self, taken: int) -> int:
        """How many of so many draws that it took are in batches that it delivered; all where it does not read ahead, or
        is gone. It may be up to a batch less where its last one is smaller."""
        iterator: Any = None if self._iterator is None else self._iterator()
        if iterator is None or not iterator._send_idx or self.is_out_of_order:  # noqa: SLF001  # nothing else tells
            return taken
        return int(taken * iterator._rcvd_idx // iterator._send_idx)  # noqa: SLF001


def _loaders_that_ask() -> list[Any]:
    """What of torch's loaders is among the callers. Nothing here may hold a frame that holds itself: the loader's
    processes would live until garbage is collected, also those of a loop that was left."""
    of_loaders = []
    for asking in map(_owner, callers()):
        if type(asking).__module__.startswith(_OF_LOADERS):
            of_loaders.append(asking)  # noqa: PERF401  # a list comprehension's frame would hold itself
    return of_loaders


def _owner(frame: FrameType) -> Any:
    return frame.f_locals.get("self")
