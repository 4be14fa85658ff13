"""One pass of a loader over what is left of an epoch: plans ahead, gathers what workers read, delivers in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..sampling.slices import PlannedBatch
from .arena import Arena
from .collating import Collate, gathered
from .messages import Done, Work
from .read_units import ReadUnit, units_of


class Pool(Protocol):
    """What does the work: WorkerPool, or CallingProcess."""

    restarts: int

    def add_arena(self, number: int, arena: Arena) -> None: ...

    def submit(self, work: Work) -> None: ...

    def cancel(self, pass_number: int) -> list[int]: ...

    def answers(self, *, wait: bool) -> list[Done]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Division:
    """How batches of a kind are divided into units, see `units_of`; those of a pass's first batch, which is waited for,
    are smaller."""

    num_clips: int
    unit_clips: int
    first_unit_clips: int
    chunk: int


@dataclass(frozen=True)
class Means:
    """What a pass works with. `work_numbers` gives each piece of work a number that no other of the pool has."""

    pool: Pool
    arena_number: int
    arena: Arena
    divisions: Sequence[Division]
    """By the kind of a batch."""
    run_batches: int
    """The most batches that are planned together."""
    work_numbers: Iterator[int]
    collate: Collate


@dataclass(eq=False)
class _Pending:
    """A batch that is being filled."""

    planned: PlannedBatch
    slot: int
    missing: int
    """Clips that were not read yet."""
    rest: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By row, the entries that have no column."""
    error: BaseException | None = None


@dataclass(frozen=True)
class Delivered:
    """A batch, the sampler's state after it, and whether it had to be copied."""

    batch: dict[str, Any]
    state: Mapping[str, Any] | None
    copied: bool


class Delivery:
    """Gives the batches of the runs in order, each when all of its clips were read."""

    def __init__(self, number: int, runs: Iterator[list[PlannedBatch]], means: Means) -> None:
        self.number = number
        self.arena_number, self.arena = means.arena_number, means.arena
        self._runs, self._next_run = runs, next(runs, None)
        self._pool, self._divisions, self._work_numbers = means.pool, means.divisions, means.work_numbers
        self._run_batches, self._collate = means.run_batches, means.collate
        self._has_begun = False
        self._pending: deque[_Pending] = deque()
        self._given: dict[int, tuple[ReadUnit, list[_Pending]]] = {}

    @property
    def is_over(self) -> bool:
        return not self._pending and self._next_run is None

    @property
    def is_idle(self) -> bool:
        """Whether no answer is due."""
        return not self._given

    def plan(self) -> None:
        """Give out work for as many batches as there are free slots."""
        while self._next_run is not None and self.arena.has_free(len(self._next_run)):
            run = [_Pending(each, self.arena.take(), len(each.draws)) for each in self._next_run]
            self._pending.extend(run)
            self._next_run = next(self._runs, None)
            draws = [each.planned.draws for each in run]
            # Batches that are planned together are of one kind, and lie in one area.
            kind, places = run[0].planned.kind, [self.arena.areas.place(each.slot) for each in run]
            division = self._divisions[kind]
            unit_clips = division.unit_clips if self._has_begun else division.first_unit_clips
            self._has_begun = True
            for unit in units_of(draws, division.num_clips, unit_clips, division.chunk):
                rows = tuple(places[batch][1] + row for batch, row in unit.places)
                number = next(self._work_numbers)
                self._given[number] = unit, run
                self._pool.submit(Work(self.number, number, unit.draws, self.arena_number, places[0][0], kind, rows))

    def take(self, done: Done) -> None:
        """Note that a unit was read, or why not."""
        unit, run = self._given.pop(done.work)
        for place, (batch, row) in enumerate(unit.places):
            pending = run[batch]
            pending.missing -= 1
            if done.rest:
                pending.rest[row] = done.rest[place]
        if done.error is not None:
            # Raised in turn: when the first batch that has a clip of the unit is due.
            first = run[min(batch for batch, _ in unit.places)]
            first.error = first.error or done.error

    def given_up(self, works: Sequence[int]) -> None:
        """Note that these pieces of work will never be answered."""
        for work in works:
            self._given.pop(work, None)

    def ready(self) -> Delivered | BaseException | None:
        """The next batch if it is complete, or the error of a clip of it."""
        if not self._pending or self._pending[0].missing:
            return None
        pending = self._pending.popleft()
        if pending.error is not None:
            self.arena.give_back(pending.slot)
            return pending.error
        size, kind = len(pending.planned.draws), pending.planned.kind
        copied = self._has_to_copy()
        batch: dict[str, Any] = (self.arena.copied if copied else self.arena.lease)(pending.slot, size, kind)
        return Delivered(self._whole(batch, pending, size), pending.planned.state, copied)

    def _has_to_copy(self) -> bool:
        """Whether the consumer would hold so much with one more that this pass or the next could not plan a run."""
        return self.arena.num_slots - self.arena.num_leased - 1 < self._run_batches

    def _whole(self, batch: dict[str, Any], pending: _Pending, size: int) -> dict[str, Any]:
        """With the entries that have no column, in the order of items."""
        if not pending.rest:
            return batch
        rest = [pending.rest[row] for row in range(size)]
        batch |= {name: gathered(name, rest, self._collate) for name in rest[0]}
        return {name: batch[name] for name in self.arena.areas.kinds[pending.planned.kind].names}

    def abandon(self) -> None:
        """Give up what was not delivered. Slots are free once nothing is written there."""
        self._next_run = None
        self.given_up(self._pool.cancel(self.number))
        self._runs = iter(())

    def release(self) -> None:
        """Free the slots of batches that were not delivered; no answer may be due."""
        while self._pending:
            self.arena.give_back(self._pending.popleft().slot)
