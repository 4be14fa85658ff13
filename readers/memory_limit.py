"""Tells whether a request can fit into memory, before any of it is allocated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from ..errors import UsageError
from ..machine_memory import memory_limit_bytes
from ..wording import counted

Item = TypeVar("Item")

# Memory for each frame of a request besides its pixels: its number, its time, its entry in the plan.
REQUEST_BYTES = 512
# A request of this size fits wherever PyTorch does, so that the limit need not be looked up.
_ALWAYS_FITS_BYTES = 1 << 26
# Items to take from an iterator before their number is checked again.
_CHUNK_ITEMS = 1 << 14


def fits(count: int, frame_bytes: int) -> bool:
    """Whether `count` frames of `frame_bytes` each can fit into this process's memory at all."""
    needed = count * (frame_bytes + REQUEST_BYTES)
    return needed <= _ALWAYS_FITS_BYTES or needed <= memory_limit_bytes()


def too_many(count: int, frame_bytes: int, *, video: str | None = None) -> UsageError:
    """The error for frames that do not fit, with the figures."""
    frames = counted(count, "frame") if count < sys.maxsize else f"more than {sys.maxsize} frames"
    needed, limit = (_gigabytes(each) for each in (count * (frame_bytes + REQUEST_BYTES), memory_limit_bytes()))
    return UsageError(
        f"reading {frames} of {frame_bytes} bytes takes {needed} of memory, and this process can have {limit}: ask for "
        "fewer at a time",
        video=video,
    )


def listed(items: Iterable[Item], check: Callable[[int], object]) -> list[Item]:
    """`items` as a list. `check` is called with their number before the list is made, and raises if they are too many.

    An iterator does not know its length: a bounded number of items is taken from it between checks.
    """
    try:
        count = len(items)  # type: ignore[arg-type]
    except OverflowError:
        # A range may be longer than `len` can return.
        count = sys.maxsize
    except TypeError:
        return _taken(iter(items), check)
    check(count)
    return list(items)


def _taken(items: Iterator[Item], check: Callable[[int], object]) -> list[Item]:
    taken: list[Item] = []
    while chunk := list(islice(items, _CHUNK_ITEMS)):
        taken += chunk
        check(len(taken))
    return taken


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count < 1e15 else f"{count / 1e9:.1e} GB"
