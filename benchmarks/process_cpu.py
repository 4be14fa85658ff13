"""CPU seconds of a command and of all processes below it, by what they are. Linux only."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Sequence

import psutil

# By what any of its command lines has: a process of Ray names itself after what it does just now.
KINDS = {
    "ffmpeg": r"ffmpeg\S* -",
    "workers": r"^ray::(encode|look at|join|section) ",
}
DRIVER, OTHERS = "driver", "Ray itself"
_SECONDS_BETWEEN_LOOKS = 0.1


def cpu_by_kind(argv: Sequence[str]) -> dict[str, float]:
    """Run a command, and return the CPU seconds of each of KINDS, of the command's own process (DRIVER), and of all
    others (OTHERS). What a process takes after the last look at it is missing, a twentieth of a second or so."""
    seconds: dict[psutil.Process, float] = {}
    titles: dict[psutil.Process, set[str]] = {}
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        driver = psutil.Process(command.pid)
        while command.poll() is None:
            for each in [driver, *driver.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    used = each.cpu_times()
                    seconds[each] = used.user + used.system
                    titles.setdefault(each, set()).add(" ".join(each.cmdline()))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    if command.returncode:
        raise SystemExit(f"bench: {' '.join(argv)} failed")
    found = dict.fromkeys([*KINDS, DRIVER, OTHERS], 0.0)
    for each, used_seconds in seconds.items():
        found[DRIVER if each == driver else _kind(titles.get(each, set()))] += used_seconds
    return found


def _kind(titles: set[str]) -> str:
    matching = (kind for kind, pattern in KINDS.items() if any(re.search(pattern, title) for title in titles))
    return next(matching, OTHERS)
