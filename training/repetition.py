"""Notices random clips that are read again and again with the same choices."""

from __future__ import annotations

from collections.abc import Sequence

from ..warned import warn
from .clips import Draw
from .ranks import num_ranks
from .shared import SharedNumbers

# Once or twice may be meant.
_READ_TWICE = 2


def notice_repetition(shared: SharedNumbers, draws: Sequence[int], count: int, *, fixed: str) -> bool:
    """Count these draws of a dataset of random clips, of which there are `count` in an epoch.

    DatasetWarning, and True, where they are read for the third time without another epoch, or where one comes several
    times in what is read together. `fixed` says how clips would stay the same without it.
    """
    plain = [int(draw) for draw in draws if not isinstance(draw, Draw)]
    if not plain or not count:
        return False
    if len(set(plain)) < len(plain):
        twice = next(index for place, index in enumerate(plain) if index in plain[:place])
        warn(
            f"index {twice} comes several times in a batch, and stands for the same random clip each time: a sampler "
            "that repeats indices, such as WeightedRandomSampler, has no other clips for them. Take "
            "shortgop.ElasticSampler, with order=shortgop.Weighted(weights) or shortgop.ClassBalanced(labels), where "
            f"each is drawn anew (for clips that are to stay the same, {fixed})"
        )
        return True
    # Indices from `count` on are draws of later epochs. Of several ranks each reads a part of every epoch, which is
    # another one each time: only where it has met an index again does it know that an epoch came again.
    times = shared.count_read([index % count for index in plain if index < count], count)
    if times <= _READ_TWICE or shared.read * num_ranks() <= _READ_TWICE * count:
        return False
    warn(
        "random clips are read for the third time with the same choices: call dataset.set_epoch(epoch) in each epoch, "
        f"or use shortgop.ElasticSampler (for clips that are to stay the same, {fixed})"
    )
    return True
