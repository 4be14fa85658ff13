"""What a job says of itself in a log while it runs: what `shortgop status` says of it, too."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from shortgop.cli.progress import job_progress
from shortgop.cli.status_command import status_lines
from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.status_board import StatusBoard
from shortgop.jobs.progress.tally import Progress, Tally
from shortgop.jobs.sources.look import Expected
from shortgop.jobs.units_of_work.unit_results import UnitProgress, UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit


class Job:
    """A job of two units of 500 frames each, at a time that only the test changes. It shows itself on a console, and
    keeps what it has told."""

    def __init__(self, console: Console) -> None:
        self.now = 1000.0
        self.told: list[Progress] = []
        # What the status says of frames, when the note changes.
        self.statuses: list[str] = []
        with job_progress(console) as show:

            def tell(progress: Progress) -> None:
                self.told.append(progress)
                show(progress)

            self.tally = Tally(tell, lambda: self.now)
            self._board = StatusBoard([], lambda: self.now)
            self.tally.tell(self._board)
            self.run()

    def run(self) -> None:
        names = ("a", "b")
        units = [Unit(name, (Item(Source(name, name, name, "{}"), 1, 1),), expected_seconds=100) for name in names]
        self.tally.plan(units, dict.fromkeys(names, Expected(500)))
        self.note("starting Ray")
        self.now += 14
        self.note("encoding")
        self.report(0)
        self.now += 1
        self.report(16)
        self.note("publishing")
        self.now += 14
        self.note("encoding")
        self.report(300)
        self.note("publishing")
        for name in names:
            self.tally.on_result(UnitResult(name, 1, 500, 1, ()))
        self.note("looking for sources that have changed")

    def note(self, text: str) -> None:
        self.tally.note(text)
        self.statuses += [line for line in status_lines(self._board.status(), self.now) if "while encoding" in line]

    def report(self, frames: int) -> None:
        self.tally.on_progress(UnitProgress("a", frames, 500, is_own=True))


def test_a_log_says_what_the_status_says_of_the_time_that_is_left() -> None:
    """Without the start of Ray, and without a guess while little is encoded."""
    text = StringIO()
    job = Job(Console(file=text, force_terminal=False))
    early = "frames/s while encoding, too early to say how long it takes"
    assert job.statuses == [
        f"0 of 1000 frames, 0 {early}",
        f"0 of 1000 frames, 0 {early}",
        f"16 of 1000 frames, 16 {early}",
        "16 of 1000 frames, 1 frames/s while encoding (1 in the last minute), about 15 min 23 s left",
        "300 of 1000 frames, 20 frames/s while encoding (20 in the last minute), about 35 s left",
        "1000 of 1000 frames, 67 frames/s while encoding (67 in the last minute)",
    ]
    lines = text.getvalue().splitlines()
    assert [line.rpartition(", ")[0] for line in lines[-6:]] == job.statuses
    assert lines[-2].endswith("left, 0/2 videos; publishing")


def test_a_bar_says_it_too() -> None:
    text = StringIO()
    job = Job(Console(file=StringIO()))
    (during, *_) = [told for told in job.told if told.frames_done == 300]
    with job_progress(Console(file=text, force_terminal=True, width=200, color_system=None)) as show:
        show(during)
    assert "300/1000 frames 20 frames/s while encoding (20 in the last minute), about 35 s left, 0/2" in text.getvalue()


def test_a_bar_in_a_narrow_terminal_says_all_of_it() -> None:
    text = StringIO()
    job = Job(Console(file=StringIO()))
    (during, *_) = [told for told in job.told if told.frames_done == 300]
    with job_progress(Console(file=text, force_terminal=True, width=80, color_system=None)) as show:
        show(during)
    words = " ".join(text.getvalue().split())
    assert "300/1000 frames 20 frames/s while encoding (20 in the last minute), about 35 s left, 0/2 videos;" in words


@pytest.mark.parametrize("note", ["joining the Ray cluster at [fe80::1]:6379", "cannot read '[a][/b]/c.mp4'"])
def test_a_bar_shows_brackets_as_they_are_and_no_control_characters(note: str) -> None:
    text = StringIO()
    job = Job(Console(file=StringIO()))
    with job_progress(Console(file=text, force_terminal=True, width=300, color_system=None)) as show:
        show(replace(job.told[-1], note=f"{note}\x1b[31m"))
    assert f"2/2 videos; {note}\\x1b[31m" in text.getvalue()


def test_the_first_frames_are_no_rate_of_thousands() -> None:
    text = StringIO()
    now = 1000.0
    with job_progress(Console(file=text, force_terminal=False)) as show:
        tally = Tally(show, lambda: now)
        now += 20
        tally.plan([Unit("a", (Item(Source("a", "a", "a", "{}"), 1, 1),))], {"a": Expected(1000)})
        tally.on_progress(UnitProgress("a", 0, 1000))
        now += 0.1
        tally.on_progress(UnitProgress("a", 16, 1000))
        tally.note("encoding")
    assert text.getvalue().splitlines()[-1].startswith("16 of 1000 frames, 1 frames/s while encoding, too early")


def test_before_frames_are_known_a_line_has_no_counts_of_them() -> None:
    text = StringIO()
    with job_progress(Console(file=text, force_terminal=False)) as show:
        tally = Tally(show, lambda: 0.0)
        tally.tell(StatusBoard([], lambda: 0.0))
        tally.note("looking at 4 sources")
    assert text.getvalue() == "looking at 4 sources\n"
