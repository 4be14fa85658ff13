"""How many ranks share a machine, and the CPUs that one of them has: the rest of the machine is the others'."""

from __future__ import annotations

import multiprocessing
import os
import re

import torch

from ...machine_cpus import usable_cpus
from ..datasets.ranks import num_ranks

# Where programs that start ranks say how many of them they start on a machine: torchrun, Accelerate and Ray Train,
# which bind no rank to CPUs,
_UNBOUND = ("LOCAL_WORLD_SIZE",)
# and Open MPI, Intel MPI and MPICH, MVAPICH, and Slurm's srun, which mostly do.
_BOUND = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
# One number, or, as srun writes it, those of all machines: "4(x2),3" is 4 on two machines and 3 on one.
_NUMBERS = re.compile(r"\d+(\(x\d+\))?(,\d+(\(x\d+\))?)*")


def ranks_of_machine() -> int:
    """How many ranks share this machine, as far as that is known; otherwise 1. Where machines have different numbers,
    it is the largest.

    Ranks that torch.multiprocessing.spawn or Lightning started are told no number: then it is that of all ranks, or of
    the GPUs here if these are fewer.
    """
    told = _told(_UNBOUND) or _told(_BOUND)
    if told:
        return told
    if multiprocessing.parent_process() is None and "LOCAL_RANK" not in os.environ:
        return 1
    ranks = num_ranks()
    return min(ranks, torch.cuda.device_count() or ranks) if ranks > 1 else 1


def cpus_of_rank() -> int:
    """The CPUs that this rank has, where all ranks of the machine have as many."""
    usable, ranks = usable_cpus(), ranks_of_machine()
    if not _told(_UNBOUND) and _told(_BOUND):
        # A rank that is bound may use its own CPUs alone: these are not divided once more.
        return max(1, min(usable, (os.cpu_count() or 1) // ranks))
    return max(1, usable // ranks)


def _told(names: tuple[str, ...]) -> int:
    """The number of ranks that the first of these variables says which says one; 0 if none does."""
    for name in names:
        text = os.environ.get(name, "")
        if _NUMBERS.fullmatch(text) and (most := max(int(each.partition("(")[0]) for each in text.split(","))):
            return most
    return 0
