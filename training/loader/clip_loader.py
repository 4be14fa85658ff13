"""ClipLoader: batches of a ClipDataset, read ahead by worker processes into memory that the training loop shares."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Never, Self

import torch
from torch.utils.data import Subset

from ...arguments import integer
from ...errors import UsageError, WrongTypeError
from ...readers.dataset import Dataset
from ...stays_as_made import StaysAsMade
from ..sampling.slices import BatchKind
from ..which_clips.offsets import at_least_one
from .arena import bytes_held
from .batch import Batch, batch_of
from .batch_memory import room_for
from .batch_rows import Areas, BatchRows, rows_for
from .collating import Collate, check_names, checked_collate
from .core import Core
from .delivery import Delivered, Division, Pool
from .in_process import CallingProcess
from .loader_stats import LoaderStats
from .machine_share import cpus_of_rank, ranks_of_machine
from .messages import ReadsItems
from .on_device import DeviceReads, check_options, gpu_of
from .pool import WorkerPool
from .read_units import clips_per_unit, runs
from .sampled_batches import Place, Planner, batches_of
from .to_device import DeviceCopies

# The training loop has one, and receives another while it still has that.
_BATCHES_OUT = 2
# Batches that are read ahead: as many as there are workers, but no fewer and no more than these. Memory that is used
# again soon is faster.
_BATCHES_AHEAD, _MOST_AHEAD = 4, 16
_MAX_THREADS_EACH = 4

# What DataLoader calls its parameters, and what there is here.
_COUNTERPARTS = {
    "num_workers": "workers",
    "shuffle": "the sampler's order, by default shortgop.Shuffled()",
    "batch_sampler": "sampler",
    "collate_fn": "collate={name: function} for single entries of items; a function of whole items takes a DataLoader",
    "prefetch_factor": "prefetch_bytes",
    "drop_last": "the sampler's drop_last",
    "persistent_workers": "nothing: workers stay until the loader is closed",
    "multiprocessing_context": "nothing: workers come from a fork server",
    "worker_init_fn": "the dataset's transform",
    "timeout": "nothing",
    "generator": "the sampler's seed",
}


class ClipLoader(StaysAsMade):
    """Batches of a ClipDataset in the order of a sampler, read ahead by worker processes.

        dataset = shortgop.ClipDataset("DATASET", shortgop.RandomClips(16, stride=4), size=(224, 224))
        sampler = shortgop.ElasticSampler(dataset, global_batch_size=256)
        loader = shortgop.ClipLoader(dataset, sampler)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                loss = criterion(model(batch["frames"]), batch["label"])
                ...
                checkpoint = {"loader": batch.state, ...}

    Takes the place of torch's DataLoader. Workers decode straight into the memory of the batch that the training loop
    gets: nothing is pickled, collated or copied. Batches come in the sampler's order for any number of workers.

    - `dataset`: a ClipDataset or MixedClips.
    - `sampler`: an ElasticSampler or BucketSampler, which says in which order clips come and how large batches are;
      there is none by default. Any other sampler, or iterable of indices, comes with `batch_size`; the last batch of an
      epoch may then be smaller, and batches have no state.
    - `workers`: processes, from a fork server; 0 reads in the calling process, when a batch is asked for. By default
      workers and threads take about all CPUs that this process may use, as far as the limit of a container leaves them,
      divided by the ranks of the machine, but one, which is left for training. A script that has workers runs under
      `if __name__ == "__main__":`.
    - `threads`: how many threads decode in each worker, up to four by default; without workers in the calling process,
      by default as many as the dataset was opened with.
    - `prefetch_bytes`: bounds the memory of batches, those in use included. Passes that run at the same time have as
      much each, and copies come on top. UsageError when it is too little. By default it is 1 GiB. Where three batches
      (with a shuffle window the window and two batches) take more, it is what four take (two windows and two batches),
      as far as all loaders of the process then have a quarter of the memory that it can have, divided by the ranks of
      the machine; the three may take half of it, whatever other loaders have.
    - `collate`: functions by the names of items' entries, such as {"boxes": list} where their shapes differ. Each gets
      the list of this entry of all clips of a batch and returns what the batch has, in the calling process, so it
      should take little time. Such entries are sent through a pipe; frames may be among them.
    - `pin_memory`: page-locked memory, from which copies with non_blocking=True run beside other work. The memory of a
      batch that was dropped is used again once each GPU's stream that is current in the training loop has come so far;
      a batch that is copied on another stream has to be kept until that copy has ended.
    - `device`: a CUDA device that batches are copied to, on a stream of the loader's own, one batch ahead.

    A dataset that was opened with `device="cuda"` is decoded there, on the threads that it was opened with. Then two
    threads of this process read ahead, each on a stream of its own, and `prefetch_bytes` bounds the GPU's memory; there
    are no workers, and no transform.

    A batch is a dict. Its large tensors lie in the loader's memory for as long as anything shares them, be it a slice,
    a numpy array or a graph for the backward pass, and their memory is used again afterwards. Where a training loop
    keeps so many that no memory would be left to fill, batches are copied instead, and a DatasetWarning says so once.

    A pass may be left at any time, and another one started; several may run at the same time. A worker that is killed
    is replaced, and what it was reading is read again, twice at most. An error of an item, such as one of its
    transform, is raised in place of its batch and ends the pass. `close`, or dropping the loader, ends the workers;
    they also end with the process.

    Not for several threads at the same time, and not for a forked process.
    """

    # Lightning asks loaders of validation, testing and prediction that have a sampler for this one too.
    batch_sampler: ClassVar[None] = None
    _REMEDIES: ClassVar = {name: f"make another one; here it is {there}" for name, there in _COUNTERPARTS.items()}

    def __init__(
        self,
        dataset: ReadsItems,
        sampler: Planner | Iterable[int] | None = None,
        *,
        batch_size: int | None = None,
        workers: int | None = None,
        threads: int | None = None,
        prefetch_bytes: int | None = None,
        collate: Collate | None = None,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
        **others: Never,
    ) -> None:
        for name in others:
            remedy = f"here it is {_COUNTERPARTS[name]}" if name in _COUNTERPARTS else "see its docstring"
            raise WrongTypeError(f"ClipLoader has no parameter {name!r}: {remedy}")
        if not hasattr(dataset, "full_draws"):
            raise WrongTypeError(
                f"the dataset is a {type(dataset).__name__}; ClipLoader takes a shortgop.ClipDataset or MixedClips: "
                f"{_remedy_for(dataset)}"
            )
        dataset.check_items("ClipLoader")
        self._batches = batches_of(dataset, sampler, batch_size)
        self.dataset, self.sampler, self.batch_size = dataset, sampler, self._batches.batch_size
        self.decodes_on_device = dataset.device.type != "cpu"
        if self.decodes_on_device:
            check_options(
                dataset, workers=workers, threads=threads, device=device, pin_memory=pin_memory, collate=collate
            )
            workers, device, pin_memory = 0, None, False
        self.workers, self.threads = _workers_and_threads(workers, threads)
        if self.workers == 0 and threads is None:
            self.threads = dataset.threads
        self._threads_given = threads is not None
        self.prefetch_bytes = None if prefetch_bytes is None else at_least_one(prefetch_bytes, "prefetch_bytes")
        self._collate = checked_collate(collate)
        self._copies = DeviceCopies.of(device, pin_memory=pin_memory)
        self._core: Core | None = None
        self._device_reads: DeviceReads | None = None
        self._stats_before = LoaderStats()
        self._process = os.getpid()
        self._last_state: Mapping[str, Any] | None = None
        self._stays(ClipLoader)

    def __len__(self) -> int:
        """How many batches a whole epoch has for this rank, also where an epoch was resumed."""
        return len(self._batches)

    def __repr__(self) -> str:
        return f"<ClipLoader of {self.dataset!r}: {self.workers} workers of {self.threads} threads>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        """A pass over what is left of the sampler's epoch."""
        if self.decodes_on_device:
            return self._pass_on_device(self._reading_on_device())
        return self._pass(self._started())

    # What a pass has is found out when its first batch is asked for: trainers begin some passes before they set the
    # epoch, and some that they never use.

    def _pass_on_device(self, reads: DeviceReads) -> Iterator[Batch]:
        began, planned = self._batches.place(), self._batches.planned()
        first = next(planned, None)
        if first is None:
            self._batches.end_epoch(began)
        else:
            batches = reads.delivered(itertools.chain([first], planned), self._batches.kinds(first))
            yield from self._steps(reads, batches, began)

    def _pass(self, core: Core) -> Iterator[Batch]:
        began, planned = self._batches.place(), self._batches.planned()
        first = next(planned, None)
        if first is None:
            self._batches.end_epoch(began)
            return
        kinds = self._batches.kinds(first)
        if core.areas is None:
            rows = [
                rows_for(self.dataset.example(kind.example), kind.batch_size, tuple(self._collate)) for kind in kinds
            ]
            check_names(self._collate, list(dict.fromkeys(name for each in rows for name in each.names)))
            core.areas = Areas.of(rows, self._num_slots(rows))
        areas = core.areas
        divisions = [self._division(kind, areas.num_slots) for kind in kinds]
        delivery = core.delivery(
            runs(itertools.chain([first], planned)), divisions, areas, self._batches.window_batches
        )
        try:
            yield from self._steps(core, self._copies.ahead(core.delivered(delivery)), began)
        finally:
            core.end(delivery)

    def _steps(self, counts: Core | DeviceReads, batches: Iterator[Delivered], began: Place) -> Iterator[Batch]:
        """The batches of a pass as the training loop gets them; `began` is where the pass began."""
        asked, starts, warned = time.perf_counter(), True, False
        for delivered in batches:
            if self._batches.notice_move(began, warned=warned):
                warned = True
            else:
                self._last_state = delivered.state
            batch = batch_of(delivered.batch, delivered.state)
            received = time.perf_counter()
            yield batch
            # Its memory is free as soon as the consumer's own name for it is gone.
            del batch, delivered
            counts.count_step(received - asked, time.perf_counter() - received, starts=starts)
            asked, starts = time.perf_counter(), False
        self._batches.end_epoch(began)

    def state_dict(self) -> dict[str, Any]:
        """The state after the batch that was delivered last, or the sampler's before the first; with ElasticSampler."""
        if self._last_state is not None:
            return dict(self._last_state)
        return self._batches.planner().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after a batch: the next pass takes what was left of its epoch, or the next epoch, as
        ElasticSampler.load_state_dict. UsageError for a state of other samples."""
        self._batches.planner().load_state_dict(state)
        self._last_state = None

    def stats(self) -> LoaderStats:
        """Counts and times since the loader was made; `advice` says in words what waits for what."""
        if self._device_reads is not None:
            return self._stats_before + self._device_reads.stats()
        return self._core.stats() if self._core is not None else self._stats_before

    def close(self) -> None:
        """End the workers. A later pass starts others. Batches that were delivered stay as they are."""
        if self._core is not None or self._device_reads is not None:
            self._stats_before = self.stats()
            self._end()
            self._core = self._device_reads = None

    def __reduce__(self) -> Any:
        raise WrongTypeError("a ClipLoader has processes and does not pickle; make one in each process")

    def _division(self, kind: BatchKind, slots: int) -> Division:
        count, size = len(self.dataset), kind.batch_size
        if self.dataset.transforms_batches:
            # What the transform returns depends on which clips it gets together, and must not on the workers.
            return Division(count, size, size, 1)
        unit = clips_per_unit(size, self.workers, slots - _BATCHES_OUT)
        return Division(count, unit, min(unit, -(-size // max(1, self.workers))), kind.chunk)

    def _num_slots(self, kinds: Sequence[BatchRows]) -> int:
        run, batch_bytes = self._batches.window_batches, max(each.num_bytes for each in kinds)
        fewest, better = run + _BATCHES_OUT, 2 * run + _BATCHES_OUT
        ranks = ranks_of_machine()
        room = room_for(fewest, better, batch_bytes, self.prefetch_bytes, ranks=ranks, held=bytes_held())
        fitting = room // max(1, batch_bytes)
        if fitting < fewest:
            window = f", since the order shuffles within {run} of them" if run > 1 else ""
            default = ""
            if self.prefetch_bytes is None:
                divided = f", divided by the {ranks} ranks of the machine" if ranks > 1 else ""
                default = f" (half of the memory that this process can have{divided}, at least 1 GiB)"
            raise UsageError(
                f"prefetch_bytes is {room}{default}; the loader has {fewest} "
                f"batches of {batch_bytes} bytes at least{window}: give it {fewest * batch_bytes} or more"
            )
        wanted = max(2 * run, min(max(_BATCHES_AHEAD, self.workers), _MOST_AHEAD)) + _BATCHES_OUT
        return min(fitting, wanted)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise UsageError("this ClipLoader was made in another process; make one in each process")

    def _reading_on_device(self) -> DeviceReads:
        self._check_process()
        if self._device_reads is None:
            device = self.dataset.device
            self._device_reads = DeviceReads(self.dataset, gpu_of(device), device, self.prefetch_bytes)
            self._end = weakref.finalize(self, self._device_reads.close)
        return self._device_reads

    def _started(self) -> Core:
        self._check_process()
        if self._core is not None and self._core.is_closed:
            self.close()
        if self._core is None:
            pool: Pool
            if self.workers:
                pool = WorkerPool(self.dataset, self.workers, self.threads)
            else:
                pool = CallingProcess(self.dataset, self.threads if self._threads_given else None)
            self._core = Core(pool, self._copies, self._stats_before, self._collate)
            self._end = weakref.finalize(self, self._core.close)
        return self._core


def _remedy_for(dataset: Any) -> str:
    """What becomes a ClipDataset in place of what is none."""
    if isinstance(dataset, Subset):
        return "give ClipDataset videos= to choose some of its videos"
    if isinstance(dataset, (str, os.PathLike, Dataset)):
        return "make one of it, such as shortgop.ClipDataset(dataset, shortgop.RandomClips(16))"
    return "add to items in `items` of a subclass of ClipDataset"


def _workers_and_threads(workers: int | None, threads: int | None) -> tuple[int, int]:
    """What was given, or what takes about all CPUs but one that training has."""
    if workers is not None:
        workers = integer(workers, "workers")
        if workers < 0:
            raise UsageError(f"workers is {workers}; it takes the number of processes that read, 0 or more")
    cpus = max(1, cpus_of_rank() - 1)
    if workers is None and threads is None:
        workers = -(-cpus // _MAX_THREADS_EACH)
    if threads is None:
        threads = 1 if workers == 0 else min(_MAX_THREADS_EACH, max(1, cpus // (workers or 1)))
    threads = at_least_one(threads, "threads")
    return max(1, cpus // threads) if workers is None else workers, threads
