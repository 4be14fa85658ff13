"""The control groups that limit what a process can have, of cgroup versions 2 and 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def control_groups(controller: str, membership: Path, root: Path) -> Iterator[tuple[Path, int]]:
    """The folders of the process's control group and of those above it, each with its version."""
    try:
        lines = membership.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top, version = (root / controller, 1) if controllers else (root, 2)
        folder = top / group.lstrip("/")
        # In a container the name may be the host's; then only the groups above it are found.
        for place in (folder, *folder.parents):
            yield place, version
            if place == top:
                break


def number_in(file: Path) -> int | None:
    """The whole number that a file of a group says; None where there is no file, or no limit."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
