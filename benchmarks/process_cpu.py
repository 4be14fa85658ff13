"""CPU seconds of a command and of all processes below it, by what they are. Linux only."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

FFMPEG, WORKERS, DRIVER, OTHERS = "ffmpeg", "workers", "driver", "Ray itself"
_SECONDS_BETWEEN_LOOKS = 0.1
# A process of Ray names itself after what it does just now.
_WORKER = re.compile(r"^ray::(encode|look at|join|section) ")
_FFMPEG = re.compile(r"^\S*ffmpeg\S* -")
_ENCODER = re.compile(r"^\S*ffmpeg\S* .*-stats_enc_pre")


@dataclass
class _Seen:
    """What was seen of a command's processes: the titles and the own CPU seconds of each, and the CPU seconds of the
    children that it has waited for."""

    driver: psutil.Process
    titles: dict[psutil.Process, set[str]] = field(default_factory=dict)
    own: dict[psutil.Process, float] = field(default_factory=dict)
    waited_for: dict[psutil.Process, float] = field(default_factory=dict)
    running: set[psutil.Process] = field(default_factory=set)

    def look(self) -> None:
        self.running = set()
        for each in [self.driver, *self.driver.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                used = each.cpu_times()
                self.own[each] = used.user + used.system
                self.waited_for[each] = used.children_user + used.children_system
                self.titles.setdefault(each, set()).add(" ".join(each.cmdline()))
                self.running.add(each)

    @property
    def num_encoders(self) -> int:
        return sum(any(_ENCODER.search(title) for title in self.titles[each]) for each in self.running)

    def by_kind(self) -> dict[str, float]:
        """A worker waits for the ffmpegs that it starts, so what they took is known to the end."""
        ffmpegs = {each for each, titles in self.titles.items() if any(map(_FFMPEG.search, titles))}
        # A process that was just forked has the title of its parent.
        workers = {each for each, titles in self.titles.items() if any(map(_WORKER.search, titles))} - ffmpegs
        others = self.own.keys() - workers - ffmpegs - {self.driver}
        return {
            FFMPEG: sum(self.waited_for[each] for each in workers)
            + sum(self.own[each] for each in ffmpegs & self.running),
            WORKERS: sum(self.own[each] for each in workers),
            DRIVER: self.own.get(self.driver, 0.0),
            OTHERS: sum(self.own[each] for each in others),
        }


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
    busy = [(time.monotonic(), seen.by_kind()) for seen in _looks(argv) if seen.num_encoders >= workers]
    if not busy:
        raise SystemExit(f"bench: {' '.join(argv)} never ran {workers} ffmpegs at once")
    (begun, before), (ended, after) = busy[0], busy[-1]
    return Used(ended - begun, {kind: after[kind] - seconds for kind, seconds in before.items()})


def cpu_by_kind(argv: Sequence[str]) -> dict[str, float]:
    """Run a command, and return the CPU seconds of its ffmpegs (FFMPEG), of Ray's workers, of the command's own process
    (DRIVER), and of all others (OTHERS). What a process takes after the last look at it is missing, a twentieth of a
    second or so."""
    *_, used = (seen.by_kind() for seen in _looks(argv))
    return used


def _looks(argv: Sequence[str]) -> Iterator[_Seen]:
    """Run a command and look at its processes again and again."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        seen = _Seen(psutil.Process(command.pid))
        while command.poll() is None:
            seen.look()
            yield seen
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    if command.returncode:
        raise SystemExit(f"bench: {' '.join(argv)} failed")
