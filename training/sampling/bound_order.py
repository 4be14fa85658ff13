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
    Batches have to be of a multiple of `batch` samples; `batches` says in a message which order that is and why. With
    `goes_on` each batch goes on where the one before it ended: batches are of just so many samples, and no others come
    between them.
    """

    length: int
    draws: Callable[[int, Array], Array]
    fingerprint: str
    chunk: int = 1
    window: int = 1
    batch: int = 1
    batches: str = ""
    goes_on: bool = False

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
                f"the order of a dataset is {self.batches}, and in {whole} clips of other datasets would come between: "
                "give it as the order= of an ElasticSampler, which takes MixedClips as well"
            )


class Order(Protocol):
    """What ElasticSampler needs of an order."""

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        """The order of this dataset under this seed."""
