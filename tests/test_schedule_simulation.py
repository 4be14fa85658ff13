"""The order and the attempts of a job on a cluster of 1,000 nodes that are only numbers, with a clock of their own.

Ray chooses a free node; here that is a random one. Nodes are of three kinds, some are five times slower than they
should be, attempts fail, and nodes are lost and come again.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from shortgop.jobs.costs import Measured
from shortgop.jobs.gpu_slots import Slots
from shortgop.jobs.order import Order
from shortgop.jobs.second_attempts import Attempt, Attempts, key_of
from shortgop.jobs.sources import Source
from shortgop.jobs.units import Item, Unit
from shortgop.jobs.work import UnitResult
from sweep import sample

NODES = 1000
_UNITS = 40 * NODES
# Cores without a GPU, with one that decodes, and with one that encodes as well.
_SPEEDS = (1.0, 1.3, 2.5)
_SLOW_NODES, _SLOWER = 0.02, 5
_FAILURES, _LOST_NODES = 0.01, 0.02
_AWAY_SECONDS = 120.0


@dataclass
class Cluster:
    """What runs where. The real length of a unit differs from what is expected of it."""

    speeds: Sequence[float]
    rng: random.Random
    lengths: dict[str, float]
    free: list[int] = field(default_factory=list)
    events: list[tuple[float, int, str, int, Attempt | None]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def at(self, when: float, what: str, node: int, attempt: Attempt | None = None) -> None:
        heapq.heappush(self.events, (when, next(self.numbers), what, node, attempt))


def costs(kind: str, count: int, rng: random.Random) -> list[float]:
    """Expected seconds of units: those of a corpus of clips, or one with some films in sections of a minute."""
    if kind == "clips":
        return [min(120.0, rng.lognormvariate(2.5, 1.0)) for _ in range(count)]
    return [min(120.0, 5 * rng.paretovariate(1.2)) for _ in range(count)]


def unit(number: int, expected: float, suffix: str = "mp4") -> Unit:
    name = f"{number}.{suffix}"
    return Unit(f"{number:016x}", (Item(Source(name, name, name, "{}"), 1, 1),), expected_seconds=expected)


def makespan(kind: str, seed: int, *, underrated: float = 0.0, times: float = 1.0) -> tuple[float, float]:
    """How long the job takes, and the least that it could take if all were known beforehand and nothing failed, in
    seconds. Of the part `underrated` of the units, which are of a class of their own, only one part in `times` of their
    length is expected."""
    rng = random.Random(seed)
    speeds = [rng.choice(_SPEEDS) / (_SLOWER if rng.random() < _SLOW_NODES else 1) for _ in range(NODES)]
    units, lengths = [], {}
    for number, seconds in enumerate(costs(kind, _UNITS, rng)):
        is_underrated = rng.random() < underrated
        units.append(unit(number, seconds / times, "webm") if is_underrated else unit(number, seconds))
        # The estimate is wrong by a factor that all share, and by one of each.
        lengths[units[-1].id] = seconds * 1.7 * rng.lognormvariate(0, 0.3)
    cluster = Cluster(speeds, rng, lengths, free=list(range(NODES)))
    least = max(sum(lengths.values()) / sum(speeds), max(lengths.values()) / max(speeds))
    for node in rng.sample(range(NODES), int(_LOST_NODES * NODES)):
        cluster.at(rng.uniform(0, least), "lost", node)
    return run(units, cluster), least


def run(units: Sequence[Unit], cluster: Cluster) -> float:
    """Until the outcome of no attempt is wanted. AssertionError if a unit is missing or done twice."""
    order = Order(units)
    attempts, slots = Attempts(order), Slots(NODES)
    queue: list[Attempt] = []
    works: dict[int, Attempt] = {}
    results: list[str] = []
    now = 0.0
    while order.fill(wait=not attempts) or attempts:
        queue += attempts.start(slots, now)
        while queue and cluster.free:
            node = cluster.free.pop(cluster.rng.randrange(len(cluster.free)))
            attempt = works[node] = queue.pop(0)
            attempts.progressed(key_of(attempt.step), 0, now)
            seconds = cluster.lengths[attempt.step.unit.id] / cluster.speeds[node]
            fails = cluster.rng.random() < _FAILURES
            cluster.at(
                now + seconds * (cluster.rng.random() if fails else 1), "fails" if fails else "ends", node, attempt
            )
        now, _, what, node, expected = heapq.heappop(cluster.events)
        if what == "comes":
            cluster.free.append(node)
            continue
        if what != "lost" and works.get(node) is not expected:
            # The node was lost meanwhile.
            continue
        ended = works.pop(node, None)
        if what == "lost":
            cluster.at(now + _AWAY_SECONDS, "comes", node)
            cluster.free = [each for each in cluster.free if each != node]
        else:
            cluster.free.append(node)
        if ended is None:
            continue
        unit_id = ended.step.unit.id
        if what == "ends":
            if attempts.ended(ended, cluster.lengths[unit_id] / cluster.speeds[node]):
                order.done(ended.step, UnitResult(unit_id, 0, 0, 0, ()))
                results.append(unit_id)
        elif attempts.ended(ended, None):
            order.again([ended.step])
    assert sorted(results) == sorted(each.id for each in units)
    return now


@pytest.mark.parametrize("seed", sample(range(3), more=range(3, 20)))
@pytest.mark.parametrize("kind", ["clips", "films"])
def test_a_job_on_a_thousand_nodes_takes_little_longer_than_it_has_to(kind: str, seed: int) -> None:
    took, least = makespan(kind, seed)
    assert took <= 1.1 * least


@pytest.mark.parametrize("seed", sample(range(1), more=range(1, 10)))
@pytest.mark.parametrize("kind", ["clips", "films"])
def test_a_class_that_takes_eight_times_as_long_as_expected_is_found_out(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    took, least = makespan(kind, seed, underrated=0.1, times=8)
    assert took <= 1.1 * least
    monkeypatch.setattr(Measured, "correction", lambda *_: 1.0)
    without, _ = makespan(kind, seed, underrated=0.1, times=8)
    assert without > took + 0.03 * least
