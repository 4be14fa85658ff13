"""How many CPUs a process can have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .control_groups import MEMBERSHIP, ROOT, control_groups, number_in


def usable_cpus() -> int:
    """How many CPUs this process can use: those that it may run on, or fewer if its control group limits its time, as
    `docker run --cpus` and Kubernetes do. Such a limit does not change on which CPUs it may run."""
    return max(1, min(cpus_to_run_on(), cpus_in_time()))


def cpus_to_run_on() -> int:
    """How many CPUs this process may run on: all of them where the system binds no process to some, as on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpus_in_time() -> int:
    """How many whole CPUs' time the control group of this process has, for all of its processes together: all CPUs of
    the machine where there is no limit, and 0 where the limit is below the time of one."""
    return min([os.cpu_count() or 1, *_limits(MEMBERSHIP, ROOT)])


def _limits(membership: Path, root: Path) -> Iterator[int]:
    """How many whole CPUs each control group has the time of."""
    for group, version in control_groups("cpu", membership, root):
        if version == 1:
            quota, period = number_in(group / "cpu.cfs_quota_us"), number_in(group / "cpu.cfs_period_us")
        else:
            quota, period = _quota_and_period(group / "cpu.max")
        if quota and period:
            yield quota // period


def _quota_and_period(file: Path) -> tuple[int | None, int | None]:
    try:
        words = file.read_text().split()
    except OSError:
        return None, None
    numbers = [int(word) if word.isdecimal() else None for word in words]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (None, None)
