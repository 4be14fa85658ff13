"""Batches of which each is of one of several datasets: which there are in an epoch, and which clips each has.

    dataset 0, batches of 2    | a b | c d | e          a batch is a number: those of dataset 0 first
    dataset 1, batches of 3    | p q r | s t u | v w    e, v and w make no whole batch
    numbers                      0     1   2     3
    an epoch                     2 0 3 1                a permutation of the numbers
    with drop_last=False         2 0 3 1 4 5            v w is batch 4, and e batch 5: the smaller ones come last

Pure functions of the datasets' orders, which are evaluated where they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import UsageError
from ...lazy import lazy
from ...manifests.ragged import Array
from ...wording import counted
from ..which_clips.clips import Clips
from ..which_clips.keyed import key, permuted
from ..which_clips.mixing import SEED_FOR_EACH, MixedIndex, seeds_of_datasets
from .bound_order import BoundOrder, Order
from .kept_buckets import KeptClips


@dataclass(frozen=True, eq=False)
class BucketBatches:
    """The batches of each dataset: whole ones of dataset k are of `sizes[k]` clips, in the order `orders[k]`. What is
    left over of a dataset is a smaller batch, unless `drop_last`."""

    clips: MixedIndex
    orders: Sequence[BoundOrder]
    sizes: Sequence[int]
    drop_last: bool = True

    @lazy
    def firsts(self) -> Array:
        """The number of each dataset's first whole batch, and how many of these there are: int64, (datasets + 1,)."""
        counts = [order.length // size for order, size in zip(self.orders, self.sizes, strict=True)]
        return np.cumsum([0, *counts])

    @property
    def num_whole(self) -> int:
        """How many whole batches there are: their numbers are the first ones."""
        return int(self.firsts[-1])

    @lazy
    def smaller(self) -> tuple[tuple[int, int], ...]:
        """The datasets of the batches that are not whole, and how many clips each has: those of more come first."""
        if self.drop_last:
            return ()
        left = [order.length % size for order, size in zip(self.orders, self.sizes, strict=True)]
        there = [(dataset, count) for dataset, count in enumerate(left) if count]
        return tuple(sorted(there, key=lambda each: -each[1]))

    def __len__(self) -> int:
        return self.num_whole + len(self.smaller)

    def num_of(self, rank: int) -> int:
        """Of how many batches this rank has clips: those that it has none of are the last ones."""
        return self.num_whole + sum(count > rank for _, count in self.smaller)

    def dataset_of(self, number: int) -> int:
        """The dataset of the batch of this number."""
        return self._place(number)[0]

    def _place(self, number: int) -> tuple[int, range]:
        """The dataset of the batch of this number, and the positions that it has in the order of that."""
        if number >= self.num_whole:
            dataset, count = self.smaller[number - self.num_whole]
            length = self.orders[dataset].length
            return dataset, range(length - count, length)
        dataset = int(np.searchsorted(self.firsts, number, side="right")) - 1
        first = (number - int(self.firsts[dataset])) * self.sizes[dataset]
        return dataset, range(first, first + self.sizes[dataset])

    def draws(self, epoch: int, number: int, rank: int = 0, world_size: int = 1) -> list[int]:
        """The clips that a rank has of the batch of this number, as draws of all datasets: a run of them. Each rank has
        as many, or the first ones have one more."""
        dataset, positions = self._place(number)
        each, more = divmod(len(positions), world_size)
        first = positions.start + rank * each + min(rank, more)
        own = self.orders[dataset].draws(epoch, np.arange(first, first + each + (rank < more)))
        draws: list[int] = self.clips.joined(dataset, own).tolist()
        return draws

    def example(self, epoch: int, dataset: int) -> int:
        """A clip of the dataset, as a draw of all datasets."""
        first: int = self.clips.joined(dataset, self.orders[dataset].draws(epoch, np.arange(1))).tolist()[0]
        return first


@dataclass(frozen=True)
class BatchOrder:
    """An order of batches, for a sampler of them: its draws are epoch * N + number, with N batches. Whole ones come in
    random order."""

    sizes: tuple[int, ...]
    orders: tuple[Order, ...]
    drop_last: bool = True

    @property
    def may_repeat(self) -> bool:
        """Whether each epoch may be meant to have the same clips: where those of each dataset are in sequence."""
        return all(map(_may_repeat, self.orders))

    def batches(self, clips: Clips, seed: int) -> BucketBatches:
        """The batches that are put into this order. UsageError for a dataset that would never be read."""
        mixed = clips if isinstance(clips, MixedIndex) else MixedIndex((clips,))
        for dataset, part in enumerate(mixed.parts):
            if not len(part):
                raise UsageError(
                    f"dataset {dataset} of MixedClips has no clips: leave it out, with its batch size (if videos are "
                    "too short for its clips, its too_short names them)"
                )
        seeds = seeds_of_datasets(len(mixed.parts), seed, "dataset of buckets")
        bound = tuple(
            # What is kept is divided among all datasets, by what all of them draw alike.
            order.bound(part, seed if isinstance(order, KeptClips) else own)
            for order, part, own in zip(self.orders, mixed.parts, seeds, strict=True)
        )
        for dataset, (order, size) in enumerate(zip(bound, self.sizes, strict=True)):
            if order.window > 1:
                raise UsageError(
                    f"the order of dataset {dataset} shuffles within a window, which batches of other datasets would "
                    "lie between: give it Chunked(chunk) without one"
                )
            order.check_part("buckets")
            order.check_batch(size, f"the batch size of dataset {dataset} of MixedClips")
            if self.drop_last and order.length < size:
                raise UsageError(
                    f"dataset {dataset} of MixedClips has {counted(order.length, 'sample')} in an epoch, fewer than "
                    f"its batches of {size}, so that it would never be read: give it smaller batches, leave it out, or "
                    "take drop_last=False"
                )
        return BucketBatches(mixed, bound, self.sizes, self.drop_last)

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        """As of any other order."""
        batches = self.batches(clips, seed)
        count, whole = len(batches), batches.num_whole

        def draws(epoch: int, positions: Array) -> Array:
            numbers = np.array(positions, dtype=np.int64)
            among = numbers < whole
            numbers[among] = permuted(key(seed, "buckets", epoch), whole, numbers[among])
            return epoch * count + numbers

        seeded = [order for order in self.orders if not isinstance(order, KeptClips) and not _may_repeat(order)]
        each = [SEED_FOR_EACH] if seeded else []
        described = ", ".join([*each, *(order.fingerprint for order in batches.orders)])
        rest = "" if self.drop_last else " and smaller ones"
        return BoundOrder(count, draws, f"batches of {list(self.sizes)}{rest} of [{described}]")


def _may_repeat(order: Order) -> bool:
    return getattr(order, "may_repeat", False)
