"""The progress of a job, added up from what its units report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...wording import NOT_THERE, counted
from ..sources.look import Expected
from ..units_of_work.unit_results import UnitProgress, UnitResult
from ..units_of_work.units import Unit
from .encoding_time import NO_PACE, RECENT_SECONDS, EncodingRates, EncodingTime, Pace
from .time_left import Amount, Pending, of_all

# What each source takes besides its pixels, of what is expected: looking at it, and starting ffmpeg. Of the sources in
# tests/shared/measured_costs.json that is what makes the expected times most alike to the measured ones.
_SECONDS_OF_A_SOURCE = 0.02
# Of a list whose paths are wrong no source is there. It is said as soon as so many are missing and none was found.
_TOLD_MISSING = 20


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    `sources_total` are the sources that the job prepares, those not counted that are in the dataset already; it is 0
    until it is known which these are, and grows while more are found. `sources_there` are the others that were given:
    the dataset had them before. `sources_planned` of them were looked at, and
    their units planned. `sources_done` are prepared, or have failed like `sources_failed` of them. `frames_planned` are
    those of the sources that were looked at, an estimate from their headers until prep has planned each source.
    `bytes_done` are those of finished units. `seconds` is the time since the job began. `note` says what the job is
    doing. `lists_more`: more sources are still being found. `work_done_seconds` and `work_planned_seconds` are how long
    one core was expected to take for what is done, and for the sources that were looked at: frames differ in what they
    cost. What took no encoding counts in neither: sources that failed, and sections that an earlier job had encoded.
    `pace` says how fast the job encodes.
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
    work_done_seconds: float = 0.0
    work_planned_seconds: float = 0.0
    pace: Pace = NO_PACE

    @property
    def frames_expected(self) -> int:
        """About how many frames all sources have that were found so far, if those that were not looked at are like the
        others."""
        return int(of_all(self.frames_planned, self.sources_planned, self.sources_total))

    @property
    def pending(self) -> Pending:
        """What is known for an estimate of the time that is left."""
        work_seconds = of_all(self.work_planned_seconds, self.sources_planned, self.sources_total)
        return Pending(
            True, self.lists_more, self.seconds, self.pace.encoding_seconds, self.pace.frames_per_second_by_the_clock,
            Amount(self.frames_done, self.frames_expected, self.pace.frames_per_second),
            Amount(self.work_done_seconds, work_seconds, self.pace.work_per_second),
        )  # fmt: skip


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


def _work_seconds(unit: Unit) -> float:
    """How long one core takes for a unit, about; 0 if nothing is known of it."""
    return unit.expected_seconds and unit.expected_seconds + _SECONDS_OF_A_SOURCE * len(unit.items)


@dataclass
class _Unit:
    """A unit that has not ended. `expected` has the frames of each of its sources, by id, `estimate` counts those of
    the unit, and `done` those that are done: `sections` has how many of these each section has reported, and `found`
    counts those that an earlier job had encoded. `work_seconds` is the work of all of it, also of what was found.
    `is_heard_of`: it has begun."""

    expected: dict[str, int]
    estimate: int
    work_seconds: float
    done: int = 0
    sections: dict[int, int] = field(default_factory=dict)
    found: int = 0
    work_done_seconds: float = 0.0
    found_seconds: float = 0.0
    is_heard_of: bool = False

    def __post_init__(self) -> None:
        self._is_told = self.estimate > 0 or len(self.expected) == 1

    def count_work(self, frames_in_second: float) -> None:
        """Say what of the work is done, and what was found. Of frames that no header has told, units that ended had so
        many in a second of work: of a unit of many sources only those are planned that were looked at so far."""
        if not self.work_seconds:
            return
        frames = self.estimate if self._is_told else max(self.estimate, frames_in_second * self.work_seconds)
        done, found = (min(1.0, each / frames) if frames else 0.0 for each in (self.done, self.found))
        self.found_seconds = found * self.work_seconds
        self.work_done_seconds = done * self.work_seconds - self.found_seconds


class Tally:
    """Adds up what units report, and calls `on_progress` with the job's progress after each change.

    A job may have tens of thousands of units, so the sums over those that have not ended are kept and not added up.
    """

    def __init__(self, on_progress: OnProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_progress = on_progress
        self._clock = clock
        self._started = clock()
        self._note = ""
        self._missing, self._first_missing = 0, ""
        self._sources_done = self._sources_planned = self._sources_failed = self._bytes = 0
        # Set by the thread that lists sources, while other threads read it.
        self._listed, self._lists_more = 0, False
        # Those that the job prepares, and those that the dataset has.
        self._given = 0
        # The frames of units that have ended; of all others, those that are done and those that are expected.
        self._frames_ended = self._frames_others = self._estimates = 0
        # The same of the work, without what failed or was found.
        self._work_ended = self._work_others = self._work_planned = 0.0
        self._units: dict[str, _Unit] = {}
        # How many of them have begun.
        self._num_running = 0
        self._encoding = EncodingTime()
        self._rates = EncodingRates(RECENT_SECONDS)
        self._listeners: list[Listener] = []

    @property
    def seconds(self) -> float:
        """The time since the job began."""
        return self._clock() - self._started

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
        return None if self._lists_more else self.sources_found

    @property
    def sources_failed(self) -> int:
        return self._sources_failed

    @property
    def sources_found(self) -> int:
        """How many sources the job prepares, as far as they are listed."""
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
        new = self._units[unit.id] = _Unit(frames, sum(frames.values()), _work_seconds(unit))
        self._estimates += new.estimate
        self._work_planned += new.work_seconds

    def on_progress(self, report: UnitProgress) -> None:
        self.on_all_progress([report])

    def on_all_progress(self, reports: Iterable[UnitProgress]) -> None:
        """What several units report, which is one change."""
        # A report of progress may arrive after the result of its unit.
        reports = [report for report in reports if report.unit in self._units]
        for report in reports:
            for listener in self._listeners:
                listener.on_progress(report)
            unit = self._units[report.unit]
            self._num_running += not unit.is_heard_of
            unit.is_heard_of = True
            self._add(unit, report)
        if reports:
            self._encoding.note(self._clock(), runs=True)
            self._update()

    def _add(self, unit: _Unit, report: UnitProgress) -> None:
        done_before, estimate_before = unit.done, unit.estimate
        work_done_before, found_before = unit.work_done_seconds, unit.found_seconds
        if report.section is None:
            # A source that was cut and is now encoded whole starts again.
            unit.sections.clear()
            unit.done, unit.found = report.frames, 0
        else:
            before = unit.sections.get(report.section, 0)
            unit.done += report.frames - before
            unit.found += report.frames if not (before or report.is_own) else 0
            unit.sections[report.section] = report.frames
        unit.estimate = max(unit.estimate, report.planned)
        unit.count_work(self._frames_ended / self._work_ended if self._work_ended else math.inf)
        self._frames_others += unit.done - done_before
        self._estimates += unit.estimate - estimate_before
        self._work_others += unit.work_done_seconds - work_done_before
        self._work_planned -= unit.found_seconds - found_before

    def on_result(self, result: UnitResult) -> None:
        for listener in self._listeners:
            listener.on_result(result)
        self._frames_ended += result.frames
        unit = self._end(result.unit)
        if unit is not None and result.videos:
            # A source that fails mostly does so before anything of it is encoded.
            share = result.videos / (result.videos + len(result.failures))
            self._work_ended += share * (unit.work_seconds - unit.found_seconds)
        self._sources_done += result.videos + len(result.failures)
        self._sources_failed += len(result.failures)
        missing = [failure.path for failure in result.failures if NOT_THERE in failure.reason]
        self._missing += len(missing)
        self._first_missing = self._first_missing or next(iter(missing), "")
        self._bytes += result.bytes
        self._update()

    def on_split(self, unit: Unit, parts: Sequence[Unit]) -> None:
        """`parts` take the place of a unit, of which nothing is kept."""
        for listener in self._listeners:
            listener.on_split(unit, parts)
        ended = self._end(unit.id)
        frames = ended.expected if ended else {}
        for part in parts:
            self._expect(part, {item.source.id: frames.get(item.source.id, 0) for item in part.items})
        self._update()

    def _end(self, unit_id: str) -> _Unit | None:
        """Forget a unit. Returns what was known of it."""
        unit = self._units.pop(unit_id, None)
        if unit is not None:
            self._num_running -= unit.is_heard_of
            self._frames_others -= unit.done
            self._estimates -= unit.estimate
            self._work_others -= unit.work_done_seconds
            self._work_planned -= unit.work_seconds - unit.found_seconds
        if not self._units:
            # Sums of such numbers are not exact.
            self._work_others = self._work_planned = 0.0
        self._encoding.note(self._clock(), runs=self._num_running > 0)
        return unit

    def _update(self) -> None:
        progress = Progress(
            sources_done=self._sources_done,
            sources_total=self.sources_found,
            sources_failed=self._sources_failed,
            frames_done=self._frames_done,
            frames_planned=self._frames_ended + self._estimates,
            bytes_done=self._bytes,
            seconds=self.seconds,
            note="; ".join(filter(None, (self._doing(), self._still_looking()))),
            sources_planned=self._sources_planned,
            lists_more=self._lists_more,
            sources_there=self._sources_there,
            work_done_seconds=self._work_done_seconds,
            work_planned_seconds=self._work_ended + self._work_planned,
            pace=self._pace(),
        )
        for listener in self._listeners:
            listener.on_update(progress)
        self._on_progress(progress)

    @property
    def _frames_done(self) -> int:
        return self._frames_ended + self._frames_others

    @property
    def _work_done_seconds(self) -> float:
        return self._work_ended + self._work_others

    def _pace(self) -> Pace:
        if self._encoding.has_begun:
            now = self._clock()
            self._rates.note(now, self._encoding.seconds(now), self._frames_done, self._work_done_seconds)
        return self._rates.pace(is_encoding=self._num_running > 0)

    @property
    def _sources_there(self) -> int:
        return max(0, self._given - self.sources_found)

    def _doing(self) -> str:
        # Where the dataset has others, a job tries again what was missing before.
        if self._sources_there or not self._missing == self._sources_done >= _TOLD_MISSING:
            return self._note
        return (
            f"{self._note}, but no source was there so far: {self._first_missing} {NOT_THERE}. If the paths of a list "
            "begin in another folder, end this job (Ctrl-C) and name that folder with --list-root"
        )

    def _still_looking(self) -> str:
        total = self.sources_found
        if self._lists_more:
            return f"{counted(total, 'source')} found so far, {self._sources_planned} looked at"
        if not 0 < self._sources_planned < total:
            return ""
        return f"{self._sources_planned} of {counted(total, 'source')} looked at"
