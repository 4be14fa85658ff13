"""Random numbers for other people's transforms: the same for the same draw, whoever reads it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from ..errors import UsageError

_FORKED = "Cannot re-initialize CUDA in forked subprocess"


@contextlib.contextmanager
def seeded(bits: int) -> Iterator[None]:
    """Seeds the generators of Python, numpy and torch (on the CPU), and puts them back as they were.

    Transforms draw from these, which belong to the whole process: what they drew would depend on what was read before.
    """
    before = random.getstate(), np.random.get_state(), torch.default_generator.get_state()  # noqa: NPY002
    random.seed(bits)
    np.random.seed(bits & 0xFFFFFFFF)  # noqa: NPY002  # the one that transforms use
    torch.default_generator.manual_seed(bits)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.default_generator.set_state(before[2])


@contextlib.contextmanager
def explaining_forks() -> Iterator[None]:
    """Turns torch's refusal to use CUDA in a forked process into a UsageError that says what to do in a DataLoader."""
    try:
        yield
    except RuntimeError as error:
        if _FORKED not in str(error):
            raise
        raise UsageError(
            "this worker was forked from a process that uses CUDA, and cannot use it as well; give the DataLoader "
            'multiprocessing_context="forkserver", or use CUDA in the training loop alone'
        ) from error
