"""How much memory a process can have."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from .control_groups import MEMBERSHIP, ROOT, control_groups, number_in


def machine_memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_limit_bytes() -> int:
    """The most memory that this process can have: the machine's, its control group's limit or its own limit."""
    limits = [machine_memory_bytes()]
    own_limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if own_limit != resource.RLIM_INFINITY:
        limits.append(own_limit)
    return min(limits + list(_cgroup_limits(MEMBERSHIP, ROOT)))


def _cgroup_limits(membership: Path, root: Path) -> Iterator[int]:
    """The limits of the process's control group and of those above it."""
    for group, version in control_groups("memory", membership, root):
        limit = number_in(group / ("memory.limit_in_bytes" if version == 1 else "memory.max"))
        if limit is not None:
            yield limit
