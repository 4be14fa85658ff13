"""What the passes of a loader share: the workers, the memory, and the counts."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...errors import UsageError
from ...warned import warn
from ..sampling.slices import PlannedBatch
from .arena import Arena
from .batch_rows import Areas
from .collating import Collate
from .delivery import Delivered, Delivery, Division, Means, Pool
from .loader_stats import LoaderStats
from .messages import Spent
from .to_device import DeviceCopies


class Core:
    """What all passes of a loader have in common: it hands their work to the pool, and the pool's answers to them, and
    gives memory that no pass uses any more to the next.

    It has no reference to the loader, so that the loader's finalizer can close it.
    """

    def __init__(self, pool: Pool, copies: DeviceCopies, before: LoaderStats, collate: Collate) -> None:
        self.areas: Areas | None = None
        """How the memory of each pass is divided, once an item of each kind of batches was seen."""
        self._pool, self._copies, self._collate = pool, copies, collate
        self._arenas: dict[int, Arena] = {}
        self._deliveries: dict[int, Delivery] = {}
        self._ended: set[int] = set()
        self._numbers = itertools.count()
        self._process = os.getpid()
        self._before, self._counts, self._spent = before, LoaderStats(), Spent()
        self.is_closed = False

    def delivery(
        self, runs: Iterator[list[PlannedBatch]], divisions: Sequence[Division], areas: Areas, run_batches: int
    ) -> Delivery:
        """Begin a pass, in memory of its own, which is divided like this. Runs have `run_batches` at most."""
        with self._whole_or_closed():
            number = next(self._numbers)
            arena_number = self._arena(areas)
            arena = self._arenas[arena_number]
            means = Means(self._pool, arena_number, arena, divisions, run_batches, self._numbers, self._collate)
            self._deliveries[number] = Delivery(number, runs, means)
            return self._deliveries[number]

    def _arena(self, areas: Areas) -> int:
        """The number of an arena that no pass uses, if need be a new one."""
        # Workers may still write for a pass that was left; they end with what they have begun.
        while self._ended:
            self._advance(None, wait=True)
        used = {delivery.arena_number for delivery in self._deliveries.values()}
        for number in self._arenas:
            if number not in used:
                # What the consumer still has of an earlier pass is not free. Deliveries leave enough for a run.
                return number
        number = next(self._numbers)
        arena = Arena(areas)
        self._copies.pin(arena)
        self._arenas[number] = arena
        self._pool.add_arena(number, arena)
        return number

    def delivered(self, delivery: Delivery) -> Iterator[Delivered]:
        """The batches of a pass. Raises the error of a clip in place of the first batch that has it."""
        while (ready := self._next(delivery)) is not None:
            if isinstance(ready, BaseException):
                raise ready
            self._note(ready)
            yield ready
            del ready

    def _next(self, delivery: Delivery) -> Delivered | BaseException | None:
        with self._whole_or_closed():
            self._advance(delivery, wait=False)
            while (ready := delivery.ready()) is None and not delivery.is_over:
                self._advance(delivery, wait=True)
            return ready

    @contextlib.contextmanager
    def _whole_or_closed(self) -> Iterator[None]:
        """An interruption such as Ctrl-C leaves a step half done: then the workers end, and the next pass starts
        others."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _advance(self, delivery: Delivery | None, *, wait: bool) -> None:
        """Gather what was done, and give out work."""
        self._gather(wait=wait)
        if delivery is not None:
            delivery.plan()

    def _note(self, ready: Delivered) -> None:
        counts = self._counts
        self._counts = replace(
            counts, batches=counts.batches + 1, copied_batches=counts.copied_batches + int(ready.copied)
        )
        if ready.copied and not counts.copied_batches:
            warn(
                "the training loop keeps so many batches that the loader copies those that it delivers from now on, "
                "which takes time and memory for each: drop batches that are no longer needed"
            )

    def _gather(self, *, wait: bool) -> None:
        """Hand the workers' answers to the passes that they belong to."""
        if self.is_closed:
            raise UsageError("the ClipLoader was closed; start another pass")
        if self._process != os.getpid():
            raise UsageError("this pass was begun in another process; begin one in each process")
        for done in self._pool.answers(wait=wait):
            self._spent += done.spent
            self._counts = replace(self._counts, skipped=self._counts.skipped + done.skipped)
            self._deliveries[done.pass_number].take(done)
            self._settle(done.pass_number)

    def end(self, delivery: Delivery) -> None:
        """Give up what is left of a pass, wherever it stands."""
        if self.is_closed or self._process != os.getpid():
            return
        with self._whole_or_closed():
            self._ended.add(delivery.number)
            delivery.abandon()
            self._settle(delivery.number)

    def _settle(self, number: int) -> None:
        """Once nothing is written there any more, the memory of a pass that has ended is there for the next."""
        if number in self._ended and self._deliveries[number].is_idle:
            self._ended.remove(number)
            self._deliveries.pop(number).release()

    def count_step(self, wait_seconds: float, step_seconds: float, *, starts: bool) -> None:
        """Add to the times of the training loop; `starts` with the first batch of a pass."""
        self._counts = self._counts.with_step(wait_seconds, step_seconds, starts=starts)

    def stats(self) -> LoaderStats:
        counts, spent = self._counts, self._spent
        own = replace(
            counts,
            clips=spent.clips,
            bytes_seconds=spent.bytes_seconds,
            decode_seconds=spent.decode_seconds,
            busy_seconds=spent.busy_seconds,
            idle_seconds=spent.idle_seconds,
            restarts=self._pool.restarts,
        )
        return self._before + own

    def close(self) -> None:
        """End the workers and give back the memory that nothing shares."""
        if self.is_closed or self._process != os.getpid():
            return
        self.is_closed = True
        self._pool.close()
        for arena in self._arenas.values():
            arena.close()
        self._arenas, self._deliveries = {}, {}
