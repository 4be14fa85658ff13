"""What is known of a job that runs."""

from __future__ import annotations

import heapq
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...storage.this_process import machine, started
from ..units_of_work.unit_results import UnitProgress, UnitResult
from ..units_of_work.units import BytesOfFiles, Unit
from .encoding_time import RECENT_SECONDS
from .job_history import TimeStretch, with_stretch
from .job_status import JobStatus, Task
from .node_rates import NodeRates
from .node_work import WorkOfNodes
from .tally import Progress

_STRETCH_SECONDS = 1.0
_SHOWN = 5


def steady_clock() -> Callable[[], float]:
    """A clock that shows the system's time of now, in seconds since 1970, and goes on evenly where that is set."""
    begin = time.time() - _since_boot()
    return lambda: begin + _since_boot()


# On Linux, the clock that counts while the machine sleeps, too. On macOS the monotonic one does.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _since_boot() -> float:
    return time.clock_gettime(_SINCE_BOOT)


class StatusBoard:
    """Collects what is known of a job, and gives its status at any time. Any thread may ask."""

    def __init__(
        self,
        units: Sequence[Unit],
        clock: Callable[[], float] | None = None,
        *,
        earlier: Sequence[TimeStretch] = (),
    ) -> None:
        """`clock` is a `steady_clock`, by default a new one."""
        self._clock = clock or steady_clock()
        self._started = self._clock()
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
        self._bytes_in = BytesOfFiles()
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
            if result.videos:
                task = self._task(result.unit, result.frames, result.bytes)
                # A driver that has much to do, or reports that are left out, hear of a unit when it is nearly done.
                task = replace(task, seconds=max(task.seconds, result.seconds))
                self._slowest = heapq.nlargest(_SHOWN, [*self._slowest, task], key=lambda each: each.seconds)
                self._largest = heapq.nlargest(_SHOWN, [*self._largest, task], key=lambda each: each.num_bytes)
            unit = self._units.get(result.unit)
            bytes_in = sum(map(self._bytes_in.add, unit.items)) if unit else 0
            self._nodes.finished(result, bytes_in, list(self._seen.get(result.unit, {}).values()))
            self._end(result.unit)

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
            # Readers compare it with their clock, and with the time of the file.
            written = time.time()
            pace = done.pace.after(max(0.0, now - self._updated))
            # What ran when a job ended early ends with it.
            begun = self._begun if state == "running" else {}
            longest = heapq.nsmallest(_SHOWN, begun, key=begun.__getitem__)
            return JobStatus(
                host=socket.gethostname(),
                pid=os.getpid(),
                machine=machine(),
                process_started=started(os.getpid()),
                started=written - (now - self._started),
                written=written,
                state=state,
                reason=reason,
                note=done.note,
                sources_done=done.sources_done,
                sources_total=done.sources_total,
                sources_failed=done.sources_failed,
                frames_done=done.frames_done,
                frames_planned=done.frames_planned,
                bytes_in=self._bytes_in.total,
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
        return done.frames_done, done.sources_done, done.sources_failed, self._bytes_in.total, done.bytes_done

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
