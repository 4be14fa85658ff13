"""The progress of a job, added up from what its units report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..wording import counted
from .look import Expected
from .units import Unit
from .work import UnitProgress, UnitResult


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    `sources_total` are the sources that the job prepares, those not counted that are in the dataset already; it is 0
    until it is known which these are, and grows while more are found. `sources_there` are the others that were given:
    the dataset had them before. `sources_planned` of them were looked at, and
    their units planned. `sources_done` are prepared, or have failed like `sources_failed` of them. `frames_planned` are
    those of the sources that were looked at, an estimate from their headers until prep has planned each source.
    `bytes_done` are those of finished units. `seconds` is the time since the job began. `note` says what the job is
    doing. `lists_more`: more sources are still being found.
    """

    sources_done: int = 0
    sources_total: int = 0
    sources_failed: int = 0
    frames_done: int = 0
    frames_planned: int = 0
    bytes_done: int = 0
    seconds: float = 0.0
    note: str = ""
    sources_planned: int = 0
    lists_more: bool = False
    sources_there: int = 0

    @property
    def frames_expected(self) -> int:
        """About how many frames all sources have that were found so far, if those that were not looked at are like the
        others."""
        return of_all(self.frames_planned, self.sources_planned, self.sources_total)


def of_all(frames_planned: int, sources_planned: int, sources_total: int) -> int:
    """The frames of all sources, in proportion to those that are planned."""
    if not 0 < sources_planned < sources_total:
        return frames_planned
    return frames_planned * sources_total // sources_planned


OnProgress = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """An OnProgress that does nothing."""


class Listener(Protocol):
    """Gets every call that a tally gets, and the tally's progress after each change."""

    def on_update(self, progress: Progress) -> None: ...

    def on_plan(self, units: Sequence[Unit]) -> None: ...

    def on_progress(self, unit: UnitProgress) -> None: ...

    def on_result(self, result: UnitResult) -> None: ...

    def on_split(self, unit: Unit, parts: Sequence[Unit]) -> None: ...


@dataclass
class _Unit:
    """A unit that has not ended: the frames that are expected of each of its sources, by id, those of the unit, those
    that are done, and those of them that sections have reported."""

    expected: dict[str, int]
    estimate: int
    done: int = 0
    sections: dict[int, int] = field(default_factory=dict)


