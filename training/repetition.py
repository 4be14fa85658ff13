"""Notices random clips that are read again and again with the same choices."""

from __future__ import annotations

from collections.abc import Sequence

from ..warned import warn
from .clips import Draw
from .shared import SharedNumbers

# Once or twice may be meant.
_READ_TWICE = 2


def notice_repetition(shared: SharedNumbers, draws: Sequence[int], count: int, *, fixed: str) -> bool:
    """Count these draws of a dataset of random clips, of which there are `count` in an epoch.

    DatasetWarning, and True, where they are read for the third time without another epoch. `fixed` says how clips would
    stay the same without it.
    """
    plain = sum(not isinstance(draw, Draw) for draw in draws)
    if not plain or not count:
        return False
    shared.count_read(plain)
    if shared.read <= _READ_TWICE * count:
        return False
    warn(
        "random clips are read for the third time with the same choices: call dataset.set_epoch(epoch) in each epoch, "
        f"or use shortgop.ElasticSampler (for clips that are to stay the same, {fixed})"
    )
    return True
