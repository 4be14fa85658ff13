"""The progress of a job, added up from what its units report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .look import Expected
from .units import Unit
from .work import UnitProgress, UnitResult


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    `sources_total` are the sources that the job prepares, those not counted that are in the dataset already; it is 0
    until the sources have been looked at. `sources_done` are prepared, or have failed like `sources_failed` of them.
    `frames_planned` is an estimate from the sources' headers until prep has planned each source. `bytes_done` are
    those of finished units. `seconds` is the time since the job began. `note` says what the job is doing.
    """

    sources_done: int = 0
    sources_total: int = 0
    sources_failed: int = 0
    frames_done: int = 0
    frames_planned: int = 0
    bytes_done: int = 0
    seconds: float = 0.0
    note: str = ""


OnProgress = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """An OnProgress that does nothing."""


class Listener(Protocol):
    """Is told everything that a tally is told, and its progress after each change."""

    def on_update(self, progress: Progress) -> None: ...

    def on_progress(self, unit: UnitProgress) -> None: ...

    def on_result(self, result: UnitResult) -> None: ...

    def on_split(self, unit: Unit, parts: Sequence[Unit]) -> None: ...


class Tally:
    """Adds up what units report, and calls `on_progress` with the job's progress after each change."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._note = ""
        self._sources_done = self._sources_total = self._sources_failed = self._bytes = 0
        self._expected: Mapping[str, Expected] = {}
        self._estimates: dict[str, int] = {}
        self._ended: set[str] = set()
        self._frames: dict[str, int] = {}
        self._sections: dict[str, dict[int | None, int]] = {}
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

    def plan(self, units: Sequence[Unit], estimates: Mapping[str, Expected]) -> None:
        """The units that the job runs; `estimates` has what is expected of each source, by its id."""
        self._expected = estimates
        self._estimates = {unit.id: self._expected_frames(unit) for unit in units}
        self._sources_total = sum(len(unit.items) for unit in units)

    def _expected_frames(self, unit: Unit) -> int:
        return sum(self._expected[item.source.id].frames for item in unit.items)

    def on_progress(self, unit: UnitProgress) -> None:
        if unit.unit in self._ended:
            # What a worker says may come after what it did.
            return
        for listener in self._listeners:
            listener.on_progress(unit)
        sections = self._sections.setdefault(unit.unit, {})
        if unit.section is None:
            # A source that was cut and is now encoded whole starts again.
            sections.clear()
        sections[unit.section] = unit.frames
        self._frames[unit.unit] = sum(sections.values())
        self._estimates[unit.unit] = max(self._estimates.get(unit.unit, 0), unit.planned)
        self._update()

    def on_result(self, result: UnitResult) -> None:
        for listener in self._listeners:
            listener.on_result(result)
        self._frames[result.unit] = self._estimates[result.unit] = result.frames
        self._sections.pop(result.unit, None)
        self._ended.add(result.unit)
        self._sources_done += result.videos + len(result.failures)
        self._sources_failed += len(result.failures)
        self._bytes += result.bytes
        self._update()

    def on_split(self, unit: Unit, parts: Sequence[Unit]) -> None:
        """`parts` take the place of a unit, of which nothing is kept."""
        for listener in self._listeners:
            listener.on_split(unit, parts)
        for of_unit in (self._frames, self._estimates, self._sections):
            of_unit.pop(unit.id, None)
        self._ended.add(unit.id)
        self._estimates |= {part.id: self._expected_frames(part) for part in parts}
        self._update()

    def _update(self) -> None:
        progress = Progress(
            sources_done=self._sources_done,
            sources_total=self._sources_total,
            sources_failed=self._sources_failed,
            frames_done=sum(self._frames.values()),
            frames_planned=sum(self._estimates.values()),
            bytes_done=self._bytes,
            seconds=self.seconds,
            note=self._note,
        )
        for listener in self._listeners:
            listener.on_update(progress)
        self._on_progress(progress)
