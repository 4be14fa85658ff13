"""How many ranks share a machine, and the CPUs that one of them has: the rest of the machine is the others'."""

from __future__ import annotations

import multiprocessing
import os
import re

import torch

from ...machine_cpus import cpus_in_time, cpus_to_run_on, usable_cpus
from ..datasets.ranks import num_ranks

# Programs that start ranks say in these variables how many of them they start on a machine. torchrun, Accelerate and
# Ray Train bind no rank to CPUs unless they are asked to (as by --numa-binding of torchrun, where ranks share CPUs).
_UNBOUND = ("LOCAL_WORLD_SIZE",)
# Open MPI, Intel MPI, MVAPICH and Slurm's srun mostly bind ranks, and MPICH does if it is asked (-bind-to).
_BOUND = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
# One number, or, as srun writes it, those of all machines: "4(x2),3" is 4 on two machines and 3 on one.
_NUMBERS = re.compile(r"\d+(\(x\d+\))?(,\d+(\(x\d+\))?)*")


def ranks_of_machine() -> int:
    """How many ranks share this machine, as far as that is known; otherwise 1. Where machines have different numbers,
    it is the largest.

    Ranks that torch.multiprocessing.spawn or Lightning started are told no number: then it is that of all ranks, or of
    the GPUs here if these are fewer.
    """
    return _ranks_and_bound()[0]


def cpus_of_rank() -> int:
    """The CPUs that this rank has, where all ranks of the machine have as many."""
    ranks, bound = _ranks_and_bound()
    if bound:
        # Those that a rank is bound to are its own, and not divided once more. It may be bound to all of the machine,
        # and the time that a container has is that of all its ranks.
        return max(1, min(cpus_to_run_on(), cpus_in_time() // ranks))
    return max(1, usable_cpus() // ranks)


def _ranks_and_bound() -> tuple[int, bool]:
    """How many ranks share this machine, and whether they were started by what mostly binds them to CPUs."""
    if told := _told(_UNBOUND):
        return told, False
    told = _told(_BOUND)
    started_from_python = multiprocessing.parent_process() is not None or "LOCAL_RANK" in os.environ
    # A single task on a machine, as of srun, may have started the ranks itself.
    if told > 1 or (told and not started_from_python):
        return told, True
    if not started_from_python:
        return 1, False
    ranks = num_ranks()
    return (min(ranks, torch.cuda.device_count() or ranks) if ranks > 1 else 1), False


def _told(names: tuple[str, ...]) -> int:
    """The number of ranks that the first of these variables says which says one; 0 if none does."""
    for name in names:
        text = os.environ.get(name, "")
        if _NUMBERS.fullmatch(text) and (most := max(int(each.partition("(")[0]) for each in text.split(","))):
            return most
    return 0
