"""Which positions of an epoch each rank reads, batch by batch: arithmetic, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import UsageError
from ..datasets.callers import TakingLoader
from ..which_clips.draws import DrawnFrom, RankShare


@dataclass(frozen=True)
class PlannedBatch:
    """One rank's part of a global batch: its draws in order, and the sampler's state after it, if it has states.

    `ends_window` says that the order shuffles no clip of it with clips of later batches. `kind` is the number of its
    BatchKind.
    """

    draws: Sequence[int]
    state: Mapping[str, Any] | None = None
    ends_window: bool = True
    kind: int = 0


@dataclass(frozen=True)
class BatchKind:
    """Batches whose items have the shapes of the item of the draw `example`: one rank has `batch_size` clips of each,
    or fewer. `chunk` is how many neighbouring clips come together."""

    batch_size: int
    example: int
    chunk: int = 1


@dataclass(frozen=True)
class EpochSlices:
    """The global batches of an epoch of `length` positions, from position `start` on, and one rank's part of each.

    A global batch is `global_batch_size` neighbouring positions, of which each rank has a run: rank r of R those from
    floor(r * m / R) to before floor((r + 1) * m / R) of m. With `drop_last` positions that make no whole batch are left
    out; otherwise they make a smaller one.
    """

    length: int
    global_batch_size: int
    rank: int
    world_size: int
    drop_last: bool
    start: int = 0

    @property
    def num_batches(self) -> int:
        rest = max(0, self.length - self.start)
        return rest // self.global_batch_size if self.drop_last else -(-rest // self.global_batch_size)

    @property
    def most_per_batch(self) -> int:
        """The most positions that this rank has of a batch."""
        return -(-self.global_batch_size // self.world_size)

    @property
    def num_samples(self) -> int:
        """How many positions this rank has."""
        if not self.num_batches:
            return 0
        first, last = self.part(0), self.part(self.num_batches - 1)
        return (self.num_batches - 1) * len(first) + len(last)

    @property
    def num_own_batches(self) -> int:
        """In how many batches this rank has positions."""
        if not self.num_batches:
            return 0
        # All batches but the last are of one size.
        return (self.num_batches - 1) * bool(self.part(0)) + bool(self.part(self.num_batches - 1))

    @property
    def ranks_with_fewer_batches(self) -> int:
        """How many ranks have no position in the last batch."""
        left_over = 0 if self.drop_last else (self.length - self.start) % self.global_batch_size
        return max(0, self.world_size - left_over) if left_over else 0

    def part(self, batch: int) -> range:
        """This rank's positions in a batch."""
        first = self.start + batch * self.global_batch_size
        size = min(self.global_batch_size, self.length - first)
        return range(first + self.rank * size // self.world_size, first + (self.rank + 1) * size // self.world_size)

    def share(self, drawn_from: DrawnFrom, *, equal: bool, goes_on: bool) -> RankShare:
        """What draws say of this rank. Where rows go on, it has as many of each batch, and other ranks may have one row
        more."""
        samples = len(self.part(0)) if goes_on else self.most_per_batch
        return RankShare(
            samples, self.global_batch_size, self.rank, self.world_size, equal, drawn_from=drawn_from, goes_on=goes_on
        )

    def blocks(self, positions: int) -> Iterator[list[range]]:
        """This rank's parts of the batches, some batches at a time: about so many positions, and at least one batch."""
        at_once = max(1, positions * self.world_size // self.global_batch_size)
        for first in range(0, self.num_batches, at_once):
            yield [self.part(batch) for batch in range(first, min(self.num_batches, first + at_once))]


@dataclass
class EpochPass:
    """One pass over what is left of an epoch, whose draws a `loader` takes: how many it took, and those of its first
    batch that were taken `before` it."""

    epoch: int
    slices: EpochSlices
    before: int
    loader: TakingLoader
    taken: int = field(init=False)

    def __post_init__(self) -> None:
        self.taken = self.before

    def begun(self) -> int:
        """Of how many global batches the loader delivered samples."""
        came = self.before + self.loader.delivered(self.taken - self.before)
        if came >= self.slices.num_samples:
            return self.slices.num_batches
        return -(-came // len(self.slices.part(0)))

    def check(self, batches: int) -> None:
        """UsageError where so many batches did not come yet, or where those that came may not be the first ones."""
        if batches > (begun := self.begun()):
            raise UsageError(
                f"batches is {batches}, and samples of only {begun} global batches came so far: this rank has "
                f"{self.slices.most_per_batch} of each, so give the DataLoader that batch_size, or count whole global "
                "batches"
            )
        if self.loader.is_out_of_order and 0 < batches < self.slices.num_batches:
            raise UsageError(
                f"batches is {batches}, and the DataLoader has in_order=False, so that they may be others than the "
                f"first {batches}, and a run that goes on would repeat some and leave out others: leave in_order out, "
                "or take the state at the end of an epoch"
            )

    def place(self) -> tuple[int, int]:
        """Where the first batch begins that was not taken whole, and how much of this rank's part of it was taken."""
        slices = self.slices
        if self.taken >= slices.num_samples:
            batches, offset = slices.num_batches, 0
        else:
            batches, offset = divmod(self.taken, len(slices.part(0)))
        return min(slices.start + batches * slices.global_batch_size, slices.length), offset
