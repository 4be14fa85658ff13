"""Which clips each batch of a loader has: as a sampler plans whole batches, or so many indices of any other sampler."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from reprlib import repr as shortened
from typing import Any, Protocol

from ...errors import UsageError, WrongTypeError
from ...warned import warn
from ..sampling.bucket_sampler import BucketSampler
from ..sampling.sampler import ElasticSampler
from ..sampling.slices import BatchKind, PlannedBatch
from ..which_clips.offsets import at_least_one
from .messages import ReadsItems

Planner = ElasticSampler | BucketSampler
"""Samplers that plan whole batches, and have states."""
Place = tuple[int, int]
"""A planner's epoch, and how often it had moved."""


class SampledBatches(Protocol):
    """The batches of a loader, pass by pass."""

    batch_size: int
    """How many clips this rank has of a batch at most."""

    def __len__(self) -> int:
        """How many batches a whole epoch has for this rank."""

    @property
    def window_batches(self) -> int:
        """Over how many batches clips are shuffled; 1 where they are not."""

    def planned(self) -> Iterator[PlannedBatch]:
        """The batches of a pass."""

    def kinds(self, first: PlannedBatch) -> tuple[BatchKind, ...]:
        """The kinds of batches; `first` is the first one of the pass."""

    def place(self) -> Place:
        """Where a pass that begins now begins."""

    def notice_move(self, began: Place, *, warned: bool) -> bool:
        """Whether the sampler moved since a pass began there; a DatasetWarning says so, unless one did already."""

    def end_epoch(self, began: Place) -> None:
        """Note that a pass that began there delivered all of its batches."""

    def planner(self) -> Planner:
        """The sampler that has states. UsageError where there is none."""


def batches_of(dataset: ReadsItems, sampler: Any, batch_size: int | None) -> SampledBatches:
    """The batches of a dataset that a sampler and a batch size make. UsageError where these do not go together."""
    if sampler is None:
        raise UsageError(_no_sampler(batch_size))
    size = None if batch_size is None else at_least_one(batch_size, "batch_size")
    if isinstance(sampler, Planner):
        if not sampler.is_for(dataset):
            raise UsageError(
                f"the sampler is of another dataset, or of other clips: make one of this dataset ({dataset!r})"
            )
        if size not in (None, sampler.most_per_batch):
            raise UsageError(f"batch_size is {size}, and the sampler's is {sampler.most_per_batch}: leave it out")
        return _OfPlanner(sampler)
    if not hasattr(sampler, "__iter__"):
        raise WrongTypeError(
            f"sampler is {sampler!r}; it has to be a shortgop.ElasticSampler, or another sampler with batch_size"
        )
    if size is None:
        raise UsageError(
            "batch_size is missing: with a sampler other than ElasticSampler it says how large batches are (one that "
            "yields whole batches is a DataLoader's batch_sampler)"
        )
    return _OfIndices(dataset, sampler, size)


class _OfPlanner:
    def __init__(self, sampler: Planner) -> None:
        self._sampler = sampler
        self._epochs = sampler.sampler if isinstance(sampler, BucketSampler) else sampler
        self.batch_size = sampler.most_per_batch

    def __len__(self) -> int:
        return self._sampler.num_batches

    @property
    def window_batches(self) -> int:
        return self._sampler.window_batches

    def planned(self) -> Iterator[PlannedBatch]:
        return self._sampler.planned_batches()

    def kinds(self, first: PlannedBatch) -> tuple[BatchKind, ...]:
        return self._sampler.kinds(first)

    def place(self) -> Place:
        return self._epochs.epoch, self._epochs.moves

    def notice_move(self, began: Place, *, warned: bool) -> bool:
        epoch, moves = began
        if self._epochs.moves == moves:
            return False
        if not warned:
            self._epochs.warn_of_move(epoch)
        return True

    def end_epoch(self, began: Place) -> None:
        self._epochs.end_epoch(*began)

    def planner(self) -> Planner:
        return self._sampler


class _OfIndices:
    """Batches without states: an epoch of them is whatever the sampler yields in a pass."""

    def __init__(self, dataset: ReadsItems, sampler: Iterable[int], batch_size: int) -> None:
        self._dataset, self._sampler = dataset, sampler
        self.batch_size = batch_size

    def __len__(self) -> int:
        samples = len(self._sampler)  # type: ignore[arg-type]
        return (samples + self.batch_size - 1) // self.batch_size

    @property
    def window_batches(self) -> int:
        return 1

    def planned(self) -> Iterator[PlannedBatch]:
        draws, planned = iter(self._sampler), False
        while batch := list(itertools.islice(draws, self.batch_size)):
            planned = True
            first: object = batch[0]
            if isinstance(first, (list, tuple)):
                raise WrongTypeError(
                    f"the sampler, a {type(self._sampler).__name__}, yields batches such as {shortened(first)}, and "
                    "ClipLoader makes batches itself, of batch_size clips: give it a sampler that yields one index "
                    "after the other, or a DataLoader this one as batch_sampler"
                )
            yield PlannedBatch(self._dataset.full_draws(batch))
        if not planned and draws is self._sampler:
            warn(
                f"this pass has no batches, since the sampler is a {type(self._sampler).__name__}, which is used up "
                "after one pass: give a list, or an object with an __iter__ that begins anew, such as "
                "shortgop.ElasticSampler"
            )

    def kinds(self, first: PlannedBatch) -> tuple[BatchKind, ...]:
        return (BatchKind(self.batch_size, first.draws[0]),)

    def place(self) -> Place:
        return 0, 0

    def notice_move(self, began: Place, *, warned: bool) -> bool:  # noqa: ARG002  # nothing moves it
        return False

    def end_epoch(self, began: Place) -> None:
        """Nothing: the sampler begins anew by itself."""

    def planner(self) -> Planner:
        raise UsageError(f"the sampler is a {type(self._sampler).__name__}, which has no states; take ElasticSampler")


def _no_sampler(batch_size: Any) -> str:
    size = 32 if batch_size is None else batch_size
    return (
        "sampler is missing: it says in which order clips come and how large batches are. For shuffled clips give "
        f"ClipLoader(dataset, shortgop.ElasticSampler(dataset, global_batch_size={size!r})), which divides batches "
        "among the ranks; for every clip once, in order, give the sampler order=shortgop.Sequential(), drop_last=False"
    )
