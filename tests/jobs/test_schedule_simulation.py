"""The order and the attempts of a job on a cluster of 1,000 nodes that are only numbers, with a clock of their own.

Ray chooses a free core; here that is a random one. Nodes are of three kinds, some are five times slower than they
should be, attempts fail, on some nodes they may never end, and nodes are lost and come again.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work import order
from shortgop.jobs.units_of_work.costs import Measured
from shortgop.jobs.units_of_work.gpu_slots import Machine, Slots
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.unit_results import UnitResult
from shortgop.jobs.units_of_work.units import MAX_VIDEOS_PER_UNIT, Item, Unit
from shortgop.jobs.working.second_attempts import Attempt, Attempts, key_of
from shortgop.prep.section_plan import SECTION_SECONDS
from sweep import sample

pytestmark = pytest.mark.long

_CORES, _UNITS_PER_CORE = 4, 40
# Cores without a GPU, with one that decodes, and with one that encodes as well.
_SPEEDS = (1.0, 1.3, 2.5)
_SLOW_NODES, _SLOWER = 0.02, 5
_FAILURES, _LOST_NODES = 0.01, 0.02
# On these nodes this part of the attempts never ends: a mount that does not always answer.
_BAD_NODES, _HANG = 0.02, 0.1
_AWAY_SECONDS = 120.0
# What `benchmarks/encode_costs.py` wrote: excerpts of real footage, and what stands for films.
_FILMS = ("looped", "1080p")
_TABLE = json.loads((Path(__file__).parents[1] / "shared" / "measured_costs.json").read_text())
_MEASURED = [dict(zip(_TABLE["columns"], row, strict=True)) for row in _TABLE["rows"]]
_MEASURED_FILMS = [each for each in _MEASURED if each["made"] in _FILMS]
_MEASURED_CLIPS = [each for each in _MEASURED if each["made"] not in _FILMS]
# Of the units of a corpus with films this part is of clips.
_CLIPS_PER_FILM = 0.5
_KINDS = ("clips", "films", "measured clips", "measured films")


@dataclass
class Cluster:
    """What runs where. The real length of a unit differs from what is expected of it. `free` has a node once for each
    of its cores that is free. On `bad` nodes the part `hang` of the attempts never ends."""

    speeds: Sequence[float]
    bad: frozenset[int]
    rng: random.Random
    lengths: dict[str, float]
    hang: float = _HANG
    cores: int = _CORES
    free: list[int] = field(default_factory=list)
    works: dict[int, list[Attempt]] = field(default_factory=dict)
    events: list[tuple[float, int, str, int, Attempt | None]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for node in range(len(self.speeds)):
            self.free += [node] * self.cores
            self.works[node] = []

    def at(self, when: float, what: str, node: int, attempt: Attempt | None = None) -> None:
        heapq.heappush(self.events, (when, next(self.numbers), what, node, attempt))

    def free_for(self, attempt: Attempt) -> int | None:
        """Take a free core of a node that the attempt does not avoid."""
        start = self.rng.randrange(len(self.free))
        for place in (*range(start, len(self.free)), *range(start)):
            if str(self.free[place]) not in attempt.avoided:
                self.free[place], self.free[-1] = self.free[-1], self.free[place]
                return self.free.pop()
        return None

    def begin(self, attempt: Attempt, node: int, now: float) -> None:
        self.works[node].append(attempt)
        seconds = self.lengths[attempt.step.unit.id] / self.speeds[node]
        if self.rng.random() < _FAILURES:
            self.at(now + seconds * self.rng.random(), "fails", node, attempt)
        elif node not in self.bad or self.rng.random() >= self.hang:
            self.at(now + seconds, "ends", node, attempt)


@dataclass(frozen=True)
class Work:
    """A unit: how long it is expected to take, and how long it takes on a node of speed 1."""

    expected: float
    seconds: float
    suffix: str = "mp4"
    is_guess: bool = False


def works(kind: str, count: int, rng: random.Random) -> Iterator[Work]:
    """The units of a corpus of clips, or of one with some films in sections of a minute; made up, or as measured."""
    if kind.startswith("measured"):
        return (measured_work(kind, rng) for _ in range(count))
    if kind == "clips":
        expected = [min(120.0, rng.lognormvariate(2.5, 1.0)) for _ in range(count)]
    else:
        expected = [min(120.0, 5 * rng.paretovariate(1.2)) for _ in range(count)]
    # The estimate is wrong by a factor that all share, and by one of each.
    return (Work(each, each * 1.7 * rng.lognormvariate(0, 0.3)) for each in expected)


def measured_work(kind: str, rng: random.Random) -> Work:
    """A unit of one of the sources that `benchmarks/encode_costs.py` measured: of as many clips like it as a unit may
    have, or a run of them that is shorter, or a section of a film like it."""
    is_clips = kind == "measured clips" or rng.random() < _CLIPS_PER_FILM
    cost = rng.choice(_MEASURED_CLIPS if is_clips else _MEASURED_FILMS)
    if cost["made"] in _FILMS:
        times = rng.uniform(1, 2) * SECTION_SECONDS / cost["expected_seconds"]
    else:
        times = rng.randint(1, min(MAX_VIDEOS_PER_UNIT, math.ceil(SECTION_SECONDS / cost["expected_seconds"])))
    return Work(times * cost["expected_seconds"], times * cost["seconds"], cost["suffix"], cost["is_guess"])


def unit(number: int, work: Work) -> Unit:
    name = f"{number}.{work.suffix}"
    items = (Item(Source(name, name, name, "{}"), 1, 1),)
    return Unit(f"{number:016x}", items, expected_seconds=work.expected, is_guess=work.is_guess)


def makespan(
    kind: str,
    seed: int,
    nodes: int,
    *,
    cores: int = _CORES,
    units_per_core: int = _UNITS_PER_CORE,
    underrated: float = 0.0,
    times: float = 1.0,
    window_units: int = 0,
) -> tuple[float, float]:
    """How long the job takes, and the least that it could take if all were known beforehand and nothing failed, in
    seconds. Of the part `underrated` of the units, which are of a class of their own, only one part in `times` of their
    length is expected. With `window_units` so many units are planned at a time, as those of a corpus of many sources
    are."""
    rng = random.Random(seed)
    speeds = [rng.choice(_SPEEDS) / (_SLOWER if rng.random() < _SLOW_NODES else 1) for _ in range(nodes)]
    units, lengths = [], {}
    count = nodes * cores * units_per_core
    all_works = works(kind, count, rng)
    for number in range(count):
        is_underrated = rng.random() < underrated
        work = next(all_works)
        said = replace(work, expected=work.expected / times, suffix="webm") if is_underrated else work
        units.append(unit(number, said))
        lengths[units[-1].id] = work.seconds
    bad = frozenset(rng.sample(range(nodes), int(_BAD_NODES * nodes)))
    cluster = Cluster(speeds, bad, rng, lengths, cores=cores)
    least = max(sum(lengths.values()) / (sum(speeds) * cores), max(lengths.values()) / max(speeds))
    for node in rng.sample(range(nodes), int(_LOST_NODES * nodes)):
        cluster.at(rng.uniform(0, least), "lost", node)
    return run(units, cluster, window_units), least


def run(units: Sequence[Unit], cluster: Cluster, window_units: int = 0) -> float:
    """Until the outcome of no attempt is wanted. AssertionError if a unit is missing or done twice."""
    windows = [list(units[at : at + window_units]) for at in range(0, len(units), window_units)] if window_units else []
    steps = (
        Order((), lambda _: windows.pop(0) if windows else None, few_sources=window_units) if windows else Order(units)
    )
    machines = tuple(Machine(str(node), 1 << 30) for node in cluster.works)
    attempts, slots = Attempts(steps), Slots(len(machines) * cluster.cores, machines=machines)
    queue: deque[Attempt] = deque()
    results: list[str] = []
    now = 0.0
    cluster.at(0.0, "looks", 0)
    while steps.fill(wait=not attempts, cores=slots.at_a_time) or attempts:
        queue += attempts.start(slots, now)
        waiting: list[Attempt] = []
        while queue and cluster.free:
            attempt = queue.popleft()
            node = cluster.free_for(attempt)
            if node is None:
                waiting.append(attempt)
            else:
                attempts.progressed(key_of(attempt.step), 0, now, str(node))
                cluster.begin(attempt, node, now)
        queue.extendleft(reversed(waiting))
        now, _, what, node, ended = heapq.heappop(cluster.events)
        if what == "looks":
            # As the driver does, also when nothing ends any more.
            cluster.at(now + 5.0, "looks", 0)
        elif what == "comes":
            cluster.free += [node] * cluster.cores
        elif what == "lost":
            cluster.at(now + _AWAY_SECONDS, "comes", node)
            cluster.free = [each for each in cluster.free if each != node]
            for lost in cluster.works[node]:
                failed(attempts, steps, lost)
            cluster.works[node].clear()
        elif ended is not None and ended in cluster.works[node]:
            # Its node was not lost meanwhile.
            cluster.works[node].remove(ended)
            cluster.free.append(node)
            unit_id = ended.step.unit.id
            if what == "fails":
                failed(attempts, steps, ended)
            elif attempts.ended(ended, cluster.lengths[unit_id] / cluster.speeds[node]):
                steps.done(ended.step, UnitResult(unit_id, 0, 0, 0, ()))
                results.append(unit_id)
        assert now < 1e6, "the job never ends"
    assert sorted(results) == sorted(each.id for each in units)
    return now


def failed(attempts: Attempts, steps: Order, attempt: Attempt) -> None:
    if attempts.ended(attempt, None):
        steps.again([attempt.step])


# A thousand nodes of four cores are some tens of seconds of computing.
@pytest.mark.parametrize(
    ("kind", "nodes", "cores", "seed"),
    sample(
        # One is as large as a cluster may be.
        [*((kind, 100, 4, 0) for kind in _KINDS), ("clips", 1000, 1, 0)],
        more=[
            *((kind, 1000, 1, 0) for kind in _KINDS[1:]),
            *((kind, 1000, 4, seed) for kind in _KINDS for seed in range(3)),
            *((kind, 250, 4, seed) for kind in _KINDS for seed in range(20)),
        ],
    ),
)
def test_a_job_on_very_many_nodes_takes_little_longer_than_it_has_to(
    kind: str, nodes: int, cores: int, seed: int
) -> None:
    took, least = makespan(kind, seed, nodes, cores=cores)
    assert took <= 1.1 * least


# About as many units as 10,000 short videos make are planned at a time.
@pytest.mark.parametrize(
    ("kind", "nodes", "seed"),
    sample(
        [(kind, 50, 0) for kind in _KINDS],
        more=[
            *((kind, 50, seed) for kind in _KINDS for seed in range(1, 4)),
            *((kind, 250, seed) for kind in _KINDS[2:] for seed in range(3)),
        ],
    ),
)
def test_units_that_are_planned_later_are_known_in_time(
    kind: str, nodes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest ones of the last window would begin when the others are nearly done."""
    took, least = makespan(kind, seed, nodes, window_units=600)
    assert took <= 1.1 * least
    monkeypatch.setattr(order, "AHEAD_SECONDS", 0.0)
    without, _ = makespan(kind, seed, nodes, window_units=600)
    assert without > took + 0.03 * least


@pytest.mark.parametrize(("nodes", "seed"), sample([(60, 0)], more=[(250, seed) for seed in range(10)]))
@pytest.mark.parametrize("kind", ["clips", "films"])
def test_a_class_that_takes_eight_times_as_long_as_expected_is_found_out(
    kind: str, nodes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    took, least = makespan(kind, seed, nodes, underrated=0.1, times=8)
    assert took <= 1.1 * least
    monkeypatch.setattr(Measured, "correction", lambda *_: 1.0)
    without, _ = makespan(kind, seed, nodes, underrated=0.1, times=8)
    assert without > took + 0.03 * least


@pytest.mark.parametrize("seed", range(20))
def test_a_small_job_ends_though_two_of_its_four_nodes_hang_now_and_then(seed: int) -> None:
    """What hangs on one of them may hang on the other, but not on a third one."""
    rng = random.Random(seed)
    units = [unit(number, work) for number, work in enumerate(works("clips", 200, rng))]
    lengths = {each.id: each.expected_seconds for each in units}
    cluster = Cluster([1.0] * 4, frozenset({0, 1}), rng, lengths, hang=0.2)
    assert run(units, cluster) < 3600
