"""How far a job is, to be read from any machine: a small file in the dataset that the job replaces every few seconds.

The file is for people: nothing of the dataset depends on it, and a job goes on if it cannot be written.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, TypeVar

from ...errors import CorruptDataError, ShortGopError, UsageError
from ...storage.interface import NO_BUCKET, Storage
from ...storage.this_process import is_gone
from ...wording import counted
from .job_history import TimeStretch, stretches_of
from .node_work import NodeWork
from .time_left import Amount, Pending, of_all, seconds_left, time_left

_T = TypeVar("_T")

STATUS_KEY = ".status.json"
_SILENT_SECONDS = 60.0
# Clocks that are set over the network differ by less.
_CLOCKS_DIFFER_SECONDS = 10.0


@dataclass(frozen=True)
class Task:
    """A unit that runs or is finished, by its first source. `seconds` is the time since the job first heard of it; of
    one that is finished, until then, or that for which its worker was at it if that is more. `num_bytes` are those
    written."""

    source: str
    frames: int
    seconds: float
    num_bytes: int = 0
    node: str = ""


@dataclass(frozen=True)
class JobStatus:
    """What a job writes of itself. Times are in seconds since 1970.

    `state` is "running", "finished", or "ended" with the error in `reason`. `sources_total` are those that the job
    prepares, `sources_there` the others that were given, which the dataset had before; 0 in a status of earlier
    versions. `frames_planned` are those of the `sources_planned` sources that were looked at so far; `sources_planned`
    is 0 in a status of earlier versions. `bytes_in` are those of the files of finished sources, each file counted once,
    and `bytes_out` those of what was made of them. `recent_frames_per_second` is the rate over the last minute. `nodes`
    has the frames that each machine encoded, and `node_rates` their frames/s over the last minute. `node_work` has the
    machines with finished units; it is empty in a status of earlier versions. `encoding_seconds` is the time in which
    units were encoded, without the start of Ray and pauses; None in a status of earlier versions.
    `encoding_frames_per_second` is the rate over that part of the last minute, 0 if there is none. `units_running` is
    their number; `running` has those that run longest. `history` is what was done over time, by this job and those
    before it; it is empty in a status of earlier versions. `lists_more`: more sources are still being found, so the
    total and the frames of all are those of what was found so far. `work_done_seconds` and `work_planned_seconds` are
    those of `Progress`, and `encoding_work_per_second` is the rate of the former over that part of the last minute; all
    three are 0 in a status of earlier versions. `machine` and `process_started` tell the job's process from all others,
    as `storage.this_process` has them; they are empty in a status of earlier versions.
    """

    host: str
    pid: int
    started: float
    written: float
    state: str = "running"
    reason: str = ""
    note: str = ""
    sources_done: int = 0
    sources_total: int = 0
    sources_failed: int = 0
    frames_done: int = 0
    frames_planned: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    recent_frames_per_second: float = 0.0
    nodes: dict[str, int] = field(default_factory=dict)
    node_rates: dict[str, float] = field(default_factory=dict)
    units_running: int = 0
    running: tuple[Task, ...] = ()
    slowest: tuple[Task, ...] = ()
    largest: tuple[Task, ...] = ()
    history: tuple[TimeStretch, ...] = ()
    sources_planned: int = 0
    lists_more: bool = False
    encoding_seconds: float | None = None
    encoding_frames_per_second: float = 0.0
    sources_there: int = 0
    node_work: dict[str, NodeWork] = field(default_factory=dict)
    work_done_seconds: float = 0.0
    work_planned_seconds: float = 0.0
    encoding_work_per_second: float = 0.0
    machine: str = ""
    process_started: str = ""

    def there_before(self, *, grouped: bool = False) -> str:
        """What there is to say of the sources that the job does not prepare: ", 59 others were in the dataset before",
        or nothing. `grouped`: see `counted`."""
        if not self.sources_there:
            return ""
        verb = "was" if self.sources_there == 1 else "were"
        return f", {counted(self.sources_there, 'other', grouped=grouped)} {verb} in the dataset before"

    @property
    def frames_expected(self) -> int:
        """About how many frames all sources have that were found so far."""
        return int(of_all(self.frames_planned, self.sources_planned, self.sources_total))

    @property
    def has_died(self) -> bool:
        """Whether a running job is one of this machine whose process is no more. A job of another machine is known to
        have died only by its silence."""
        return self.state == "running" and is_gone(self.pid, self.machine, self.process_started)

    def may_be_dead(self, now: float, changed: float | None = None) -> bool:
        """Whether a running job was not heard of for long, at the time `now` in seconds since 1970. `changed`: see
        `silent_seconds`."""
        return self.state == "running" and self.silent_seconds(now, changed) > _SILENT_SECONDS

    def silent_seconds(self, now: float, changed: float | None = None) -> float:
        """For how long a job was not heard of, at the time `now` in seconds since 1970.

        `changed` is when its status was written by the clock of the disk or the store, if that is known. Of that clock
        and the job's, the one counts that says less: the clock of either may be behind. A time in the future, of a
        clock that is ahead, says nothing if the other one does.
        """
        times = [self.written] if changed is None else [self.written, changed]
        past = [each for each in times if each <= now + _CLOCKS_DIFFER_SECONDS]
        return max(0.0, now - max(past, default=now))

    @property
    def pending(self) -> Pending:
        """What is known for an estimate of the time that is left."""
        # Earlier versions knew only the rate by the clock.
        recent = self.recent_frames_per_second if self.encoding_seconds is None else self.encoding_frames_per_second
        work_seconds = of_all(self.work_planned_seconds, self.sources_planned, self.sources_total)
        return Pending(
            self.state == "running", self.lists_more, self.written - self.started, self.encoding_seconds,
            self.recent_frames_per_second,
            Amount(self.frames_done, self.frames_expected, recent),
            Amount(self.work_done_seconds, work_seconds, self.encoding_work_per_second),
        )  # fmt: skip

    @property
    def seconds_left(self) -> float | None:
        """An estimate, None if too little is known."""
        return seconds_left(self.pending)

    @property
    def time_left(self) -> str:
        """What there is to say of it."""
        return time_left(self.pending)


class NoStatusError(UsageError):
    """No job has written a status there yet."""


def read_status(dataset: Storage) -> JobStatus:
    """What the last job wrote of itself. NoStatusError if no job has encoded anything for this dataset, UsageError if
    there is no such bucket."""
    try:
        data = dataset.read(STATUS_KEY)
    except FileNotFoundError as error:
        if error.strerror == NO_BUCKET:
            raise UsageError(f"{dataset}: {NO_BUCKET}; check its name", file=dataset.url) from None
        raise NoStatusError(
            f"no job has left its progress in {dataset}; check the path, or wait until one begins to encode (a copy "
            "has none: `shortgop info` shows what is in it)"
        ) from None
    return _parsed(dataset, data)


def _parsed(dataset: Storage, data: bytes) -> JobStatus:
    """What the file of a status says. CorruptDataError."""
    try:
        values: dict[str, Any] = json.loads(data)
        lists: dict[str, Any] = {"history": stretches_of(values.get("history", ()))}
        for name in ("running", "slowest", "largest"):
            lists[name] = tuple(_made(Task, task) for task in values[name])
        lists["node_work"] = {node: _made(NodeWork, work) for node, work in values.get("node_work", {}).items()}
        return _made(JobStatus, values | lists)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        place = dataset.place(STATUS_KEY)
        raise CorruptDataError(f"{place} is damaged; the next job replaces it", file=place) from error


def _made(kind: Callable[..., _T], values: Mapping[str, Any]) -> _T:
    """A dataclass of these values, without those that a later version has added."""
    known = signature(kind).parameters
    return kind(**{name: value for name, value in values.items() if name in known})


def status_changed(dataset: Storage, found: JobStatus) -> float | None:
    """When a running job last wrote its status, in seconds since 1970 by the clock of the disk or the store. None if
    that cannot be found out, or if the job is over: its file may have been copied later, and says nothing."""
    if found.state != "running":
        return None
    with contextlib.suppress(OSError):
        stored = dataset.find(STATUS_KEY)
        return None if stored is None else stored.modified_ns / 1e9
    return None


def status_left(dataset: Storage) -> tuple[bytes | None, JobStatus | None]:
    """The file that the last job left, and what it says; None for what there is not, or cannot be read."""
    data = None
    with contextlib.suppress(ShortGopError, OSError):
        data = dataset.read(STATUS_KEY)
        return data, _parsed(dataset, data)
    return data, None
