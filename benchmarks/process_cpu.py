"""CPU seconds of a command and of all processes below it, by what they are. Linux only."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

FFMPEG, WORKERS, DRIVER, OTHERS = "ffmpeg", "workers", "driver", "Ray itself"
_SECONDS_BETWEEN_LOOKS = 0.1
# A process of Ray names itself after what it does just now.
_WORKER = re.compile(r"^ray::(encode|look at|join|section) ")
_FFMPEG = re.compile(r"^\S*ffmpeg\S* -")
_ENCODER = re.compile(r"^\S*ffmpeg\S* .*-stats_enc_pre")


@dataclass(frozen=True)
class _Process:
    """A process that runs: its command line, its CPU seconds, and those of the children that it has waited for."""

    title: str
    own_seconds: float
    waited_for_seconds: float


@dataclass(frozen=True)
class _Look:
    """All processes that run at a moment, the command's own among them."""

    at_seconds: float
    processes: Mapping[psutil.Process, _Process]

    @property
    def num_encoders(self) -> int:
        return sum(bool(_ENCODER.search(each.title)) for each in self.processes.values())


@dataclass(frozen=True)
class Used:
    """CPU seconds by kind, in so many seconds."""

    seconds: float
    by_kind: Mapping[str, float]

    @property
    def ffmpeg_share(self) -> float:
        return self.by_kind[FFMPEG] / sum(self.by_kind.values())


def used_while_busy(argv: Sequence[str], workers: int) -> Used:
    """Run a command, and return what it used from the first to the last moment at which so many ffmpegs encoded at
    once: without its start and its end."""
    looks = _looks(argv)
    busy = [number for number, look in enumerate(looks) if look.num_encoders >= workers]
    if len(busy) < 2:
        raise SystemExit(f"bench: {' '.join(argv)} hardly ever ran {workers} ffmpegs at once")
    first, last = busy[0], busy[-1]
    kinds = _kinds(looks)
    before, after = (_until(looks[: number + 1], kinds) for number in (first, last))
    return Used(looks[last].at_seconds - looks[first].at_seconds, {kind: after[kind] - before[kind] for kind in after})


def cpu_by_kind(argv: Sequence[str]) -> dict[str, float]:
    """Run a command, and return the CPU seconds of the ffmpegs of Ray's workers (FFMPEG), of the workers, of the
    command's own process (DRIVER), and of all others (OTHERS). What a process takes after the last look at it is
    missing, a twentieth of a second or so, and so is an ffmpeg whose worker ends at once after it."""
    looks = _looks(argv)
    return _until(looks, _kinds(looks))


def _looks(argv: Sequence[str]) -> list[_Look]:
    """Run a command to its end, and look at its processes again and again."""
    looks = []
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        driver = psutil.Process(command.pid)
        while command.poll() is None:
            looks.append(_look(driver))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    if command.returncode:
        raise SystemExit(f"bench: {' '.join(argv)} failed")
    return looks


def _look(driver: psutil.Process) -> _Look:
    found = {}
    for each in [driver, *driver.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            used, title = each.cpu_times(), " ".join(each.cmdline())
            found[each] = _Process(title, used.user + used.system, used.children_user + used.children_system)
    return _Look(time.monotonic(), found)


def _kinds(looks: Sequence[_Look]) -> dict[psutil.Process, str]:
    """What each process was, by all titles that it had. One that was just forked has the title of its parent."""
    titles: dict[psutil.Process, set[str]] = {}
    for look in looks:
        for each, seen in look.processes.items():
            titles.setdefault(each, set()).add(seen.title)
    driver = next(iter(looks[0].processes))
    patterns = {FFMPEG: _FFMPEG, WORKERS: _WORKER}

    def kind_of(process: psutil.Process) -> str:
        matching = (kind for kind, pattern in patterns.items() if any(map(pattern.search, titles[process])))
        return DRIVER if process == driver else next(matching, OTHERS)

    return {each: kind_of(each) for each in titles}


def _until(looks: Sequence[_Look], kinds: Mapping[psutil.Process, str]) -> dict[str, float]:
    """The CPU seconds by kind until the last of these looks. A worker waits for the ffmpegs that it starts, so what
    those took that have ended is known to the end."""
    latest: dict[psutil.Process, _Process] = {}
    for look in looks:
        latest |= look.processes
    found = dict.fromkeys([FFMPEG, WORKERS, DRIVER, OTHERS], 0.0)
    for each, seen in latest.items():
        kind = kinds[each]
        if kind != FFMPEG or each in looks[-1].processes:
            found[kind] += seen.own_seconds
        if kind == WORKERS:
            found[FFMPEG] += seen.waited_for_seconds
    return found
