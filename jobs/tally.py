"""The progress of a job, added up from what its units report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .units import Unit
from .work import Failure, UnitProgress, UnitResult


@dataclass
class Progress:
    """The progress of a job. `frames_planned` is an estimate from the sources' headers until prep has planned each
    source."""

    frames_done: int = 0
    frames_planned: int = 0
    videos_done: int = 0
    videos_planned: int = 0
    failures: list[Failure] = field(default_factory=list)
    note: str = ""


OnUpdate = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """An OnUpdate that does nothing."""


class Tally:
    """Adds up what units report into the job's progress."""

    def __init__(
        self, units: Sequence[Unit], estimates: dict[str, int], progress: Progress, on_update: OnUpdate
    ) -> None:
        self._progress = progress
        self._on_update = on_update
        self._estimates = {unit.id: sum(estimates[item.source.id] for item in unit.items) for unit in units}
        self._frames: dict[str, int] = {}
        progress.videos_planned = sum(len(unit.items) for unit in units)
        progress.frames_planned = sum(self._estimates.values())

    def note(self, text: str) -> None:
        self._progress.note = text
        self._on_update(self._progress)

    def on_progress(self, unit: UnitProgress) -> None:
        self._frames[unit.unit] = unit.frames
        self._estimates[unit.unit] = max(self._estimates.get(unit.unit, 0), unit.planned)
        self._update()

    def on_result(self, result: UnitResult) -> None:
        self._frames[result.unit] = self._estimates[result.unit] = result.frames
        self._progress.videos_done += result.videos
        self._progress.failures.extend(result.failures)
        self._update()

    def _update(self) -> None:
        self._progress.frames_done = sum(self._frames.values())
        self._progress.frames_planned = sum(self._estimates.values())
        self._on_update(self._progress)
