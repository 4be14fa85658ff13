"""CPU seconds of a command and of all processes below it, by what they are. Linux only."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

FFMPEG, WORKERS, DRIVER, OTHERS = "ffmpeg", "workers", "driver", "Ray itself"
_SECONDS_BETWEEN_LOOKS = 0.1
# A process of Ray names itself after what it does just now.
_WORKER = re.compile(r"^ray::(encode|look at|join|section) ")
_FFMPEG = re.compile(r"^\S*ffmpeg\S* -")
_ENCODER = re.compile(r"^\S*ffmpeg\S* .*-stats_enc_pre")


@dataclass(frozen=True)
class _Moment:
    """The own CPU seconds of all processes so far, those of the children that each has waited for, and which run."""

    at_seconds: float
    own: Mapping[psutil.Process, float]
    waited_for: Mapping[psutil.Process, float]
    running: Collection[psutil.Process]


@dataclass
class _Seen:
    """What was seen of a command's processes."""

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

    def moment(self) -> _Moment:
        return _Moment(time.monotonic(), dict(self.own), dict(self.waited_for), self.running)

    @property
    def num_encoders(self) -> int:
        return sum(any(_ENCODER.search(title) for title in self.titles[each]) for each in self.running)

    def by_kind(self, moment: _Moment) -> dict[str, float]:
        """The CPU seconds until then, by all that is known of the processes now. A worker waits for the ffmpegs that it
        starts, so what they took is known to the end."""
        own = moment.own
        ffmpegs = {each for each, titles in self.titles.items() if any(map(_FFMPEG.search, titles))}
        # A process that was just forked has the title of its parent.
        workers = {each for each, titles in self.titles.items() if any(map(_WORKER.search, titles))} - ffmpegs
        others = own.keys() - workers - ffmpegs - {self.driver}
        return {
            FFMPEG: sum(moment.waited_for.get(each, 0.0) for each in workers)
            + sum(own[each] for each in ffmpegs.intersection(moment.running)),
            WORKERS: sum(own.get(each, 0.0) for each in workers),
            DRIVER: own.get(self.driver, 0.0),
            OTHERS: sum(own[each] for each in others),
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
    busy = []
    for seen in _looks(argv):
        if seen.num_encoders >= workers:
            busy.append(seen.moment())  # `seen` is needed after the loop
    if len(busy) < 2:
        raise SystemExit(f"bench: {' '.join(argv)} hardly ever ran {workers} ffmpegs at once")
    before, after = seen.by_kind(busy[0]), seen.by_kind(busy[-1])
    seconds = busy[-1].at_seconds - busy[0].at_seconds
    return Used(seconds, {kind: after[kind] - used for kind, used in before.items()})


def cpu_by_kind(argv: Sequence[str]) -> dict[str, float]:
    """Run a command, and return the CPU seconds of the ffmpegs of Ray's workers (FFMPEG), of the workers, of the
    command's own process (DRIVER), and of all others (OTHERS). What a process takes after the last look at it is
    missing, a twentieth of a second or so, and so is an ffmpeg whose worker ends at once after it."""
    *_, seen = _looks(argv)
    return seen.by_kind(seen.moment())


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
