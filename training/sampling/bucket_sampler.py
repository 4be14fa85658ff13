"""BucketSampler: each batch is of one of several datasets, so that these may have clips of different shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import Sampler

from ...arguments import integer
from ...errors import UsageError, WrongTypeError
from ...lazy import lazy
from ...stays_as_made import StaysAsMade
from ...warned import warn
from ...wording import counted
from ..datasets.drawn_from import HasClips, drawn_from
from ..datasets.mixed import MixedClips, video_names
from ..datasets.ranks import check_ranks_since, checked_batch, checked_ranks, ranks_of_accelerate
from ..which_clips.draws import Draw, RankShare
from .bound_order import Order
from .buckets import BatchOrder, BucketBatches
from .kept_buckets import kept_clips
from .orders import checked_orders, for_each
from .sampler import ElasticSampler
from .slices import BatchKind, PlannedBatch


class BucketSampler(StaysAsMade, Sampler[list[int]]):
    """Batches of MixedClips, each of clips of one of its datasets: buckets of sizes, lengths or rates of clips.

        wide = shortgop.ClipDataset(videos[wide_ones], shortgop.RandomClips(33), size=(256, 448), crop="center")
        tall = shortgop.ClipDataset(videos[tall_ones], shortgop.RandomClips(17), size=(448, 256), crop="center")
        buckets = shortgop.MixedClips([wide, tall])
        sampler = shortgop.BucketSampler(buckets, [16, 32])
        loader = shortgop.ClipLoader(buckets, sampler)

    Also a batch sampler for a DataLoader: `DataLoader(buckets, batch_sampler=sampler, num_workers=8)`.

    - `batch_sizes`: how many clips a global batch of each dataset has, or one number for all. With `drop_last` the
      ranks have to divide each evenly; all of them have clips of the same dataset in a step.
    - `orders`: the order of each dataset's clips, or one for all; Shuffled() when not given. How often a dataset comes
      is what its order says: with Systematic(weights, num_samples=1000) and batches of 10 it has 100 batches in an
      epoch.
    - `keep`: for videos that are in several of the datasets: with which probability each dataset, or all, keeps a video
      that none before it in MixedClips has kept, drawn anew for each epoch. A video is then in one of them in an epoch,
      or in none if the last one has less than 1. Each dataset has one clip of a video, such as RandomClips makes them,
      and no order of its own.
    - `seed`, `rank`, `world_size`: as for ElasticSampler.
    - `drop_last`: whether clips that make no whole batch are left out: other ones in each epoch, unless their order is
      Sequential. For evaluation give `orders=Sequential(), drop_last=False`: every clip comes exactly once. What is
      left over of each dataset is a batch at the end of the epoch, the larger ones first. Where one has fewer clips
      than there are ranks, some ranks have a batch fewer than others.

    An epoch has all whole batches of all datasets, in random order. The sequence of global batches is a pure function
    of videos, policies, sizes, orders, seed and epoch. An item's `dataset` says which dataset its batch is of.

    A DataLoader with it that Accelerate prepared has the same batches: see docs/trainers.md.

    `set_epoch`, `state_dict`, `state_after` and `load_state_dict` are those of ElasticSampler, for batches: a state
    goes on with any number of ranks, but with the same batch sizes.
    """

    def __init__(
        self,
        dataset: MixedClips,
        batch_sizes: int | Sequence[int],
        *,
        orders: Order | Sequence[Order] | None = None,
        keep: float | Sequence[float] | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = True,
    ) -> None:
        if not isinstance(dataset, MixedClips):
            raise WrongTypeError(
                f"the dataset is a {type(dataset).__name__}; BucketSampler takes MixedClips, of which each batch has "
                "clips of one dataset: for one dataset take ElasticSampler"
            )
        self._ranks_given = rank is not None
        self.rank, self.world_size = checked_ranks(rank, world_size)
        self.drop_last = bool(drop_last)
        self.batch_sizes = _checked_sizes(batch_sizes, len(dataset.datasets), self.world_size, drop_last=self.drop_last)
        self._dataset = dataset
        if keep is None:
            chosen = checked_orders(orders, len(self.batch_sizes))
        else:
            chosen = _kept(dataset, keep, orders, drop_last=self.drop_last)
        self._order = BatchOrder(self.batch_sizes, chosen, self.drop_last)
        self._seed = integer(seed, "seed")
        self.sampler = ElasticSampler(dataset, 1, order=self._order, seed=self._seed, rank=0, world_size=1)
        """Its samples are the numbers of batches: where an epoch is, and how it goes on from a state, is the same for
        both. Trainers look for it here, to set the epoch."""
        fewer = len(self._batches) - self._batches.num_of(self.world_size - 1)
        if fewer and not self._order.may_repeat:
            warn(
                f"some ranks have up to {counted(fewer, 'batch')} fewer than others in each epoch, since that many "
                f"datasets leave over fewer clips than the {self.world_size} ranks: with DDP, steps of different "
                "batches then meet, or wait for ever. Take drop_last=True (for evaluation give "
                "orders=shortgop.Sequential())"
            )
        self._stays(BucketSampler)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_batches"}

    @lazy
    def _batches(self) -> BucketBatches:
        return self._order.batches(self._dataset.clip_index, self._seed)

    def __repr__(self) -> str:
        return (
            f"<BucketSampler of {len(self)} batches of {list(self.batch_sizes)} clips, seed {self._seed}, rank "
            f"{self.rank} of {self.world_size}, epoch {self.epoch}>"
        )

    def __len__(self) -> int:
        """How many batches a whole epoch has for this rank, also where an epoch was resumed; where Accelerate asks that
        divides them in turn, for all of its ranks."""
        return self.num_batches * ranks_of_accelerate()

    def __iter__(self) -> Iterator[list[int]]:
        self._check_ranks()
        return self._drawn()

    def _drawn(self) -> Iterator[list[int]]:
        ranks, world_size = self._ranks_in_turn()
        drawn = drawn_from(self._dataset)
        for number in self.sampler:
            for rank in ranks:
                dataset, draws = self._part(number, rank, world_size)
                size = self.batch_sizes[dataset]
                share = RankShare(-(-size // world_size), size, rank, world_size, self.drop_last, drawn)
                if draws:
                    yield [Draw.of(draw, share) for draw in draws]

    def _ranks_in_turn(self) -> tuple[Sequence[int], int]:
        """The ranks whose parts of each batch are yielded, and how many there are: Accelerate gives each of its ranks
        whole batches in turn, which are the parts of all ranks here."""
        among = ranks_of_accelerate()
        if among == 1:
            return [self.rank], self.world_size
        if self.world_size not in (1, among):
            raise UsageError(
                f"Accelerate divides the batches of this DataLoader among {among} ranks, and its BucketSampler is of "
                f"{self.world_size}: give BucketSampler rank=0, world_size=1, or leave the DataLoader out of "
                "accelerator.prepare"
            )
        for size in (*self.batch_sizes, *(count for _, count in self._batches.smaller)):
            if size % among:
                raise UsageError(
                    f"a batch has {counted(size, 'clip')}, which the {among} ranks of Accelerate do not divide evenly: "
                    f"give BucketSampler batch sizes that are multiples of {among} and drop_last=True, or leave the "
                    "DataLoader out of accelerator.prepare, as for evaluation"
                )
        return range(among), among

    def planned_batches(self) -> Iterator[PlannedBatch]:
        """As ElasticSampler.planned_batches; the kind of a batch is the number of its dataset."""
        self._check_ranks()
        return self._planned(self.sampler.planned_batches())

    def _planned(self, batches: Iterator[PlannedBatch]) -> Iterator[PlannedBatch]:
        for batch in batches:
            dataset, draws = self._part(batch.draws[0], self.rank, self.world_size)
            if draws:
                yield PlannedBatch(draws, batch.state, kind=dataset)

    def _part(self, number: int, rank: int, world_size: int) -> tuple[int, list[int]]:
        """The dataset of a batch, and a rank's clips of it."""
        epoch, number = divmod(number, len(self._batches))
        return self._batches.dataset_of(number), self._batches.draws(epoch, number, rank, world_size)

    def kinds(self, first: PlannedBatch) -> tuple[BatchKind, ...]:
        """The kinds of batches: one for each dataset. `first` is the batch that is read next."""
        examples = [self._batches.example(self.epoch, dataset) for dataset in range(len(self.batch_sizes))]
        examples[first.kind] = first.draws[0]
        return tuple(
            BatchKind(-(-size // self.world_size), example, order.chunk)
            for size, example, order in zip(self.batch_sizes, examples, self._batches.orders, strict=True)
        )

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration goes through."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """As ElasticSampler.set_epoch."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As ElasticSampler.state_dict; positions count batches."""
        return self.sampler.state_dict()

    def state_after(self, batches: int) -> dict[str, Any]:
        """As ElasticSampler.state_after: the state when so many batches of this iteration were trained on."""
        return self.sampler.state_after(batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As ElasticSampler.load_state_dict. UsageError also for a state of other batch sizes."""
        self.sampler.load_state_dict(state)

    @property
    def num_batches(self) -> int:
        """Of how many batches of a whole epoch this rank has clips."""
        return self._batches.num_of(self.rank)

    @property
    def most_per_batch(self) -> int:
        """The most clips that this rank has of a batch."""
        return -(-max(self.batch_sizes) // self.world_size)

    @property
    def window_batches(self) -> int:
        """As ElasticSampler.window_batches: 1, since no order shuffles clips of several batches."""
        return 1

    def is_for(self, dataset: HasClips) -> bool:
        """As ElasticSampler.is_for."""
        return self.sampler.is_for(dataset)

    def _check_ranks(self) -> None:
        if not self._ranks_given:
            check_ranks_since(self.rank, self.world_size)


def _checked_sizes(given: int | Sequence[int], datasets: int, world_size: int, *, drop_last: bool) -> tuple[int, ...]:
    sizes = for_each(given, datasets, "batch_sizes")
    return tuple(checked_batch(each, world_size, "a batch size", drop_last=drop_last) for each in sizes)


def _kept(dataset: MixedClips, keep: Any, orders: Any, *, drop_last: bool) -> tuple[Order, ...]:
    """The orders of datasets of which one has a video in an epoch, by chance."""
    if orders is not None:
        raise UsageError("keep shuffles the clips that each dataset has in an epoch: leave orders out")
    if not drop_last:
        raise UsageError("with keep some clips are left out in each epoch; for evaluation leave it out")
    return tuple(kept_clips(dataset.clip_index.parts, video_names(dataset.datasets), keep))
