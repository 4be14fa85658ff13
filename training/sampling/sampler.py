"""ElasticSampler: the same global batches for any number of ranks and workers, from any sample on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Never

import numpy as np
from torch.utils.data import DistributedSampler

from ...arguments import integer
from ...errors import UsageError, WrongTypeError
from ...lazy import lazy
from ...stays_as_made import StaysAsMade
from ...warned import warn
from ..datasets.callers import TakingLoader
from ..datasets.drawn_from import HasClips, drawn_from
from ..datasets.ranks import check_divided_once, check_ranks_since, checked_batch, checked_ranks
from ..which_clips.clips import Clips
from ..which_clips.draws import Draw, checked_epoch
from .bound_order import BoundOrder, Order
from .continued import Continued
from .orders import checked_order
from .sampler_states import STATE_VERSION, place_of
from .slices import BatchKind, EpochPass, EpochSlices, PlannedBatch

# After so many whole passes over one epoch it is told that set_epoch is missing: a second one may be meant.
_PASSES_UNTOLD = 2
# Positions that are turned into draws at a time: few enough for memory, many enough that numpy's overhead is small.
_BLOCK_POSITIONS = 4096
# What samplers and loaders of torch call their parameters, and what there is here.
_COUNTERPARTS = {
    "shuffle": "order, by default shortgop.Shuffled(); shortgop.Sequential() does not shuffle",
    "num_replicas": "world_size",
    "batch_size": "global_batch_size, that of all ranks together",
    "generator": "seed",
}


class ElasticSampler(StaysAsMade, DistributedSampler[int]):
    """Draws of a ClipDataset for a DataLoader, in global batches that depend on no rank, worker or restart.

        sampler = shortgop.ElasticSampler(dataset, global_batch_size=256, seed=0)
        loader = DataLoader(dataset, batch_size=256 // world_size, sampler=sampler, num_workers=8)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for step, batch in enumerate(loader, 1):
                ...
                checkpoint["sampler"] = sampler.state_after(step)

    The sequence of global batches is a pure function of videos, policy, order, seed and epoch. A batch is divided
    among the ranks in runs; with `drop_last` the ranks have to divide it evenly, and the samples at the end of an epoch
    that make no whole batch are left out (other ones in each epoch, but under Sequential). For evaluation give
    `order=Sequential(), drop_last=False`: every sample comes exactly once, none is repeated to make ranks equal, so
    ranks may have one sample more or fewer than others. A global batch has one sample for each rank at least.

    `state_dict` and `load_state_dict` resume in mid-epoch, on another number of ranks and with another batch size if
    need be, with no sample lost or repeated. Nothing in memory grows with the number of samples. Pickles as the dataset
    and the order do; the copy is at the same place.

    A DataLoader's `batch_size` is what one rank has of a global batch, or a number that divides it (with
    drop_last=False any smaller one): others are refused as they are read. `state_after` counts the global batches.

    `order` is Shuffled() when not given. `rank` and `world_size` are those of torch.distributed where it is
    initialised already, otherwise 0 and 1; with tensor or pipeline parallelism give those of data parallelism. A
    subclass of DistributedSampler, so that Lightning does not divide its samples among the ranks again. Accelerate
    does: see docs/trainers.md.
    """

    _REMEDIES: ClassVar = {
        "epoch": "call set_epoch(epoch)",
        "shuffle": "make another one, with order=...",
        "num_replicas": "make another one, with world_size=...",
    }

    def __init__(
        self,
        dataset: HasClips,
        global_batch_size: int | None = None,
        *,
        order: Order | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = True,
        **others: Never,
    ) -> None:
        for name in others:
            remedy = f"here it is {_COUNTERPARTS[name]}" if name in _COUNTERPARTS else "see its docstring"
            raise WrongTypeError(f"ElasticSampler has no parameter {name!r}: {remedy}")
        if not hasattr(dataset, "clip_index"):
            raise WrongTypeError(
                f"the dataset is a {type(dataset).__name__}; ElasticSampler takes a ClipDataset or MixedClips (give "
                "ClipDataset videos= to choose some of its videos)"
            )
        self._ranks_given = rank is not None
        rank, world_size = checked_ranks(rank, world_size)
        also = ", and Continued as many rows" if isinstance(order, Continued) else ""
        batch = checked_batch(global_batch_size, world_size, "global_batch_size", drop_last=drop_last, also=also)
        super().__init__(dataset, world_size, rank, shuffle=False, seed=integer(seed, "seed"), drop_last=drop_last)  # type: ignore[arg-type]
        self.global_batch_size, self._dataset = batch, dataset
        self._given_order: Order = checked_order(order)
        self._check_epoch()
        # What DistributedSampler says of itself.
        self.num_samples = self._slices(0).num_samples
        self.total_size = self._order.length // batch * batch if drop_last else self._order.length
        # Where the next iteration of this epoch starts, and how far into this rank's part of its first batch.
        self._start, self._offset = 0, 0
        # Where the iteration that was last begun started, and where it is.
        self._began_at = 0
        self._running: EpochPass | None = None
        # Whether an iteration was begun at all, and whether one was left for another place since the last one began.
        self._begun = self._left = False
        # How often all that was left of this epoch was delivered.
        self._passes = 0
        # Whether the epoch is that of a state, and nothing was read of it since.
        self._resumed = False
        # The epoch that the last state led to, until set_epoch went back.
        self._state_epoch = -1
        # How often it went to another place.
        self._moves = 0
        self._stays(ElasticSampler)

    def _check_epoch(self) -> None:
        """UsageError where an epoch has no batch, or the order is for other batches; DatasetWarning where ranks have
        different numbers of them."""
        if not len(self._clips):
            raise UsageError(
                f"{self._dataset!r} has no clips: give it videos, or clips that are short enough for them "
                "(ClipDataset.too_short names those that are left out)"
            )
        self._order.check_batch(self.global_batch_size, "global_batch_size")
        if self.drop_last and self._order.length < self.global_batch_size:
            raise UsageError(
                f"an epoch has {self._order.length} samples, fewer than global_batch_size {self.global_batch_size}; "
                "take a smaller batch, or drop_last=False"
            )
        fewer = self._slices(0).ranks_with_fewer_batches
        if fewer and not self._may_repeat:
            warn(
                f"of the last global batch of each epoch {fewer} of {self.num_replicas} ranks have no sample, and so a "
                "batch fewer than the others: with DDP, steps of different batches then meet, or wait for ever. Take "
                "drop_last=True (for evaluation give order=shortgop.Sequential())"
            )

    def __getstate__(self) -> dict[str, Any]:
        # What is bound to the index of clips is bound anew where the copy is used: a function, and much larger.
        return {name: value for name, value in self.__dict__.items() if name != "_order"}

    @lazy
    def _order(self) -> BoundOrder:
        return self._given_order.bound(self._clips, self.seed)

    @property
    def _may_repeat(self) -> bool:
        return getattr(self._given_order, "may_repeat", False)

    @property
    def _clips(self) -> Clips:
        return self._dataset.clip_index

    def __repr__(self) -> str:
        order, position = self._given_order, self._place()[0]
        # Weights may be millions.
        shown = {name: value for name, value in vars(order).items() if isinstance(value, int | str) or name == "quotas"}
        options = [f"{name}={value!r}" for name, value in shown.items()]
        return (
            f"<ElasticSampler of {len(self._clips)} clips: {type(order).__name__}({', '.join(options)}), seed "
            f"{self.seed}, global batches of {self.global_batch_size}, rank {self.rank} of {self.num_replicas}, epoch "
            f"{self.epoch} at {position} of {self._order.length}>"
        )

    def __len__(self) -> int:
        """How many samples of a whole epoch this rank has, also where an epoch was resumed."""
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        self._check_ranks()
        return self._draws()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration goes through, from its start.

        The epoch that `load_state_dict` resumed goes on from where it was. DatasetWarning where another one is chosen
        before anything was read of it, or where clips come again that were read before its state.
        """
        epoch = checked_epoch(epoch, len(self._clips))
        if epoch > self._state_epoch or (epoch == self.epoch and self._resumed):
            # The loop counts on from the state.
            self._state_epoch = -1
        if epoch != self.epoch and self._resumed:
            warn(
                f"set_epoch({epoch}) leaves epoch {self.epoch}, which load_state_dict resumed, before anything was "
                "read of it: begin with that one, as in `for epoch in range(sampler.epoch, epochs)`"
            )
            self._state_epoch = -1
        elif epoch < self._state_epoch + bool(self._passes) and not self._may_repeat:
            warn(
                f"set_epoch({epoch}) goes back, since load_state_dict went on in epoch {self._state_epoch}: clips come "
                "again. StatefulDataLoader hands its state on only where its loop begins: load that of state_after "
                "into the sampler as well, before `for epoch in range(sampler.epoch, epochs)`"
            )
            self._state_epoch = -1
        if epoch != self.epoch:
            self._go_to(epoch, 0, 0)

    def planned_batches(self) -> Iterator[PlannedBatch]:
        """This rank's part of each global batch that is left of the epoch, for a loader that delivers whole batches.

        Each has the state after it. `state_dict` says where the epoch began meanwhile; `state_after` works as usual.
        The next time it is what is left again, unless `end_epoch` was called.
        """
        self._check_ranks()
        self._notice_repetition()
        slices = self._begin(None)
        return self._planned(self.epoch, slices, self._offset)

    def _begin(self, running: EpochPass | None) -> EpochSlices:
        self._began_at, self._running, self._resumed = self._start, running, False
        self._begun, self._left = True, False
        return self._slices(self._start)

    def _planned(self, epoch: int, slices: EpochSlices, offset: int) -> Iterator[PlannedBatch]:
        number = 0
        for parts in slices.blocks(_BLOCK_POSITIONS):
            positions = np.concatenate([np.arange(part.start, part.stop) for part in parts])
            draws = self._order.draws(epoch, positions).tolist()
            first = 0
            for part in parts:
                number += 1
                own = draws[first + offset : first + len(part)]
                first, offset = first + len(part), 0
                stop = min(slices.start + number * slices.global_batch_size, slices.length)
                if own:
                    ends = stop // self._order.window > (stop - slices.global_batch_size) // self._order.window
                    yield PlannedBatch(own, self._state(stop, 0, epoch), ends or self._order.window == 1)

    @property
    def moves(self) -> int:
        """How often set_epoch and load_state_dict led to another place. A pass that began before the last time goes on
        as it was, and its end changes nothing."""
        return self._moves

    def warn_of_move(self, epoch: int) -> None:
        """DatasetWarning where a pass over this epoch goes on that began before the last move."""
        what = "load_state_dict" if self._resumed else f"set_epoch({self.epoch})"
        warn(
            f"{what} was called after a loop over batches of epoch {epoch} had begun, which goes on as it was: it "
            "holds from the next loop on, so leave this one (`break`) and begin another. Lightning begins to read "
            "before it sets the epoch where it resumes between two: give it the callback of docs/trainers.md there"
        )

    def end_epoch(self, epoch: int, moves: int) -> None:
        """Note that all that was left of this epoch was delivered: the next pass over this epoch has the whole of it.
        `moves` is what it was when the pass began."""
        if (self.epoch, self._moves) == (epoch, moves):
            self._start, self._offset = 0, 0
            self._passes += 1

    @property
    def num_batches(self) -> int:
        """In how many batches of a whole epoch this rank has samples."""
        return self._slices(0).num_own_batches

    def is_for(self, dataset: HasClips) -> bool:
        """Whether the draws of this sampler stand for clips of this dataset."""
        own = self._dataset
        return dataset is own or (
            dataset.videos_fingerprint == own.videos_fingerprint
            and dataset.clip_index.fingerprint == self._clips.fingerprint
        )

    @property
    def most_per_batch(self) -> int:
        """The most samples that this rank has of a global batch."""
        return self._slices(0).most_per_batch

    def kinds(self, first: PlannedBatch) -> tuple[BatchKind, ...]:
        """The one kind of all batches; `first` is one of them."""
        return (BatchKind(self.most_per_batch, first.draws[0], self._order.chunk),)

    @property
    def window_batches(self) -> int:
        """Over how many batches the order shuffles clips; 1 where it has no window."""
        return -(-self._order.window // self.global_batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler is: the same on every rank.

        That is behind the last sample that was taken from it, so with a plain DataLoader batches that its workers read
        ahead count as well: take `state_after` there. StatefulDataLoader asks at the right moment.
        """
        return self._state(*self._place())

    def _place(self) -> tuple[int, int]:
        """The position at which the next global batch begins, and how much of this rank's part of it was taken."""
        return (self._start, self._offset) if self._running is None else self._running.place()

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state when so many global batches were trained on since the last iteration began, read ahead or not."""
        batches = integer(batches, "batches")
        if batches and self._left:
            raise UsageError(
                f"batches is {batches}, and the iteration whose batches these are was left for epoch {self.epoch}, by "
                "set_epoch or load_state_dict: take its state before that, or state_dict() for the start of the next"
            )
        slices = self._slices(self._began_at)
        if not 0 <= batches <= slices.num_batches:
            raise UsageError(
                f"batches is {batches}; this iteration has {slices.num_batches} batches of {self.global_batch_size}"
            )
        if self._running is not None:
            self._running.check(batches)
        return self._state(min(self._began_at + batches * self.global_batch_size, self._order.length), 0)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration takes the samples that were left in its epoch, or the next epoch. One
        that is running goes on as it was, and a DatasetWarning says so.

        UsageError for a state of other samples: other videos, policy, order or seed. Another snapshot or a copy of the
        dataset will do if it has the same videos.
        """
        own, goes_on = self.state_dict(), self._order.goes_on
        epoch, start, offset = place_of(state, own, self._slices(0), len(self._clips), goes_on=goes_on)
        if self._slices(start).num_batches:
            self._go_to(epoch, start, offset)
        else:
            self._go_to(epoch + 1, 0, 0)
        self._resumed, self._state_epoch = True, self.epoch

    def _go_to(self, epoch: int, position: int, offset: int) -> None:
        # From outside it is not set so.
        vars(self)["epoch"] = epoch
        self._start, self._offset = position, offset
        self._began_at, self._running = position, None
        self._passes, self._resumed = 0, False
        self._begun, self._left = False, self._left or self._begun
        self._moves += 1

    def _notice_repetition(self) -> None:
        """DatasetWarning, once in an epoch, where a random order is gone through again and again."""
        if self._passes == _PASSES_UNTOLD and not self._may_repeat:
            warn(
                f"epoch {self.epoch} begins for the third time, with the same clips in the same order: call "
                "sampler.set_epoch(epoch) in each epoch (for evaluation give order=shortgop.Sequential())"
            )

    def _draws(self) -> Iterator[int]:
        # Here the first draw is asked for: loaders begin some iterations that they never use, and some before the epoch
        # is set.
        check_divided_once(self.num_replicas, goes_on=self._order.goes_on)
        self._notice_repetition()
        running = EpochPass(self.epoch, self._slices(self._start), self._offset, TakingLoader())
        self._order.check_in_order(out_of_order=running.loader.is_out_of_order)
        self._begin(running)
        moves, told, skipped = self._moves, False, running.taken
        # A pass that begins within a global batch has another number of its samples.
        equal = self.drop_last and not skipped
        share = running.slices.share(drawn_from(self._dataset), equal=equal, goes_on=self._order.goes_on)
        for parts in running.slices.blocks(_BLOCK_POSITIONS):
            positions = np.concatenate([np.arange(part.start, part.stop) for part in parts])
            for draw in self._order.draws(running.epoch, positions[skipped:]).tolist():
                if not told and moves != self._moves:
                    told = True
                    self.warn_of_move(running.epoch)
                running.taken += 1
                yield Draw.of(draw, share)
            skipped = 0
        self.end_epoch(running.epoch, moves)

    def _check_ranks(self) -> None:
        if not self._ranks_given:
            check_ranks_since(self.rank, self.num_replicas)

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "snapshot": self._dataset.snapshot,
            "videos": self._dataset.videos_fingerprint,
            "clips": self._clips.fingerprint,
            "order": self._order.fingerprint,
            "seed": self.seed,
        }

    def _state(self, position: int, offset: int, epoch: int | None = None) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            **self._identity,
            "epoch": self.epoch if epoch is None else epoch,
            "position": position,
            "rank_offset": offset,
            "world_size": self.num_replicas,
            "global_batch_size": self.global_batch_size,
        }

    def _slices(self, start: int) -> EpochSlices:
        return EpochSlices(
            self._order.length, self.global_batch_size, self.rank, self.num_replicas, self.drop_last, start
        )
