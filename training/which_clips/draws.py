"""Draws: the integers that items are asked for by.

A **draw** is round * N + index, where N is the number of clips. The index says which clip it is, the round which time
it is asked for, so that what is random about a clip differs from one epoch to the next and is the same wherever and
whenever the draw is read. A plain Sampler yields indices, which are draws of round 0; ElasticSampler yields draws,
which also say what share of a batch a rank has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arguments import integer
from ...errors import UsageError, WrongTypeError
from ...manifests.ragged import Array
from ...wording import counted


@dataclass(frozen=True)
class DrawnFrom:
    """The dataset that draws stand for clips of. `made_as` is the name of it and its copies; others with the same
    `fingerprint` have the same clips."""

    num_clips: int
    made_as: str
    fingerprint: str


@dataclass(frozen=True)
class RankShare:
    """What a rank has of each global batch: `samples` of `global_batch_size` at most. `equal` says that it has as many
    of all of them, from the first one on that is read, and `goes_on` that each sample goes on from the one at its place
    in the batch before. `drawn_from` is the sampler's dataset."""

    samples: int
    global_batch_size: int
    rank: int
    world_size: int
    equal: bool
    drawn_from: DrawnFrom | None = None
    goes_on: bool = False


class Draw(int):
    """A draw of a sampler that knows of epochs. Plain integers below N may be indices of any epoch.

    `share` says how many of a global batch the sampler's rank has; None where it leaves that open.
    """

    share: RankShare | None = None

    @classmethod
    def of(cls, number: int, share: RankShare) -> Draw:
        draw = cls(number)
        draw.share = share
        return draw

    def __sub__(self, number: Any, /) -> Any:
        found = int(self) - number
        if self.share is None or not isinstance(found, (int, np.integer)):
            return found
        return MovedDraw.of(int(found), self.share)


class MovedDraw(Draw):
    """A draw less a number: no part of the sampler's batch.

    A dataset of the user's own that puts several together asks one of them for it. That one refuses it, as a draw of
    all of them: only in the first epoch would it be the right clip.
    """


def share_of(draws: Sequence[int]) -> RankShare | None:
    """The share that draws which are read as one batch say, if they do: all say the same."""
    return draws[0].share if len(draws) and isinstance(draws[0], Draw) else None


def check_share(draws: Sequence[int] | int) -> None:
    """UsageError where what is read as one batch is more than the rank has of a global batch, or no whole part of that:
    steps would be others than those that the sampler's states count. Where rows go on, also where it is less, as other
    rows would come next. Also where a DataLoader takes draws for batches.
    """
    if isinstance(draws, int):
        share = draws.share if isinstance(draws, Draw) else None
        raise UsageError(
            f"draw {int(draws)} is read as a batch, as by a DataLoader with batch_sampler=ElasticSampler(...)"
            f", which yields draws: give it sampler= and batch_size={share.samples if share else '...'}"
        )
    first: object = draws[0] if len(draws) else None
    if isinstance(first, list):
        raise UsageError(
            f"a batch of {len(first)} draws is read as one, as by a DataLoader whose sampler= yields batches, as "
            "BucketSampler does and torch's BatchSampler: give it as batch_sampler= alone"
        )
    # Clips beside those of the sampler may be read with them.
    draws = [draw for draw in draws if type(draw) is Draw]
    share = share_of(draws)
    if share is not None and share.goes_on and len(draws) != share.samples:
        raise UsageError(
            f"a batch of {counted(len(draws), 'clip')} is read, and rank {share.rank} of {share.world_size} has "
            f"{share.samples} rows of each batch of {share.global_batch_size}, which go on from batch to batch: give "
            f"the DataLoader batch_size={share.samples}. Gradients are accumulated over batches that follow one "
            "another, not over some of the rows at a time"
        )
    if share is not None and len(draws) > share.samples:
        needed = len(draws) * share.world_size
        raise UsageError(
            f"{len(draws)} clips are read as one batch, and rank {share.rank} of {share.world_size} has "
            f"{share.samples} of each global batch of {share.global_batch_size}, so that ElasticSampler.state_after "
            f"would count other batches: give the DataLoader batch_size={share.samples}, or ElasticSampler "
            f"global_batch_size={needed}"
        )
    if share is not None and share.equal and share.samples % len(draws):
        raise UsageError(
            f"{len(draws)} clips are read as one batch, and rank {share.rank} of {share.world_size} has "
            f"{share.samples} of each global batch of {share.global_batch_size}, so that some batches would have clips "
            f"of two global batches, and ElasticSampler.state_after would count other ones: give the DataLoader a "
            f"batch_size that divides {share.samples}"
        )


def checked_epoch(epoch: Any, count: int, what: str = "epoch") -> int:
    """An epoch of a dataset of so many clips, from 0 on; UsageError for one whose draws 64 bits do not hold."""
    number = integer(epoch, what)
    last = (1 << 62) // max(1, count) - 1
    if not 0 <= number <= last:
        raise UsageError(f"{what} is {number}; epochs count from 0" + (f" to {last}" if number > last else ""))
    return number


def in_epoch(draws: Sequence[int], epoch: int, count: int) -> list[int]:
    """Draws, where integers below `count` that are no Draw stand for clips of this epoch."""
    shift = epoch * count
    numbers = [one_draw(each, count) for each in draws]
    return [int(each) if isinstance(each, Draw) or each >= count else each + shift for each in numbers]


def one_draw(key: Any, count: int) -> int:
    """The draw that is asked for by `dataset[key]`; a negative one counts from the end of the first epoch.

    UsageError when it has no such clip, WrongTypeError for several at once and for what is no integer.
    """
    try:
        number = integer(key, "a draw")
    except WrongTypeError:
        if isinstance(key, (slice, list, tuple, range)) or getattr(key, "ndim", 0) > 0:
            raise WrongTypeError(
                f"{_shortened(repr(key))} is no draw: dataset[draw] is the item of one. Several items, read together, "
                "are dataset.__getitems__([0, 1]); a dataset of some clips is torch.utils.data.Subset(dataset, [0, 1])"
            ) from None
        raise
    if number < -count:
        raise UsageError(f"there is no clip {number}: the dataset has {counted(count, 'clip')}")
    if number < 0:
        return number + count
    # A Draw stays one. Alone it is no batch, of which rows that go on would have to be all.
    if isinstance(key, Draw) and key.share is not None and key.share.goes_on:
        return type(key).of(number, replace(key.share, goes_on=False))
    return key if isinstance(key, Draw) else number


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."


def split_draws(draws: Sequence[int], count: int) -> tuple[Array, Array]:
    """Rounds and indices of draws; UsageError for a draw below 0, and where there are no clips."""
    if not count:
        raise UsageError("the dataset has no clips; ClipDataset.too_short names videos that are left out")
    try:
        rounds, indices = np.divmod(np.asarray(draws, dtype=np.int64), count)
    except OverflowError:
        raise UsageError(f"there is no clip {max(draws, key=abs)}; draws are integers of 64 bits") from None
    if len(rounds) and rounds.min() < 0:
        raise UsageError(f"there is no clip {min(draws)}; draws count from 0")
    return rounds, indices
