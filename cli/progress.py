"""The progress of a command, on standard error: a live bar on a terminal, lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from ..wording import counted, plain

if TYPE_CHECKING:
    from ..jobs.progress import tally as job
    from ..jobs.progress.job_status import JobStatus

# Without a terminal a line is printed this often: often enough to follow a job in a log.
_LINE_EVERY_SECONDS = 10.0
_BAR_WIDTH = 20


def encoded(found: job.Progress | JobStatus) -> str:
    """How many frames of a job are done, how fast, and how long it still takes."""
    about = "" if found.frames_expected == found.frames_planned else "about "
    return f"{found.frames_done} of {about}{counted(found.frames_expected, 'frame')}, {_speed(found)}"


def _speed(found: job.Progress | JobStatus) -> str:
    from ..jobs.progress.time_left import speed

    return speed(found.pending)


@contextmanager
def job_progress(err: Console) -> Iterator[job.OnProgress]:
    """Yields the function that shows a job's progress: a live bar on a terminal, else a line from time to time."""

    def videos(state: job.Progress) -> str:
        failed = f", {state.sources_failed} failed" if state.sources_failed else ""
        return f"{state.sources_done}/{state.sources_total} videos{failed}; {state.note}"

    if err.is_terminal:
        # The rest of a bar says nothing of the time: frames differ in what they cost.
        # Where the terminal is narrow, what is said goes on in the next line, and nothing of it is cut off.
        # Notes hold paths and addresses, whose brackets are no markup.
        said = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1))
        columns = (BarColumn(_BAR_WIDTH), MofNCompleteColumn(), TextColumn("frames"), said)
        with Progress(*columns, console=err, transient=True) as bar:
            task = bar.add_task("", total=None)

            def update(state: job.Progress) -> None:
                total = None if state.lists_more else state.frames_expected or None
                described = plain(f"{_speed(state)}, {videos(state)}")
                bar.update(task, completed=state.frames_done, total=total, description=described)

            yield update
        return
    last_line, last_note = time.monotonic(), ""

    def line(state: job.Progress) -> None:
        nonlocal last_line, last_note
        now = time.monotonic()
        # What follows a semicolon are counts.
        note = state.note.partition(";")[0]
        if note != last_note or now - last_line >= _LINE_EVERY_SECONDS:
            last_line, last_note = now, note
            # Before frames are known, counts of them would all be 0.
            text = f"{encoded(state)}, {videos(state)}" if state.frames_expected else state.note
            err.print(text, markup=False, soft_wrap=True)

    yield line


@contextmanager
def loop_bar(err: Console, what: str, total: int | None) -> Iterator[Any]:
    """A bar for a loop, on a terminal only. `total` is None if its length is not known."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(what), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
