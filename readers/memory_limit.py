"""Whether what is asked for can fit into memory, found out before any of it is allocated."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UsageError

Item = TypeVar("Item")

# What a request needs for each of its frames besides the pixels: its number, its time, its place in the plan.
REQUEST_BYTES = 512
# Less than this nobody needs to look up: it fits wherever PyTorch does.
_ALWAYS_FITS_BYTES = 1 << 26
# Items that are taken from an iterator between two looks at how many there are.
_CHUNK_ITEMS = 1 << 14


def fits(count: int, frame_bytes: int) -> bool:
    """Whether so many frames, each of so many bytes in the output, can ever be in this process's memory."""
    needed = count * (frame_bytes + REQUEST_BYTES)
    return needed <= _ALWAYS_FITS_BYTES or needed <= memory_limit_bytes()


def too_many(count: int, frame_bytes: int, *, video: str | None = None) -> UsageError:
    """The error for frames that do not fit, with figures."""
    counted = f"{count} frames" if count < sys.maxsize else f"more than {sys.maxsize} frames"
    needed, limit = (_gigabytes(each) for each in (count * (frame_bytes + REQUEST_BYTES), memory_limit_bytes()))
    return UsageError(
        f"{counted} of {frame_bytes} bytes take {needed} with what it takes to read them, and this process can have "
        f"{limit} of memory: ask for fewer at a time",
        video=video,
    )


def listed(items: Iterable[Item], check: Callable[[int], object]) -> list[Item]:
    """`items` as a list; `check` is told how many they are before there is one, and raises when they are too many.

    Of an iterator, which does not say, a bounded number is taken before the next check.
    """
    try:
        count = len(items)  # type: ignore[arg-type]
    except OverflowError:
        # A range may be longer than any list.
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
    """What this process can have at most: the machine's memory, or less where its cgroup or its own limit says so."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    own_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if own_limit != resource.RLIM_INFINITY:
        limits.append(own_limit)
    return min(limits + list(_cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))))


def _cgroup_limits(membership: Path, root: Path) -> Iterator[int]:
    """The limits of the control group and of all above it, in version 2's layout and in version 1's."""
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
        # In a container the group may be named as its host sees it: then what is found are those above it.
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