class Tally:
    """Adds up what units report, and calls `on_progress` with the job's progress after each change.

    A job may have tens of thousands of units, so the sums over those that have not ended are kept and not added up.
    """

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._note = ""
        self._sources_done = self._sources_planned = self._sources_failed = self._bytes = 0
        # Set by the thread that lists sources, while other threads read it.
        self._listed, self._lists_more = 0, False
        # Those that the job prepares, and those that the dataset has.
        self._given = 0
        # The frames of units that have ended; of all others, those that are done and those that are expected.
        self._frames_ended = self._frames_others = self._estimates = 0
        self._units: dict[str, _Unit] = {}
        self._listeners: list[Listener] = []

    @property
    def seconds(self) -> float:
        """The time since the job began."""
        return time.monotonic() - self._started

    def tell(self, listener: Listener) -> None:
        """Let one more listener know, from now on."""
        self._listeners.append(listener)
        self._update()

    def note(self, text: str) -> None:
        self._note = text
        self._update()

    def expect(self, sources_total: int, *, lists_more: bool = False) -> None:
        """How many sources the job prepares, before all of their units are planned. With `lists_more` they are those
        that were found so far. Any thread may call this."""
        self._listed, self._lists_more = sources_total, lists_more

    def expect_among(self, sources_given: int) -> None:
        """How many sources were given that are prepared or in the dataset, once that is known. Call `expect` first."""
        self._given = sources_given
        self._update()

    @property
    def sources_total(self) -> int | None:
        """How many sources the job prepares, None while they are still being listed."""
        return None if self._lists_more else self._num_sources()

    @property
    def sources_failed(self) -> int:
        return self._sources_failed

    @property
    def sources_found(self) -> int:
        """How many sources the job prepares, as far as they are listed."""
        return self._num_sources()

    def _num_sources(self) -> int:
        return max(self._listed, self._sources_planned)

    def plan(self, units: Sequence[Unit], estimates: Mapping[str, Expected]) -> None:
        """More units that the job runs; `estimates` has what is expected of each source, by its id."""
        for unit in units:
            frames = {item.source.id: estimates[item.source.id].frames for item in unit.items}
            self._expect(unit, frames)
            self._sources_planned += len(unit.items)
        for listener in self._listeners:
            listener.on_plan(units)
        self._update()

    def _expect(self, unit: Unit, frames: dict[str, int]) -> None:
        self._units[unit.id] = _Unit(frames, sum(frames.values()))
        self._estimates += self._units[unit.id].estimate

    def on_progress(self, report: UnitProgress) -> None:
        self.on_all_progress([report])

    def on_all_progress(self, reports: Iterable[UnitProgress]) -> None:
        """What several units report, which is one change."""
        # A report of progress may arrive after the result of its unit.
        reports = [report for report in reports if report.unit in self._units]
        for report in reports:
            for listener in self._listeners:
                listener.on_progress(report)
            self._add(self._units[report.unit], report)
        if reports:
            self._update()

    def _add(self, unit: _Unit, report: UnitProgress) -> None:
        done_before, estimate_before = unit.done, unit.estimate
        if report.section is None:
            # A source that was cut and is now encoded whole starts again.
            unit.sections.clear()
            unit.done = report.frames
        else:
            unit.done += report.frames - unit.sections.get(report.section, 0)
            unit.sections[report.section] = report.frames
        unit.estimate = max(unit.estimate, report.planned)
        self._frames_others += unit.done - done_before
        self._estimates += unit.estimate - estimate_before

    def on_result(self, result: UnitResult) -> None:
        for listener in self._listeners:
            listener.on_result(result)
        self._frames_ended += result.frames
        self._end(result.unit)
        self._sources_done += result.videos + len(result.failures)
        self._sources_failed += len(result.failures)
        self._bytes += result.bytes
        self._update()

    def on_split(self, unit: Unit, parts: Sequence[Unit]) -> None:
        """`parts` take the place of a unit, of which nothing is kept."""
        for listener in self._listeners:
            listener.on_split(unit, parts)
        frames = self._end(unit.id)
        for part in parts:
            self._expect(part, {item.source.id: frames.get(item.source.id, 0) for item in part.items})
        self._update()

    def _end(self, unit_id: str) -> dict[str, int]:
        """Forget a unit. Returns what was expected of its sources."""
        unit = self._units.pop(unit_id, None)
        if unit is None:
            return {}
        self._frames_others -= unit.done
        self._estimates -= unit.estimate
        return unit.expected

    def _update(self) -> None:
        progress = Progress(
            sources_done=self._sources_done,
            sources_total=self._num_sources(),
            sources_failed=self._sources_failed,
            frames_done=self._frames_ended + self._frames_others,
            frames_planned=self._frames_ended + self._estimates,
            bytes_done=self._bytes,
            seconds=self.seconds,
            note="; ".join(filter(None, (self._note, self._still_looking()))),
            sources_planned=self._sources_planned,
            lists_more=self._lists_more,
            sources_there=max(0, self._given - self._num_sources()),
        )
        for listener in self._listeners:
            listener.on_update(progress)
        self._on_progress(progress)

    def _still_looking(self) -> str:
        total = self._num_sources()
        if self._lists_more:
            return f"{counted(total, 'source')} found so far, {self._sources_planned} looked at"
        if not 0 < self._sources_planned < total:
            return ""
        return f"{self._sources_planned} of {counted(total, 'source')} looked at"
