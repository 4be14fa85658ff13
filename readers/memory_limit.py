"""Tells whether a request can fit into memory, before any of it is allocated."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UsageError
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


def memory_limit_bytes() -> int:
    """The most memory that this process can have: the machine's, its control group's limit or its own limit."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    own_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if own_limit != resource.RLIM_INFINITY:
        limits.append(own_limit)
    return min(limits + list(_cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))))


def _cgroup_limits(membership: Path, root: Path) -> Iterator[int]:
    """The limits of the process's control group and of those above it, for cgroup versions 2 and 1."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, file = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        folder = top / group.lstrip("/")
        # In a container the name may be the host's; then only the groups above it are found.
        for place in (folder, *folder.parents):
            yield from _limit(place / file)
            if place == top:
                break


def _limit(file: Path) -> Iterator[int]:
    try:
        text: Any = file.read_text().strip()
    except OSError:
        return
    if text.isdecimal():
        yield int(text)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count < 1e15 else f"{count / 1e9:.1e} GB"
