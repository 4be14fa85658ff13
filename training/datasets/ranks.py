"""The ranks of a training run: how many there are, and who else divides batches among them."""

from __future__ import annotations

import os
from itertools import islice
from types import FrameType

import torch.distributed
from torch.utils.data import DistributedSampler

from ...arguments import integer
from ...errors import UsageError, WrongTypeError
from ...warned import warn
from ...wording import counted
from ..which_clips.offsets import at_least_one
from .callers import callers

# The modules that have a RandomSampler.
_RANDOM_SAMPLERS = ("torch.utils.data.sampler", "torchdata.stateful_dataloader.sampler")


def has_ranks() -> bool:
    """Whether torch.distributed knows the ranks."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank_and_world_size() -> tuple[int, int]:
    """This process's rank and the number of ranks, as torch.distributed knows them; without it there is one."""
    if has_ranks():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def checked_ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The rank and the number of ranks that a sampler is given, or those of torch.distributed. UsageError for one
    without the other, and for a rank that is not below the number."""
    if (rank is None) != (world_size is None):
        raise UsageError("rank and world_size go together; give both or neither")
    if rank is None or world_size is None:
        return rank_and_world_size()
    world_size, rank = at_least_one(world_size, "world_size"), integer(rank, "rank")
    if not 0 <= rank < world_size:
        raise UsageError(f"rank is {rank}; with world_size {world_size} it is from 0 to {world_size - 1}")
    return rank, world_size


def checked_batch(size: int | None, world_size: int, what: str, *, drop_last: bool, also: str = "") -> int:
    """The size of global batches, which messages call `what`. WrongTypeError where it is missing; UsageError where
    ranks do not divide it evenly, though they have to, and where a rank would have no sample of any batch. `also` is
    what else a message asks for where it asks for a multiple of the ranks."""
    if size is None:
        raise WrongTypeError(f"{what} is missing: it says how many clips all ranks together have in a batch")
    batch = at_least_one(size, what)
    if drop_last and batch % world_size:
        raise UsageError(
            f"{what} is {batch}, which {world_size} ranks do not divide evenly; give a multiple of {world_size}{also}"
        )
    if batch < world_size:
        raise UsageError(f"{what} is {batch}, less than the {world_size} ranks; give {world_size} or more")
    return batch


def check_ranks_since(rank: int, world_size: int) -> None:
    """UsageError where torch.distributed was initialised only after a sampler asked it for these: each rank would have
    the samples of all."""
    if has_ranks() and (now := rank_and_world_size()) != (rank, world_size):
        raise UsageError(
            f"the sampler was made for rank {rank} of {world_size}, and this is now rank {now[0]} of {now[1]}: make it "
            "after torch.distributed.init_process_group, or give it rank and world_size"
        )


def num_ranks() -> int:
    """How many ranks there are, also in the worker of a DataLoader, where the environment of its rank says so."""
    if has_ranks():
        return torch.distributed.get_world_size()
    told = os.environ.get("WORLD_SIZE", "")
    return max(1, int(told)) if told.isdecimal() else 1


def notice_undivided(dataset: object, count: int) -> bool:
    """DatasetWarning, and True, where a pass of torch's RandomSampler over all clips, `count` of them, begins on one of
    several ranks, and nothing divides what it yields: each rank would read all, or even the same ones at a time.

    To be called where the length of a dataset is asked for, as that sampler does when a pass begins.
    """
    if not has_ranks() or (ranks := torch.distributed.get_world_size()) == 1:
        return False
    # Who asks the dataset; a bare thread has no callers.
    asking = list(islice(callers(), 2, None))
    if not asking or not _begins_random_pass(asking[0], dataset) or ranks_of_accelerate() > 1:
        return False
    for frame in asking:
        if frame.f_code.co_name == "__iter__" and isinstance(frame.f_locals.get("self"), DistributedSampler):
            return False
    warn(
        f"each of {ranks} ranks reads all {counted(count, 'clip')} of its dataset in an epoch, and with the same seed "
        "also the same ones in each step, unless each has videos of its own: shuffle=True, or RandomSampler, knows of "
        "no ranks. Give the loader shortgop.ElasticSampler(dataset, global_batch_size) as its sampler, and with tensor "
        "or pipeline parallelism give that the rank and world_size of data parallelism"
    )
    return True


def _begins_random_pass(frame: FrameType, dataset: object) -> bool:
    """Whether this is where a RandomSampler of torch or torchdata begins to yield all clips of this dataset."""
    if frame.f_globals.get("__name__") not in _RANDOM_SAMPLERS:
        # What its variables are is not asked: the answer would keep their values alive as long as the frame is.
        return False
    begun = frame.f_locals.get("self")
    # torchdata has an iterator, which has the sampler.
    sampler = begun if frame.f_code.co_name == "__iter__" else getattr(begun, "sampler", None)
    return (
        type(sampler).__name__ == "RandomSampler"
        and getattr(sampler, "data_source", None) is dataset
        # With a number of samples each rank may be meant to draw from all clips.
        and getattr(sampler, "_num_samples", None) is None
    )


def check_divided_once(world_size: int, *, goes_on: bool) -> None:
    """UsageError where Accelerate divides what a sampler of several ranks yields, who have divided it already: half of
    the samples, or more, would be left out without a word. Also where the rows of batches go on from one to the next,
    and it would hand these out in turn."""
    among = ranks_of_accelerate() if world_size > 1 or goes_on else 1
    if among > 1 and goes_on:
        raise UsageError(
            f"Accelerate divides the batches of this DataLoader among {among} ranks, and where rows go on from batch "
            "to batch, the sampler has to divide them: give ElasticSampler the rank and world_size, and leave the "
            "DataLoader out of accelerator.prepare"
        )
    if among > 1:
        raise UsageError(
            f"Accelerate divides the batches of this DataLoader among {among} ranks, and its ElasticSampler has "
            f"divided them among {world_size} already: half of the samples or more would be left out. Give "
            "ElasticSampler rank=0, world_size=1, or leave the DataLoader out of accelerator.prepare"
        )


def ranks_of_accelerate() -> int:
    """Among how many ranks Accelerate divides what is asked for here; 1 where it does not.

    It asks a sampler for nothing that would tell, so this looks at who asks.
    """
    for frame in callers():
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            divider = frame.f_locals.get("self")
            state = getattr(divider, "state", None)
            among: int = {
                "BatchSamplerShard": getattr(divider, "num_processes", 1),
                "DataLoaderDispatcher": getattr(state, "num_processes", 1),
            }.get(type(divider).__name__, 1)
            if among > 1:
                return among
    return 1
