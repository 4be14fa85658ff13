"""Calls the user's transforms, with random numbers that are the same for the same draw in any process."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...errors import UsageError, WrongTypeError
from ...wording import counted
from ..which_clips.keyed import key

Transform = Callable[[Any], Any]
Read = torch.Tensor | list[torch.Tensor]
"""One tensor of all clips, or one for each."""

_FORKED = "Cannot re-initialize CUDA in forked subprocess"


def check_transform(transform: Any) -> None:
    """WrongTypeError for what cannot be called with frames, and for a class whose objects are what is called: it would
    be made of the frames."""
    if transform is not None and not callable(transform):
        raise WrongTypeError(f"transform is {transform!r}; it has to be a function of frames, or another callable")
    made = transform.func if isinstance(transform, functools.partial) else transform
    # Other classes make something of frames, as torchvision's tv_tensors.Video does.
    if isinstance(made, type) and any("__call__" in vars(base) for base in made.__mro__):
        what = "a functools.partial of the class" if made is not transform else "the class"
        raise WrongTypeError(
            f"transform is {what} {made.__qualname__}, of which the frames would become an object; give it an object "
            f"of that class: {made.__qualname__}(...)"
        )


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


def transformed(
    transform: Transform | None,
    draws: Sequence[int],
    read: Mapping[str, Read],
    *,
    seed: int,
    together: bool,
    named: bool,
    tell: Callable[[int], str],
) -> list[dict[str, Any]]:
    """What was read of the clip of each draw, transformed: one clip at a time, or all of them `together`.

    With `named` the transform gets a dict and returns one; otherwise it gets the "frames". UsageError when it does not
    return something for each clip. An error of the transform gets a note with the clip, which `tell` names by its place
    among the draws.
    """
    if transform is None or not draws:
        return [{name: tensor[place] for name, tensor in read.items()} for place in range(len(draws))]
    given = f"a dict ({', '.join(map(repr, read))}) of " if named else ""
    if not together:
        items = []
        for place, draw in enumerate(draws):
            with seeded(key(seed, "transform", draw)), _noting([place], tell, given):
                items.append(_called(transform, {name: tensor[place] for name, tensor in read.items()}, named=named))
        return items
    whole = {name: _stacked(name, each) for name, each in read.items()}
    with seeded(key(seed, "transform", *draws)), _noting(range(len(draws)), tell, given):
        batch = _called(transform, whole, named=named)
    for name, values in batch.items():
        single = not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0
        if single or len(values) != len(draws):
            raise UsageError(
                f"the transform returned {'one value' if single else len(values)} {name!r} for "
                f"{counted(len(draws), 'clip')}; with transform_batch it returns one for each"
            )
    return [{name: values[place] for name, values in batch.items()} for place in range(len(draws))]


def joined(made: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items of what a transform made of each clip, and of the other entries. UsageError where both have a name."""
    for one, other in zip(made, others, strict=True):
        if both := sorted(one.keys() & other.keys()):
            raise UsageError(f"the transform returned {both[0]!r}, which items have already; give it another name")
    return [{**one, **other} for one, other in zip(made, others, strict=True)]


def _stacked(name: str, each: Read) -> torch.Tensor:
    shapes = sorted({tuple(clip.shape) for clip in each}) if isinstance(each, list) else []
    if len(shapes) > 1:
        raise UsageError(
            f"{name!r} of clips that are read together has shapes {shapes[0]} to {shapes[-1]}: with transform_batch "
            "a transform gets them as one tensor, so leave that out"
        )
    return torch.stack(each) if isinstance(each, list) else each


@contextlib.contextmanager
def _noting(places: Sequence[int], tell: Callable[[int], str], given: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"The transform was called with {given}{'; '.join(map(tell, places))}")
        raise


def _called(transform: Transform, read: dict[str, torch.Tensor], *, named: bool) -> dict[str, Any]:
    made = transform(read if named else read["frames"])
    if made is None:
        raise WrongTypeError(
            "the transform returned None; it returns what it makes of the frames, and one that changes them in place "
            "has to return them"
        )
    if not named:
        return {"frames": made}
    if not isinstance(made, Mapping):
        raise WrongTypeError(
            f"the transform returned a {type(made).__name__}; with outputs it gets a dict of them and returns one"
        )
    return dict(made)
