"""How much memory a process can have."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def machine_memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_limit_bytes() -> int:
    """The most memory that this process can have: the machine's, its control group's limit or its own limit."""
    limits = [machine_memory_bytes()]
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
