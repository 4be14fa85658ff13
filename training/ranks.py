"""The ranks of a training run: how many there are, and who else divides batches among them."""

from __future__ import annotations

import os
import sys

import torch.distributed

from ..errors import UsageError


def has_ranks() -> bool:
    """Whether torch.distributed knows the ranks."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank_and_world_size() -> tuple[int, int]:
    """This process's rank and the number of ranks, as torch.distributed knows them; without it there is one."""
    if has_ranks():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def num_ranks() -> int:
    """How many ranks there are, also in the worker of a DataLoader, which has the environment of its rank."""
    if has_ranks():
        return torch.distributed.get_world_size()
    told = os.environ.get("WORLD_SIZE", "")
    return max(1, int(told)) if told.isdecimal() else 1


def check_divided_once(world_size: int) -> None:
    """UsageError where Accelerate divides what a sampler of several ranks yields, who have divided it already: half of
    the samples, or more, would be left out without a word.

    It asks a sampler for nothing that would tell, so this looks at who takes the first draw.
    """
    frame = sys._getframe() if world_size > 1 else None  # noqa: SLF001  # the documented way to the callers
    while frame is not None:
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            divider = frame.f_locals.get("self")
            state = getattr(divider, "state", None)
            among = {
                "BatchSamplerShard": getattr(divider, "num_processes", 1),
                "DataLoaderDispatcher": getattr(state, "num_processes", 1),
            }.get(type(divider).__name__, 1)
            if among > 1:
                raise UsageError(
                    f"Accelerate divides the batches of this DataLoader among {among} ranks, and its ElasticSampler "
                    f"has divided them among {world_size} already: half of the samples or more would be left out. Give "
                    "ElasticSampler rank=0, world_size=1, or leave the DataLoader out of accelerator.prepare"
                )
        frame = frame.f_back
