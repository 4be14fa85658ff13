"""What an order is once it is bound to a dataset, and what samplers ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...errors import UsageError
from ...manifests.ragged import Array
from ..which_clips.clips import Clips


@dataclass(frozen=True, eq=False)
class BoundOrder:
    """An order of one dataset: how many positions an epoch has, and the draws at positions of an epoch.

    `draws(epoch, positions)` takes and returns int64, (positions,). `fingerprint` differs where draws do. `chunk` is
    how many neighbours come together, `window` how long the runs of positions are within which they are then shuffled.
    Batches have to be of a multiple of `batch` samples; `batches` says in a message which order that is and why, and is
    the fingerprint where it is left out. With `goes_on` each batch goes on where the one before it ended: batches are
    of just so many samples, are read whole and in their order, and no others come between them.
    """

    length: int
    draws: Callable[[int, Array], Array]
    fingerprint: str
    chunk: int = 1
    window: int = 1
    batch: int = 1
    batches: str = ""
    goes_on: bool = False

    def __post_init__(self) -> None:
        if not self.batches:
            object.__setattr__(self, "batches", self.fingerprint)

    def check_batch(self, size: int, what: str) -> None:
        """UsageError for batches of this size, of which the message calls the number `what`, that the order is not
        for."""
        if size % self.batch or (self.goes_on and size != self.batch):
            multiple = "" if self.goes_on else ", or a multiple"
            raise UsageError(f"{what} is {size}, and the order is {self.batches}: make it {self.batch}{multiple}")

    def check_part(self, whole: str) -> None:
        """UsageError where the order is one of several in a `whole`, whose batches come in an order of its own."""
        if self.goes_on:
            raise UsageError(
                f"the order of a dataset is {self.batches}, and in {whole} clips come in another order than that: give "
                "it as the order= of an ElasticSampler, which takes MixedClips as well"
            )

    def check_in_order(self, *, out_of_order: bool) -> None:
        """UsageError where batches go on from one to the next, and a loader delivers them out of order."""
        if self.goes_on and out_of_order:
            raise UsageError(
                f"the order is {self.batches}, whose batches go on from one to the next, and the DataLoader has "
                "in_order=False, so that they come in another order: leave in_order out"
            )


class Order(Protocol):
    """What ElasticSampler needs of an order."""

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        """The order of this dataset under this seed."""
