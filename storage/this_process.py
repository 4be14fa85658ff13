"""Which process this is, and which start of the system, so that others can tell whether it goes on."""

from __future__ import annotations

import os
from pathlib import Path


def machine() -> str:
    """What processes have in common that see each other by their numbers: one boot of one kernel, and its part that
    the container sees. Empty where the system does not say."""
    try:
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    start = boot()
    return f"{start} {namespace}" if start else ""


def boot() -> str:
    """What differs each time the system starts. Empty where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def started(pid: int) -> str:
    """When a process started, in ticks since the system did. Empty if there is no such process, or if it has ended and
    waits for its parent to notice."""
    try:
        _, values = name_and_stat(pid)
    except OSError:
        return ""
    return "" if values[0] in "ZX" else values[19]


def name_and_stat(pid: int) -> tuple[str, list[str]]:
    """The name of a process, and what /proc's `stat` says behind it: its state, its parent and so on, see proc(5).
    OSError if there is no such process."""
    # A name is cut after 15 bytes, also in the middle of a character, and may have brackets and spaces. Those of Ray's
    # workers have the names of sources.
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    name, _, values = text.partition("(")[2].rpartition(")")
    return name, values.split()


def is_gone(pid: int, its_machine: str, its_start: str) -> bool:
    """Whether a process is no more that was known by its number, by what `machine` returned in it, and by when it
    `started`. False where that cannot be seen from here."""
    return bool(its_machine) and its_machine == machine() and started(pid) != its_start


def has_ended_here(pid: int) -> bool:
    """Whether there is no process of this number on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
