"""How long a job is said to take still, beside how long it takes: frames differ in what they cost.

The jobs are made up of what `benchmarks/encode_costs.py` measured of real footage, and run on cores that are only
numbers, with a clock of their own.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.tally import Progress, Tally
from shortgop.jobs.progress.time_left import Amount, Pending, seconds_left, time_left
from shortgop.jobs.sources.look import Expected
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.unit_results import Failure, UnitProgress, UnitResult
from shortgop.jobs.units_of_work.units import MAX_VIDEOS_PER_UNIT, Item, Unit, split_unit
from shortgop.prep.section_plan import SECTION_SECONDS
from sweep import sample

pytestmark = pytest.mark.long

_TABLE = json.loads((Path(__file__).parents[1] / "shared" / "measured_costs.json").read_text())
_MEASURED = [dict(zip(_TABLE["columns"], row, strict=True)) for row in _TABLE["rows"]]
_LARGE = [each for each in _MEASURED if each["made"] == "1080p"]
# Of the pictures of small clips.
_SMALL_PIXELS = 60_000
_SMALL = [each for each in _MEASURED if each["pixels"] <= _SMALL_PIXELS]
_CORES, _REPORT_SECONDS = 50, 5.0
_NO_WORK = Amount(0, 0, 0)


@dataclass(frozen=True)
class Work:
    """A unit, the frames of each of its sources, and how long it takes."""

    unit: Unit
    frames: int
    seconds: float

    @property
    def all_frames(self) -> int:
        return self.frames * len(self.unit.items)


def works(costs: Sequence[dict[str, float]], count: int, rng: random.Random) -> list[Work]:
    """Units of sources that were measured, each of as many like one of them as a unit has, or of a part of them."""
    made = []
    for _ in range(count):
        cost = rng.choice(costs)
        most = min(MAX_VIDEOS_PER_UNIT, math.ceil(SECTION_SECONDS / cost["expected_seconds"]))
        times = rng.randint(1, most)
        names = [f"{rng.random()}.mp4" for _ in range(times)]
        items = tuple(Item(Source(name, name, name, "{}"), 1, 1) for name in names)
        unit = Unit(names[0], items, expected_seconds=times * cost["expected_seconds"])
        made.append(Work(unit, int(cost["frames"]), times * cost["seconds"]))
    return made


def told(windows: Sequence[Sequence[Work]], few_sources: int) -> Iterator[tuple[float, Progress]]:
    """What a job says of itself from time to time, and the time. It takes the units of the next window as soon as fewer
    than `few_sources` wait."""
    now = 0.0
    seen: list[Progress] = []
    tally = Tally(seen.append, lambda: now)
    all_works = {work.unit.id: work for works in windows for work in works}
    tally.expect(sum(len(work.unit.items) for work in all_works.values()))
    left = iter(windows)

    def more(_wait: bool) -> Sequence[Unit] | None:
        window = next(left, None)
        if window is None:
            return None
        units = [work.unit for work in window]
        expected = {item.source.id: Expected(work.frames) for work in window for item in work.unit.items}
        tally.plan(units, expected)
        return units

    order = Order(more=more, few_sources=few_sources)
    # When each unit ends that runs, its id, and when it began.
    running: list[tuple[float, str, float]] = []
    looked = 0.0
    while order.fill(wait=not running) or running:
        while order and len(running) < _CORES:
            work = all_works[order.next().unit.id]
            heapq.heappush(running, (now + work.seconds, work.unit.id, now))
            tally.on_progress(UnitProgress(work.unit.id, 0, 0, is_own=True))
        now = min(looked + _REPORT_SECONDS, running[0][0])
        if now < running[0][0]:
            looked = now
            reports = []
            for ends, unit_id, began in running:
                share = (now - began) / (ends - began)
                work = all_works[unit_id]
                reports.append(UnitProgress(unit_id, int(share * work.all_frames), work.all_frames, is_own=True))
            tally.on_all_progress(reports)
            yield now, seen[-1]
            seen.clear()
        else:
            _, unit_id, _ = heapq.heappop(running)
            work = all_works[unit_id]
            tally.on_result(UnitResult(unit_id, len(work.unit.items), work.all_frames, 1, ()))
    yield now, seen[-1]


def corpus(kind: str, rng: random.Random) -> list[list[Work]]:
    """The windows of a corpus: of everything that was measured, or a folder of large videos and one of small ones."""
    if kind == "mixed":
        return [works(_MEASURED, 400, rng), works(_MEASURED, 400, rng)]
    large, small = works(_LARGE, 400, rng), works(_SMALL, 400, rng)
    return [large, small] if kind == "large first" else [small, large]


def ratios(kind: str, seed: int) -> tuple[list[float], list[float]]:
    """What is said to be left of what is left, between the first and the last tenth of a job, where all sources were
    looked at: by work, and by frames, as earlier versions did."""
    windows = corpus(kind, random.Random(seed))
    all_told = list(told(windows, sum(len(work.unit.items) for work in windows[0]) // 6))
    ends = all_told[-1][0]
    by_work: list[float] = []
    by_frames: list[float] = []
    for now, progress in all_told:
        if 0.1 * ends < now < 0.9 * ends and progress.sources_planned == progress.sources_total:
            found = progress.pending
            for said, pending in ((by_work, found), (by_frames, found._replace(work=_NO_WORK))):
                seconds = seconds_left(pending)
                assert seconds is not None
                said.append(seconds / (ends - now))
    return by_work, by_frames


@pytest.mark.parametrize("seed", sample([0, 1], more=list(range(2, 20))))
@pytest.mark.parametrize("kind", ["mixed", "large first", "small first"])
def test_what_is_said_to_be_left_is_left_within_a_fifth(kind: str, seed: int) -> None:
    by_work, by_frames = ratios(kind, seed)
    assert len(by_work) > 50
    assert min(by_work) > 0.83
    assert max(by_work) < 1.2
    if kind == "large first":
        assert max(by_frames) > 2
    if kind == "small first":
        assert min(by_frames) < 0.5


class Job:
    """A job of units that only the test runs, each of whose sources is expected to have so many frames."""

    def __init__(self, *units: Unit, frames: int = 100) -> None:
        self._told: list[Progress] = []
        self.tally = Tally(self._told.append, lambda: 0.0)
        self.tally.plan(units, {item.source.id: Expected(frames) for unit in units for item in unit.items})

    @property
    def work(self) -> Any:
        """What is done of it, and all of it, in seconds. Each source takes a little besides."""
        last = self._told[-1]
        return pytest.approx((last.work_done_seconds, last.work_planned_seconds), abs=0.2)


def unit_of(name: str, seconds: float, *, sources: int = 1) -> Unit:
    names = [f"{name}{number}.mp4" for number in range(sources)]
    items = tuple(Item(Source(each, each, each, "{}"), 1, 1) for each in names)
    return Unit(name, items, expected_seconds=seconds)


def failed(name: str) -> Failure:
    return Failure(name, name, "it is broken", name)


def test_a_running_unit_counts_by_its_frames() -> None:
    job = Job(unit_of("a", 60), unit_of("b", 30))
    job.tally.on_progress(UnitProgress("a", 50, 100, is_own=True))
    assert job.work == (30, 90)
    # Its header had told less than half of its frames.
    job.tally.on_progress(UnitProgress("a", 50, 250, is_own=True))
    assert job.work == (12, 90)
    # A second attempt has begun anew.
    job.tally.on_progress(UnitProgress("a", 25, 250, is_own=True))
    assert job.work == (6, 90)
    job.tally.on_result(UnitResult("a", 1, 250, 1, ()))
    assert job.work == (60, 90)
    job.tally.on_progress(UnitProgress("a", 250, 250, is_own=True))
    assert job.work == (60, 90)


def test_sections_of_a_unit_count_together_and_those_of_an_earlier_job_not_at_all() -> None:
    job = Job(unit_of("a", 60), unit_of("b", 30))
    for section in (0, 1, 2):
        job.tally.on_progress(UnitProgress("a", 0, 0, section))
    job.tally.on_progress(UnitProgress("a", 20, 0, 0, is_own=True))
    job.tally.on_progress(UnitProgress("a", 25, 0, 1, is_own=True))
    assert job.work == (27, 90)
    # An earlier job had encoded the third one.
    job.tally.on_progress(UnitProgress("a", 50, 0, 2))
    assert job.work == (27, 60)
    # Another attempt at one that is this job's own finds it.
    job.tally.on_progress(UnitProgress("a", 25, 0, 1))
    assert job.work == (27, 60)
    job.tally.on_result(UnitResult("a", 1, 100, 1, ()))
    assert job.work == (30, 60)


def test_a_video_that_was_cut_and_is_encoded_whole_is_all_left_again() -> None:
    job = Job(unit_of("a", 60))
    job.tally.on_progress(UnitProgress("a", 50, 0, 0))
    job.tally.on_progress(UnitProgress("a", 20, 0, 1, is_own=True))
    assert job.work == (12, 30)
    job.tally.on_progress(UnitProgress("a", 0, 100))
    assert job.work == (0, 60)


def test_sources_that_fail_are_no_work_that_was_done() -> None:
    job = Job(unit_of("a", 60), unit_of("b", 40, sources=4))
    job.tally.on_result(UnitResult("a", 0, 0, 0, (failed("a0.mp4"),)))
    assert job.work == (0, 40)
    job.tally.on_result(UnitResult("b", 3, 300, 1, (failed("b2.mp4"),)))
    assert job.work == (30, 30)


def test_the_parts_of_a_unit_that_was_split_take_its_place() -> None:
    job = Job(whole := unit_of("a", 60, sources=3))
    job.tally.on_progress(UnitProgress("a", 150, 300, is_own=True))
    assert job.work == (30, 60)
    parts = split_unit(whole, "profile")
    job.tally.on_split(whole, parts)
    assert job.work == (0, 60)
    job.tally.on_progress(UnitProgress("a", 200, 300, is_own=True))
    job.tally.on_result(UnitResult(parts[0].id, 1, 100, 1, ()))
    assert job.work == (20, 60)


def test_a_unit_of_sources_that_nobody_has_opened_is_not_done_with_the_first_of_them() -> None:
    """As in a store: what a worker has planned so far is that of the sources that it has looked at."""
    job = Job(unit_of("a", 60, sources=4), unit_of("b", 60, sources=4), frames=0)
    job.tally.on_progress(UnitProgress("a", 100, 100, is_own=True))
    assert job.work == (0, 120)
    job.tally.on_result(UnitResult("a", 4, 400, 1, ()))
    assert job.work == (60, 120)
    # Those of the first unit had 100 frames each.
    job.tally.on_progress(UnitProgress("b", 100, 100, is_own=True))
    assert job.work == (75, 120)
    job.tally.on_progress(UnitProgress("b", 100, 800, is_own=True))
    assert job.work == (67.5, 120)


def test_sources_that_are_not_looked_at_take_as_much_as_the_others() -> None:
    amounts = Progress(0, 8, 0, 10, 100, sources_planned=2, work_done_seconds=5, work_planned_seconds=20).pending
    assert (amounts.frames.expected, amounts.work.expected) == (400, 80)


def test_frames_count_where_nothing_is_known_of_the_work() -> None:
    found = Pending(True, False, 100, 100, 20, Amount(1000, 4000, 20), _NO_WORK)
    assert seconds_left(found) == 150
    assert seconds_left(found._replace(work=Amount(50, 100, 0.1))) == 500
    # Nothing was encoded in the last minute: then it is the rate of the whole job.
    assert seconds_left(found._replace(work=Amount(50, 100, 0))) == 100


def test_what_there_is_to_say_of_the_time_that_is_left() -> None:
    found = Pending(True, False, 100, 100, 20, Amount(1000, 4000, 20), Amount(50, 100, 0.001))
    assert time_left(found) == ", about 13 h 53 min left"
    assert time_left(found._replace(encoding_seconds=9)) == ", too early to say how long it takes"
    assert time_left(found._replace(work=Amount(0, 100, 0))) == ", too early to say how long it takes"
    assert time_left(found._replace(is_running=False)) == ""
    assert time_left(found._replace(lists_more=True)) == ""
    assert time_left(found._replace(encoding_seconds=9, work=Amount(100, 100, 1))) == ""
