"""How fast a job is and how long it takes: from the time in which units were encoded, once that is long enough."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from shortgop.cli.status_command import status_lines
from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.encoding_time import EncodingTime
from shortgop.jobs.progress.job_status import STATUS_KEY, JobStatus, read_status
from shortgop.jobs.progress.status_board import StatusBoard
from shortgop.jobs.progress.tally import Tally, ignore
from shortgop.jobs.sources.look import Expected
from shortgop.jobs.units_of_work.unit_results import UnitProgress, UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.storage.disk import DiskStorage


class Job:
    """A job of four units of 1000 frames each, at a time that only the test changes. Nothing has begun. Units are
    expected to take so many `seconds`; nothing is known of that if these are 0."""

    def __init__(self, seconds: Sequence[float] = (0, 0, 0, 0)) -> None:
        self.now = 1000.0
        self.tally = Tally(ignore, lambda: self.now)
        self._board = StatusBoard([], lambda: self.now)
        self.tally.tell(self._board)
        sources = [Source(f"{name}.mp4", f"/v/{name}.mp4", f"{name}.mp4", "{}") for name in "abcd"]
        units = [
            Unit(source.id[0], (Item(source, 1, 5_000_000),), expected_seconds=each)
            for source, each in zip(sources, seconds, strict=True)
        ]
        self.tally.plan(units, {source.id: Expected(1000) for source in sources})

    def report(self, unit: str, frames: int) -> None:
        self.tally.on_progress(UnitProgress(unit, frames, 1000, node="n"))

    def end(self, unit: str) -> None:
        self.tally.on_result(UnitResult(unit, 1, 1000, 1000, ()))

    @property
    def status(self) -> JobStatus:
        return self._board.status()

    @property
    def line(self) -> str:
        (line,) = [line for line in status_lines(self.status, self.now) if "of 4000 frames, " in line]
        return line


def test_the_start_of_ray_is_no_part_of_the_rate() -> None:
    job = Job()
    job.now += 60
    assert job.line == "0 of 4000 frames, 0 frames/s while encoding, too early to say how long it takes"
    assert job.status.encoding_seconds == 0
    job.report("a", 0)
    job.now += 8
    job.report("a", 400)
    assert job.line == "400 of 4000 frames, 50 frames/s while encoding, too early to say how long it takes"
    assert "node n: 400 frames" in status_lines(job.status, job.now)
    job.now += 8
    job.report("a", 800)
    assert job.line == "800 of 4000 frames, 50 frames/s while encoding (50 in the last minute), about 1 min 4 s left"
    assert "node n: 800 frames, 50 frames/s in the last minute" in status_lines(job.status, job.now)


def test_what_was_encoded_when_a_unit_is_first_heard_of_says_nothing_of_the_rate() -> None:
    """Reports of a busy cluster come late."""
    job = Job()
    job.report("a", 500)
    job.now += 10
    job.report("a", 700)
    assert job.status.seconds_left == pytest.approx(3300 / 20)


def test_pauses_are_no_part_of_the_estimate() -> None:
    """A job waits for a machine, or looks at the sources of the next window, and encodes nothing meanwhile."""
    job = Job()
    job.report("a", 0)
    job.now += 20
    job.end("a")
    for pause in (30, 3600):
        job.now += pause
        found = job.status
        assert found.encoding_seconds == 20
        assert " 50 frames/s while encoding (" in job.line
        assert found.seconds_left == pytest.approx(3000 / 50)
    assert job.status.recent_frames_per_second < 1
    job.report("b", 0)
    job.now += 5
    job.report("b", 250)
    assert job.status.seconds_left == pytest.approx(2750 / 50)


def test_it_is_no_pause_where_another_unit_runs() -> None:
    job = Job()
    job.report("a", 0)
    job.report("b", 0)
    job.now += 20
    job.end("a")
    job.now += 30
    assert job.status.encoding_seconds == 50
    job.report("b", 500)
    assert job.status.encoding_seconds == 50


def test_the_time_that_is_left_is_that_of_the_work_and_not_of_the_frames(tmp_path: Path) -> None:
    job = Job([300, 100, 100, 100])
    job.report("a", 0)
    job.now += 20
    job.report("a", 500)
    # 150 of 600 seconds of work, and one frame of eight.
    assert job.status.seconds_left == pytest.approx(20 * 450 / 150, rel=1e-3)
    assert job.line == "500 of 4000 frames, 25 frames/s while encoding (25 in the last minute), about 1 min left"
    # Nothing is lost on the way through the file, and what stands still takes longer.
    job.now += 10
    (tmp_path / STATUS_KEY).write_text(json.dumps(dataclasses.asdict(job.status)))
    read = read_status(DiskStorage(tmp_path))
    assert read.seconds_left == pytest.approx(30 * 450 / 150, rel=1e-3)
    assert read.time_left == ", about 1 min 30 s left"


def test_a_job_that_stands_still_takes_longer() -> None:
    job = Job()
    job.report("a", 0)
    job.now += 20
    job.report("a", 999)
    before = job.status.seconds_left
    job.now += 20
    after = job.status.seconds_left
    assert before is not None
    assert after == pytest.approx(2 * before)


def test_units_of_which_the_driver_hears_when_they_have_ended_take_their_time() -> None:
    time = EncodingTime()
    for tick in range(11):
        # Both at one moment: that it began, and that it has ended.
        time.note(100 + tick, runs=True)
        time.note(100 + tick, runs=False)
    assert time.has_begun
    assert (time.seconds(110), time.seconds(500)) == (10, 10)
    time.note(500, runs=True)
    assert time.seconds(501) == 11
    # The clock was set.
    time.note(400, runs=True)
    assert time.seconds(300) == 10


def test_a_status_of_an_earlier_version_is_read_and_has_an_estimate_as_before(tmp_path: Path) -> None:
    found = JobStatus("host", 7, started=0, written=100, frames_done=1000, frames_planned=4000, sources_total=4)
    old = dataclasses.asdict(found)
    for name in (
        *("encoding_seconds", "encoding_frames_per_second", "sources_there", "node_work"),
        *("work_done_seconds", "work_planned_seconds", "encoding_work_per_second"),
    ):
        del old[name]
    (tmp_path / STATUS_KEY).write_text(json.dumps(old | {"recent_frames_per_second": 30.0, "nodes": {"n": 1000}}))
    read = read_status(DiskStorage(tmp_path))
    assert read.seconds_left == 100
    assert "node n: 1000 frames, 0 frames/s in the last minute" in status_lines(read, 100)
