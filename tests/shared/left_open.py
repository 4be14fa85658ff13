"""What this process has open, so that tests can tell what was left open."""

from __future__ import annotations

from pathlib import Path


def open_files() -> list[str]:
    """Files, pipes and Unix sockets, each with its number.

    Connections over the network are left out: servers that other tests have started in this process take some and
    close some at any moment.
    """
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        if not target.startswith("socket:") or target.removeprefix("socket:").strip("[]") in _unix_sockets():
            found.append(f"{entry.name} {target}")
    return found


def _unix_sockets() -> set[str]:
    """Their inodes: `man 5 proc`, /proc/net/unix, the seventh column."""
    return {line.split()[6] for line in Path("/proc/self/net/unix").read_text().splitlines()[1:]}
