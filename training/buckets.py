"""Batches of which each is of one of several datasets: which there are in an epoch, and which clips each has.

    dataset 0, batches of 2    | a b | c d | e          a batch is a number: those of dataset 0 first
    dataset 1, batches of 3    | p q r | s t u | v w    e, v and w make no whole batch
    numbers                      0     1   2     3
    an epoch                     2 0 3 1                a permutation of the numbers

Pure functions of the datasets' orders, which are evaluated where they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from ..manifests.ragged import Array, lazy
from ..wording import counted
from .clips import Clips
from .keyed import key, permuted
from .mixing import MixedIndex
from .orders import BoundOrder, Order


@dataclass(frozen=True, eq=False)
class BucketBatches:
    """The whole batches of each dataset: those of dataset k are of `sizes[k]` clips, in the order `orders[k]`."""

    clips: MixedIndex
    orders: Sequence[BoundOrder]
    sizes: Sequence[int]

    @lazy
    def firsts(self) -> Array:
        """The number of each dataset's first batch, and how many batches there are: int64, (datasets + 1,)."""
        counts = [order.length // size for order, size in zip(self.orders, self.sizes, strict=True)]
        return np.cumsum([0, *counts])

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def dataset_of(self, number: int) -> int:
        """The dataset of the batch of this number."""
        return int(np.searchsorted(self.firsts, number, side="right")) - 1

    def draws(self, epoch: int, number: int, rank: int = 0, world_size: int = 1) -> list[int]:
        """The clips that a rank has of the batch of this number, as draws of all datasets: a run of them, of which
        each rank has as many."""
        dataset = self.dataset_of(number)
        share = self.sizes[dataset] // world_size
        first = (number - int(self.firsts[dataset])) * self.sizes[dataset] + rank * share
        own = self.orders[dataset].draws(epoch, np.arange(first, first + share))
        draws: list[int] = self.clips.joined(dataset, own).tolist()
        return draws


@dataclass(frozen=True)
class BatchOrder:
    """An order of batches, for a sampler of them: its draws are epoch * N + number, with N batches."""

    sizes: tuple[int, ...]
    orders: tuple[Order, ...]

    def batches(self, clips: Clips, seed: int) -> BucketBatches:
        """The batches that are put into this order. UsageError for a dataset that has no whole batch."""
        mixed = clips if isinstance(clips, MixedIndex) else MixedIndex((clips,))
        for dataset, part in enumerate(mixed.parts):
            if not len(part):
                raise UsageError(
                    f"dataset {dataset} of MixedClips has no clips: leave it out, with its batch size (if videos are "
                    "too short for its clips, its too_short names them)"
                )
        bound = tuple(order.bound(part, seed) for order, part in zip(self.orders, mixed.parts, strict=True))
        for dataset, (order, size) in enumerate(zip(bound, self.sizes, strict=True)):
            if order.window > 1:
                raise UsageError(
                    f"the order of dataset {dataset} shuffles within a window, which batches of other datasets would "
                    "lie between: give it Chunked(chunk) without one"
                )
            if order.length < size:
                raise UsageError(
                    f"dataset {dataset} of MixedClips has {counted(order.length, 'sample')} in an epoch, fewer than "
                    f"its batches of {size}, so that it would never be read: give it smaller batches, or leave it out"
                )
        return BucketBatches(mixed, bound, self.sizes)

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        """As of any other order."""
        batches = self.batches(clips, seed)
        count = len(batches)

        def draws(epoch: int, positions: Array) -> Array:
            return epoch * count + permuted(key(seed, "buckets", epoch), count, positions)

        described = ", ".join(order.fingerprint for order in batches.orders)
        return BoundOrder(count, draws, f"batches of {list(self.sizes)} of [{described}]")
