"""Where sources are looked at: on this machine, or on those of the cluster as soon as they have joined."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError

from ...prep.options import Options
from ..finding.source import Source
from .look import Looked, There, look_at

# Here a fraction of what counts as many is looked at at a time. Whether machines have joined is asked so often.
_PARTS, _JOINED_SECONDS = 4, 0.05

LookElsewhere = Callable[[Sequence[Source], Options, There, int], Sequence[Looked | None]]
"""Looks on other machines: gets sources, the options, what the dataset has, and how many sources of their window lie in
stores. None for those that could not be read there."""


class Looking:
    """Where sources are looked at: here, or `elsewhere` as soon as that is set, if `many_sources` or more are left.
    These wait for it where `is_joining`: looking at them here takes time of the cores that start Ray. The main thread
    sets both, while the thread that plans looks."""

    def __init__(self, many_sources: int) -> None:
        self.elsewhere: LookElsewhere | None = None
        self.is_joining = False
        self._many_sources = max(1, many_sources)

    def look_at(
        self,
        sources: Sequence[Source],
        options: Options,
        there: There,
        *,
        num_in_store: int,
        is_over: Callable[[], bool] = bool,
    ) -> list[Looked]:
        """Like the function `look_at`. Here only some sources are looked at at a time: the machines that look at the
        others may join meanwhile."""
        looked: list[Looked] = []
        while len(looked) < len(sources):
            left = sources[len(looked) :]
            while self.is_joining and self.elsewhere is None and len(left) >= self._many_sources:
                if is_over():
                    raise CancelledError
                time.sleep(_JOINED_SECONDS)
            if self.elsewhere is not None and len(left) >= self._many_sources:
                found = self.elsewhere(left, options, there, num_in_store)
            else:
                left = left[: max(1, self._many_sources // _PARTS)]
                found = [None] * len(left)
            own = look_at(
                [source for source, other in zip(left, found, strict=True) if other is None], options, there,
                num_in_store=num_in_store, is_over=is_over,
            )  # fmt: skip
            rest = iter(own)
            looked += [next(rest) if other is None else other for other in found]
        return looked
