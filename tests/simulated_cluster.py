"""A cluster with a clock of its own, on which the real order and the real schedule of a job run without any video."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from shortgop.jobs.order import Order
from shortgop.jobs.schedule import Device, Place, Running, Schedule
from shortgop.jobs.sources import Source
from shortgop.jobs.steps import Cut, Join, Look, OneSection, Outcome, Refused, SectionDone, Sections, Step
from shortgop.jobs.units import Item, Unit
from shortgop.jobs.work import UnitResult

LOOK_SECONDS, JOIN_SECONDS, SECTION_SECONDS = 5.0, 1.0, 60.0
_NODES_EVERY_SECONDS, _POLL_SECONDS = 5.0, 1.0


@dataclass(frozen=True)
class Video:
    """A unit as the job knows it, and how many seconds a core of speed 1 really takes for it. With `cuts` it is encoded
    in sections."""

    unit: Unit
    seconds: float
    cuts: bool = False


def video(number: int, expected_seconds: float, seconds: float, *, cuts: bool = False) -> Video:
    name = f"{number:06}"
    items = (Item(Source(name, f"/corpus/{name}", name, "{}"), number, 1000),)
    long = expected_seconds >= 2 * SECTION_SECONDS
    return Video(Unit(name, items, is_long=long, expected_seconds=expected_seconds), seconds, cuts=cuts and long)


@dataclass(frozen=True)
class Machine:
    """A node, with the real speed of each of its places. It is lost at `until`, and joins at `since`."""

    places: tuple[Place, ...]
    speeds: tuple[float, ...]
    since: float = 0.0
    until: float = float("inf")

    @property
    def name(self) -> str:
        return self.places[0].node

    @property
    def speed(self) -> float:
        return sum(place.tasks * each for place, each in zip(self.places, self.speeds, strict=True))


@dataclass(frozen=True)
class Run:
    """How a simulated job went. `decisions` is how many steps the schedule started, and `decision_seconds` how
    long its code took for one, in time of the processor."""

    makespan: float
    bound: float
    decisions: int
    decision_seconds: float
    results: tuple[str, ...]


def lower_bound(videos: Sequence[Video], machines: Sequence[Machine]) -> float:
    """No schedule ends before all machines together, while they are there, have done all work, nor before the fastest
    place has done the longest step. What a machine had done of a step when it was lost counts as done."""
    work = sum(each.seconds for each in videos)
    changes = sorted({moment for each in machines for moment in (each.since, each.until)})
    for start, end in itertools.pairwise(changes):
        rate = sum(each.speed for each in machines if each.since <= start and each.until >= end)
        if work <= rate * (end - start):
            work = start + work / rate
            break
        work -= rate * (end - start)
    longest = max(each.seconds if not each.cuts else 0.0 for each in videos)
    return max(work, longest / max(max(each.speeds) for each in machines))


def run(videos: Sequence[Video], machines: Sequence[Machine], random: Random, *, deaths: float = 0.0) -> Run:
    """Run a job. `deaths` is the part of steps whose worker dies once at work; Ray runs these again."""
    return _Simulation(videos, machines, random, deaths).run()


@dataclass(frozen=True, eq=False)
class _Work:
    """A step at work."""

    number: int
    running: Running
    key: tuple[str, Device]
    seconds: float


class _Simulation:
    def __init__(self, videos: Sequence[Video], machines: Sequence[Machine], random: Random, deaths: float) -> None:
        self.videos = {each.unit.id: each for each in videos}
        self.machines = machines
        self.random = random
        self.deaths = deaths
        self.order = Order([each.unit for each in videos])
        self.schedule = Schedule(self.order.waiting)
        self.speeds = {
            place.key: each for machine in machines for place, each in zip(machine.places, machine.speeds, strict=True)
        }
        self.there: dict[str, Machine] = {}
        self.free = {place.key: place.tasks for machine in machines for place in machine.places}
        self.queues: dict[tuple[str, Device], deque[tuple[int, Running]]] = {key: deque() for key in self.free}
        # Steps of machines that were lost: Ray starts them where it finds room first.
        self.adrift: deque[tuple[int, Running]] = deque()
        self.at_work: dict[int, _Work] = {}
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.now = 0.0
        self.spent = 0.0
        self.decisions = 0
        self.results: list[str] = []
        self.died: set[int] = set()

    def at(self, moment: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (moment, next(self.numbers), event))

    def run(self) -> Run:
        for machine in self.machines:
            self.at(machine.since, partial(self.join, machine))
            if machine.until < float("inf"):
                self.at(machine.until, partial(self.lose, machine))
        self.at(0.0, self.look_at_nodes)
        self.at(_POLL_SECONDS, self.poll)
        while len(self.results) < len(self.videos):
            self.now, _, event = heapq.heappop(self.events)
            event()
            self.start_steps()
        bound = lower_bound(list(self.videos.values()), self.machines)
        return Run(self.now, bound, self.decisions, self.spent / self.decisions, tuple(self.results))

    def look_at_nodes(self) -> None:
        start = time.thread_time()
        self.schedule.set_places([place for each in self.there.values() for place in each.places])
        self.spent += time.thread_time() - start
        self.at(self.now + _NODES_EVERY_SECONDS, self.look_at_nodes)

    def poll(self) -> None:
        self.at(self.now + _POLL_SECONDS, self.poll)

    def start_steps(self) -> None:
        while True:
            start = time.thread_time()
            found = self.schedule.next(self.now)
            self.spent += time.thread_time() - start
            if found is None:
                return
            self.decisions += 1
            key = found[1].place.key
            if key[0] in self.there:
                self.queues[key].append(found)
                self.work_at(key)
            else:
                self.adrift.append(found)

    def work_at(self, key: tuple[str, Device]) -> None:
        while self.free[key] and (self.adrift or self.queues[key]):
            number, running = (self.adrift or self.queues[key]).popleft()
            seconds = self.seconds(running.step) / self.speeds[key]
            again = number not in self.died and self.random.random() < self.deaths
            if again:
                self.died.add(number)
            self.free[key] -= 1
            # A worker that dies has done a part of its step for nothing.
            wasted = self.random.random() * seconds if again else 0.0
            self.at_work[number] = work = _Work(number, running, key, seconds)
            self.at(self.now + wasted + seconds, partial(self.end, work))

    def end(self, work: _Work) -> None:
        if self.at_work.get(work.number) is not work:
            # Its machine was lost meanwhile.
            return
        del self.at_work[work.number]
        self.free[work.key] += 1
        start = time.thread_time()
        self.schedule.ended(work.number, work.seconds, work.key[0])
        self.spent += time.thread_time() - start
        step = work.running.step
        result = self.order.done(step, self.outcome(step))
        if result is not None:
            self.results.append(result.unit)
        self.work_at(work.key)

    def join(self, machine: Machine) -> None:
        self.there[machine.name] = machine

    def lose(self, machine: Machine) -> None:
        del self.there[machine.name]
        for place in machine.places:
            self.adrift.extend(self.queues[place.key])
            self.queues[place.key].clear()
            self.free[place.key] = 0
        for work in list(self.at_work.values()):
            if work.key[0] == machine.name:
                del self.at_work[work.number]
                self.adrift.appendleft((work.number, work.running))

    def seconds(self, step: Step) -> float:
        video = self.videos[step.unit.id]
        match step:
            case Look():
                return LOOK_SECONDS
            case OneSection():
                return video.seconds / step.cut.sections
            case Join():
                return JOIN_SECONDS
        return video.seconds

    def outcome(self, step: Step) -> Outcome:
        if isinstance(step, Look):
            if not self.videos[step.unit.id].cuts:
                return Refused()
            count = max(2, round(step.unit.expected_seconds / SECTION_SECONDS))
            return Sections(Cut("key", count, 0, 0), (None,) * count)  # type: ignore[arg-type]
        if isinstance(step, OneSection):
            return SectionDone()
        return UnitResult(step.unit.id, 1, 0, 0, ())
