"""How far a job is, to be read from any machine: a small file in the dataset that the job replaces every few seconds.

The file is for people: nothing of the dataset depends on it, and a job goes on if it cannot be written.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...errors import CorruptDataError, ShortGopError, UsageError
from ...prep.timing.stretch import Stretch
from ...storage.interface import NO_BUCKET, Storage
from ...wording import counted
from ..units import Item, Unit
from ..work import UnitProgress, UnitResult
from .encoding_time import RECENT_SECONDS
from .job_history import Stretch as TimeStretch
from .job_history import stretches_of, with_stretch
from .node_rates import NodeRates
from .node_work import NodeWork, WorkOfNodes
from .tally import Progress
from .time_left import Amount, Pending, of_all, seconds_left, time_left

STATUS_KEY = ".status.json"
_WRITE_EVERY_SECONDS = 5.0
_SILENT_SECONDS = 60.0
# Clocks that are set over the network differ by less.
_CLOCKS_DIFFER_SECONDS = 10.0
_STRETCH_SECONDS = 1.0
_SHOWN = 5


@dataclass(frozen=True)
class Task:
    """A unit that runs or is finished, by its first source. `seconds` is the time since the job first heard of it, or
    until it was finished; `num_bytes` are those written."""

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
    three are 0 in a status of earlier versions.
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
            f"no job has left its progress in {dataset}; check the path, or wait until one begins to encode"
        ) from None
    return _parsed(dataset, data)


def _parsed(dataset: Storage, data: bytes) -> JobStatus:
    """What the file of a status says. CorruptDataError."""
    try:
        values: dict[str, Any] = json.loads(data)
        lists: dict[str, Any] = {"history": stretches_of(values.get("history", ()))}
        for name in ("running", "slowest", "largest"):
            lists[name] = tuple(Task(**task) for task in values[name])
        lists["node_work"] = {node: NodeWork(**work) for node, work in values.get("node_work", {}).items()}
        known = {each.name for each in fields(JobStatus)}
        return JobStatus(**{name: value for name, value in (values | lists).items() if name in known})
    except (ValueError, TypeError, KeyError) as error:
        place = dataset.place(STATUS_KEY)
        raise CorruptDataError(f"{place} is damaged; the next job replaces it", file=place) from error


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


class StatusBoard:
    """Collects what is known of a job, and gives its status at any time. Any thread may ask."""

    def __init__(
        self, units: Sequence[Unit], clock: Callable[[], float] = time.time, *, earlier: Sequence[TimeStretch] = ()
    ) -> None:
        self._clock = clock
        self._started = clock()
        self._units = {unit.id: unit for unit in units}
        self._lock = threading.Lock()
        self._progress = Progress()
        # When that came.
        self._updated = self._started
        self._begun: dict[str, float] = {}
        # By unit, the last report of each of its sections, or of None for the unit.
        self._seen: dict[str, dict[int | None, UnitProgress]] = {}
        self._nodes = WorkOfNodes()
        # From the first unit on.
        self._node_rates: NodeRates | None = None
        self._slowest: list[Task] = []
        self._largest: list[Task] = []
        self._bytes_in = 0
        # The files of finished stretches.
        self._files_in: set[tuple[str, str]] = set()
        self._history = tuple(earlier)
        # The time and the sums at the end of the last stretch.
        self._noted = (self._started, (0, 0, 0, 0, 0))

    def on_update(self, progress: Progress) -> None:
        with self._lock:
            self._progress, self._updated = progress, self._clock()
            if self._updated - self._noted[0] >= _STRETCH_SECONDS:
                self._history, self._noted = self._history_now(), (self._updated, self._sums())

    def on_plan(self, units: Sequence[Unit]) -> None:
        with self._lock:
            self._units |= {unit.id: unit for unit in units}

    def on_progress(self, unit: UnitProgress) -> None:
        with self._lock:
            now = self._clock()
            self._begun.setdefault(unit.unit, now)
            seen = self._seen.setdefault(unit.unit, {})
            before = seen.get(unit.section)
            if unit.section is None:
                # A source that was cut and is now encoded whole starts again.
                seen.clear()
            seen[unit.section] = unit
            more = unit.frames - (before.frames if before else 0)
            self._nodes.encoded(unit.node, max(0, more))
            self._node_rates = self._node_rates or NodeRates(now, RECENT_SECONDS)
            self._node_rates.note(now, self._nodes.frames)

    def on_result(self, result: UnitResult) -> None:
        with self._lock:
            task = self._task(result.unit, result.frames, result.bytes)
            self._slowest = heapq.nlargest(_SHOWN, [*self._slowest, task], key=lambda each: each.seconds)
            self._largest = heapq.nlargest(_SHOWN, [*self._largest, task], key=lambda each: each.num_bytes)
            unit = self._units.get(result.unit)
            bytes_in = sum(map(self._new_bytes, unit.items)) if unit else 0
            self._bytes_in += bytes_in
            self._nodes.finished(result, bytes_in, list(self._seen.get(result.unit, {}).values()))
            self._end(result.unit)

    def _new_bytes(self, item: Item) -> int:
        """The bytes of a source. Those of a file from which several stretches are taken count with the first one."""
        if isinstance(item.source.part, Stretch):
            if item.source.file in self._files_in:
                return 0
            self._files_in.add(item.source.file)
        return item.size_bytes

    def on_split(self, unit: Unit, parts: Sequence[Unit]) -> None:
        with self._lock:
            self._end(unit.id)
            self._units |= {part.id: part for part in parts}

    def _end(self, unit_id: str) -> None:
        self._units.pop(unit_id, None)
        self._begun.pop(unit_id, None)
        self._seen.pop(unit_id, None)

    def status(self, state: str = "running", reason: str = "") -> JobStatus:
        with self._lock:
            now, done = self._clock(), self._progress
            pace = done.pace.after(max(0.0, now - self._updated))
            # What ran when a job ended early ends with it.
            begun = self._begun if state == "running" else {}
            longest = heapq.nsmallest(_SHOWN, begun, key=begun.__getitem__)
            return JobStatus(
                host=socket.gethostname(),
                pid=os.getpid(),
                started=self._started,
                written=now,
                state=state,
                reason=reason,
                note=done.note,
                sources_done=done.sources_done,
                sources_total=done.sources_total,
                sources_failed=done.sources_failed,
                frames_done=done.frames_done,
                frames_planned=done.frames_planned,
                bytes_in=self._bytes_in,
                bytes_out=done.bytes_done,
                recent_frames_per_second=pace.frames_per_second_by_the_clock,
                nodes=dict(sorted(self._nodes.frames.items())),
                node_rates=self._node_rates.rates(now, self._nodes.frames) if self._node_rates else {},
                node_work=dict(sorted(self._nodes.work.items())),
                units_running=len(begun),
                running=tuple(self._task(unit, self._frames(unit)) for unit in longest),
                slowest=tuple(self._slowest),
                largest=tuple(self._largest),
                history=self._history_now(),
                sources_planned=done.sources_planned,
                lists_more=done.lists_more,
                sources_there=done.sources_there,
                encoding_seconds=pace.encoding_seconds,
                encoding_frames_per_second=pace.frames_per_second,
                work_done_seconds=done.work_done_seconds,
                work_planned_seconds=done.work_planned_seconds,
                encoding_work_per_second=pace.work_per_second,
            )

    def _sums(self) -> tuple[int, int, int, int, int]:
        done = self._progress
        return done.frames_done, done.sources_done, done.sources_failed, self._bytes_in, done.bytes_done

    def _history_now(self) -> tuple[TimeStretch, ...]:
        """The history with what was done since its last stretch."""
        (since, before), now = self._noted, self._clock()
        if now <= since:
            return self._history
        frames, sources, failed, bytes_in, bytes_out = (
            after - noted for after, noted in zip(self._sums(), before, strict=True)
        )
        new = TimeStretch(since, now, now - since, frames, sources, failed, bytes_in, bytes_out)
        return with_stretch(self._history, new)

    def _frames(self, unit_id: str) -> int:
        """The frames that a unit has reported."""
        return sum(each.frames for each in self._seen[unit_id].values())

    def _task(self, unit_id: str, frames: int, num_bytes: int = 0) -> Task:
        unit = self._units.get(unit_id)
        names = [item.source.given for item in unit.items] if unit else [unit_id]
        source = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        nodes = sorted({each.node for each in self._seen.get(unit_id, {}).values() if each.node})
        now = self._clock()
        seconds = now - self._begun.get(unit_id, now)
        return Task(source, frames, seconds, num_bytes, ", ".join(nodes))


def _nothing() -> None:
    """A `put_back` of `status_kept` that puts nothing back."""


@contextlib.contextmanager
def status_kept(
    dataset: Storage,
    board: StatusBoard,
    every_seconds: float = _WRITE_EVERY_SECONDS,
    *,
    put_back: Callable[[], bytes | None] = _nothing,
) -> Iterator[None]:
    """Writes the board's status into the dataset while the block runs, and once more when it ends. If the block ends
    without an error, the file that `put_back` then gives is written instead, if any."""
    ended = threading.Event()

    def keep() -> None:
        while True:
            _write(dataset, _as_file(board.status()))
            if ended.wait(every_seconds):
                return

    writer = threading.Thread(target=keep, name="status", daemon=True)
    writer.start()
    state, reason, earlier = "finished", "", None
    try:
        yield
        earlier = put_back()
    except BaseException as error:
        state = "ended"
        reason = _why(error)
        raise
    finally:
        ended.set()
        writer.join()
        _write(dataset, _as_file(board.status(state, reason)) if earlier is None else earlier)


def _why(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        # That is what a signal becomes: Ctrl-C, SIGTERM, `ray job stop`.
        return "it was interrupted"
    return str(error) if isinstance(error, ShortGopError) else type(error).__name__


def _as_file(status: JobStatus) -> bytes:
    return json.dumps(asdict(status)).encode()


def _write(dataset: Storage, data: bytes) -> None:
    # Only for people: a full disk or a store that does not answer shows elsewhere.
    with contextlib.suppress(ShortGopError, OSError):
        stored = dataset.find(STATUS_KEY)
        dataset.replace(STATUS_KEY, data, None if stored is None else stored.version)
