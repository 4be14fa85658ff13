"""The progress of a command, on standard error: a live bar on a terminal, lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from ..jobs import tally as job

# Without a terminal a line is printed this often: often enough to follow a job in a log.
_LINE_EVERY_SECONDS = 10.0
_LEAST_SECONDS = 2.0


class EncodingRate:
    """Frames/s of a job since its first frames were about to come: without the start of Ray, and looks at sources.
    `EncodingTime`, which leaves out later pauses too, needs to hear of each unit, and a bar hears of sums alone."""

    def __init__(self) -> None:
        self._began_seconds = 0.0

    def of(self, state: job.Progress) -> float:
        """Call this with each state of the job. 0 while no frame is done."""
        if not state.frames_done:
            self._began_seconds = state.seconds
        # Frames come in GOPs, so the rate of a shorter time says little.
        return state.frames_done / max(state.seconds - self._began_seconds, _LEAST_SECONDS)


@contextmanager
def job_progress(err: Console) -> Iterator[job.OnProgress]:
    """Yields the function that shows a job's progress: a live bar on a terminal, else a line from time to time."""

    encoding = EncodingRate()

    def text(state: job.Progress, rate: float) -> str:
        failed = f", {state.sources_failed} failed" if state.sources_failed else ""
        return f"{rate:.0f} frames/s, {state.sources_done}/{state.sources_total} videos{failed}; {state.note}"

    if err.is_terminal:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("frames"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=err, transient=True) as bar:
            task = bar.add_task("", total=None)

            def update(state: job.Progress) -> None:
                total = None if state.lists_more else state.frames_expected or None
                described = text(state, encoding.of(state))
                bar.update(task, completed=state.frames_done, total=total, description=described)

            yield update
        return
    last_line, last_note = 0.0, ""

    def line(state: job.Progress) -> None:
        nonlocal last_line, last_note
        now, rate = time.monotonic(), encoding.of(state)
        # What follows a semicolon are counts.
        note = state.note.partition(";")[0]
        if note != last_note or now - last_line >= _LINE_EVERY_SECONDS:
            last_line, last_note = now, note
            left = ""
            if 0 < state.frames_done < state.frames_expected and not state.lists_more:
                left = f", {(state.frames_expected - state.frames_done) / rate:.0f} s left"
            done = f"{state.frames_done}/{state.frames_expected} frames"
            err.print(f"{done}{left}, {text(state, rate)}", markup=False, soft_wrap=True)

    yield line


@contextmanager
def loop_bar(err: Console, what: str, total: int | None) -> Iterator[Any]:
    """A bar for a loop, on a terminal only. `total` is None if its length is not known."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(what), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
