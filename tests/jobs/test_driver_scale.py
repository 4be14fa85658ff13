"""What the driver of a job does for one report of progress does not grow with the number of units.

Time says little of that on a machine that others use. So what is done is counted: bytecodes, and additions of frames,
which `sum` makes without any.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.status_board import StatusBoard
from shortgop.jobs.progress.tally import Progress, Tally
from shortgop.jobs.sources.look import Expected
from shortgop.jobs.units_of_work.unit_results import UnitProgress, UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit

_FEW, _MANY = 50, 2_000


class Frames(int):
    """A number of frames that counts how often something is added to it."""

    additions = 0

    def __add__(self, other: int) -> Frames:
        Frames.additions += 1
        return Frames(int(self) + int(other))

    __radd__ = __add__


def steps_of(work: Callable[[], object]) -> int:
    """How many bytecodes of Python and additions of frames this takes."""
    bytecodes, additions, before = 0, Frames.additions, sys.gettrace()

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal bytecodes
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        bytecodes += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return bytecodes + Frames.additions - additions


class Job:
    """The driver's view of a job with many units that run, each of which has reported once."""

    def __init__(self, num_units: int) -> None:
        self.told: list[Progress] = []
        self.tally, self.board = Tally(self.told.append), StatusBoard([], lambda: 1000.0)
        self.tally.tell(self.board)
        names = [str(number) for number in range(num_units)]
        items = [(Item(Source(name, f"/v/{name}", name, "{}"), 1, 5_000_000),) for name in names]
        units = [Unit(name, each, expected_seconds=10.0) for name, each in zip(names, items, strict=True)]
        self.tally.plan(units, {name: Expected(Frames(100)) for name in names})
        self.tally.on_all_progress([report(name, 10) for name in names])


def report(unit: str, frames: int, section: int | None = None) -> UnitProgress:
    return UnitProgress(unit, Frames(frames), Frames(100), section, "a machine")


@pytest.mark.parametrize(
    "event",
    [
        lambda job: job.tally.on_progress(report("7", 20)),
        lambda job: job.tally.on_progress(report("7", 20, section=3)),
        lambda job: job.tally.on_result(UnitResult("7", 1, Frames(100), 1000, ())),
        lambda job: job.tally.note("encoding"),
    ],
    ids=["a report", "a report of a section", "a result", "a note"],
)
def test_an_event_costs_the_same_however_many_units_run(event: Callable[[Job], None]) -> None:
    # Python 3.13 counts the bytecodes of a function from its second call on.
    _, few, many = (steps_of(partial(event, Job(size))) for size in (_FEW, _FEW, _MANY))
    assert few == pytest.approx(many, rel=0.1)


def test_the_status_of_a_job_costs_about_as_much_more_as_there_are_units_more() -> None:
    few, many = (steps_of(Job(size).board.status) for size in (_FEW, _MANY))
    assert few > 100
    assert many < 2 * few * _MANY / _FEW


def test_what_all_units_have_reported_since_the_last_look_is_one_change() -> None:
    job = Job(_FEW)
    before = len(job.told)
    job.tally.on_all_progress([report(str(number), 30) for number in range(_FEW)])
    job.tally.on_all_progress([])
    job.tally.on_all_progress([report("not of this job", 1)])
    assert [progress.frames_done for progress in job.told[before:]] == [30 * _FEW]
    assert [task.frames for task in job.board.status().running] == [30] * 5
