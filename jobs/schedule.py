"""Which step starts next, and where: the longest that ends in time, on the fastest place that is free.

A job ends with its last step, so long steps must not begin late, nor on slow machines. `seconds_left` says how long
the job takes at best. A place takes the longest step that it finishes until then, and a place that finishes none stays
free: a faster one will be done with the step earlier. How fast a place is shows in the steps that
it did. One that did none yet takes short ones first. This module knows neither Ray nor a clock:
`tests/test_schedule_simulation.py` runs it on a simulated cluster.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Literal

import numpy as np

from .steps import OneSection, Step, Whole
from .waiting import Waiting, seconds_of, work_of

Device = Literal["gpu", "cpu"]

# A place of unknown speed takes steps that are this part of the rest of the job. On a machine five times slower than
# expected, such a step takes less than a tenth of the rest.
_TRIAL_PART = 0.02
# With fewer steps than this for each place the short ones are kept for the end.
_MANY = 4
# How much longer than expected a step may take and still be in time.
_MARGIN, _SLOW_MARGIN = 1.5, 2.5
# Places about as fast as the fastest one need no margin: elsewhere it would take no less.
_FAST_PART = 0.8
# The average of a kind of places counts as this many steps in the speed of one of them.
_KIND_STEPS = 0.2
# With twice the steps for a place that it runs at a time it stays busy while the driver publishes. Not near the end of
# the job: such a step might begin at once elsewhere.
_IN_FLIGHT = 2
_AHEAD_PART = 0.1
# A step that took this part of its time at most was done before.
_DONE_BEFORE = 1 / 200
_REFRESH_SECONDS, _REFRESH_PART = 1.0, 0.02
_MOST_REFRESH_SECONDS = 10.0
# How many places that found no step are asked again at once where steps are added.
_RESTORED = 8


@dataclass(frozen=True)
class Place:
    """Room for `tasks` steps at a time on a node: with the share `gpu_share` of a GPU each, or without one. Places of a
    `kind` are expected to be equally fast. `memory_bytes` is what the node has for all its steps, 0 if that is unknown.
    The node "" is any node."""

    node: str
    device: Device
    kind: str
    tasks: int
    gpu_share: float = 0.0
    memory_bytes: int = 0

    @cached_property
    def key(self) -> tuple[str, Device]:
        return self.node, self.device


@dataclass(frozen=True)
class Measured:
    """Steps that were done: how many seconds one core was expected to take for them, and how many they took."""

    steps: int = 0
    expected_seconds: float = 0.0
    seconds: float = 0.0

    def plus(self, expected_seconds: float, seconds: float) -> Measured:
        return Measured(self.steps + 1, self.expected_seconds + expected_seconds, self.seconds + seconds)


NOTHING = Measured()


def speed(own: Measured, kind: Measured, every: Measured) -> float:
    """How many expected seconds of work a place does in a second for one step, by what it did, and by what places of
    its kind and all places did on average."""
    known = kind if kind.steps else every
    if not known.steps:
        return 1.0
    weight = _KIND_STEPS / known.steps
    return (own.expected_seconds + weight * known.expected_seconds) / (own.seconds + weight * known.seconds)


@dataclass(frozen=True)
class Running:
    """A step that runs at a place since `since`, or is expected to begin there then. `seconds` are those that one core
    is expected to take for it, `work_seconds` those for what follows from it as well."""

    step: Step
    place: Place
    since: float
    seconds: float
    work_seconds: float

    def seconds_left(self, now: float, speed_there: float) -> float:
        return max(0.0, self.since + self.seconds / speed_there - now)

    def work_left(self, now: float, speed_there: float) -> float:
        after = self.work_seconds - self.seconds
        return min(self.seconds, self.seconds_left(now, speed_there) * speed_there) + after


def seconds_left(
    work_seconds: float, at_least: Sequence[tuple[float, float]], places: Sequence[tuple[float, int]]
) -> float:
    """How long the job takes at best: the shortest time in which places can do all work, and places that do a step of a
    length in time can do all steps of that length or longer. `at_least` is from `Waiting.at_least`, `places` has the
    speed of each place and how many steps it does at a time. A step is in time if it may
    take half as long again as expected."""
    speeds, tasks = np.array(sorted(places, reverse=True), dtype=np.float64).T
    together = np.cumsum(speeds * tasks)
    shortest = at_least[0][0] if at_least else 0.0
    return max(
        float(np.min(np.maximum(work / together, _MARGIN * seconds / speeds)))
        for seconds, work in [(shortest, work_seconds), *at_least]
    )


class Schedule:
    """Gives the steps that wait to places, and learns from each that ends how fast its place is.

    Times are seconds of any clock that does not go back. With `ahead`, places get steps before they are free.
    """

    def __init__(self, waiting: Waiting, *, ahead: bool = True) -> None:
        self._waiting = waiting
        self._ahead = ahead
        self._places: dict[tuple[str, Device], Place] = {}
        self._running: dict[int, Running] = {}
        self._at: dict[tuple[str, Device], dict[int, Running]] = {}
        self._memory: dict[str, int] = {}
        self._own: dict[tuple[str, Device], Measured] = {}
        self._kinds: dict[str, Measured] = {}
        self._every = NOTHING
        self._end = 0.0
        self._fastest = 1.0
        self._speeds: dict[tuple[str, Device], float] = {}
        self._due = -inf
        self._additions = -1
        # Whether little is known of the places.
        self._strange = True
        # The places that may take a step, the fastest first, and those that found none.
        self._free: list[tuple[float, tuple[str, Device]]] = []
        self._idle: list[tuple[float, tuple[str, Device]]] = []
        self._last_number = 0

    def set_places(self, places: Sequence[Place]) -> None:
        """The places that there are now. Steps on others go on until they are said to have ended."""
        now_there = {place.key: place for place in places}
        if now_there == self._places:
            return
        self._places = now_there
        self._due = -inf

    def next(self, now: float) -> tuple[int, Running] | None:
        """The next step to start, with its number; None if all have to wait."""
        if not self._waiting or not self._places:
            return None
        if now >= self._due:
            self._refresh(now)
        elif self._additions != self._waiting.additions:
            # A refresh comes soon for the others.
            for each in self._idle[:_RESTORED]:
                heapq.heappush(self._free, each)
            del self._idle[:_RESTORED]
        self._additions = self._waiting.additions
        while self._free:
            place = self._places.get(self._free[0][1])
            step = None if place is None else self._for_place(place, now)
            if place is not None and step is not None:
                return self._started(step, place, now)
            found_none = heapq.heappop(self._free)
            if place is not None and len(self._at.get(place.key, {})) < place.tasks:
                self._idle.append(found_none)
        if self._running:
            return None
        # Nothing may wait for what does not run.
        step = self._waiting.take()
        fastest = max(self._places.values(), key=self._speed)
        return None if step is None else self._started(step, fastest, now)

    def ended(self, number: int, seconds: float | None = None, node: str | None = None) -> None:
        """A step has ended. It took `seconds` at the node; None if that says nothing of the place."""
        running = self._running.pop(number)
        place, expected = running.place, running.seconds
        del self._at[place.key][number]
        self._memory[place.node] -= running.step.unit.memory_bytes
        # Ray moves the steps of a node that is lost.
        there = place if node in (None, place.node) else self._places.get((str(node), place.device))
        encodes = isinstance(running.step, Whole | OneSection)
        if seconds is not None and there is not None and encodes and seconds > expected * _DONE_BEFORE:
            self._own[there.key] = self._own.get(there.key, NOTHING).plus(expected, seconds)
            self._kinds[there.kind] = self._kinds.get(there.kind, NOTHING).plus(expected, seconds)
            self._every = self._every.plus(expected, seconds)
            if self._strange and not self._is_strange():
                # What was expected so far was a guess.
                self._due = -inf
            self._speeds[there.key] = self._measured_speed(there)
        if place.key in self._places:
            heapq.heappush(self._free, (-self._speed(place), place.key))

    def _started(self, step: Step, place: Place, now: float) -> tuple[int, Running]:
        self._last_number += 1
        there = self._at.setdefault(place.key, {})
        since = now + self._seconds_until_free(place, now)
        running = Running(step, place, since, seconds_of(step), work_of(step))
        self._running[self._last_number] = there[self._last_number] = running
        self._memory[place.node] = self._memory.get(place.node, 0) + step.unit.memory_bytes
        return self._last_number, running

    def _seconds_until_free(self, place: Place, now: float) -> float:
        there = self._at.get(place.key, {})
        if len(there) < place.tasks:
            return 0.0
        ends = sorted(each.seconds_left(now, self._speed(place)) for each in there.values())
        return ends[len(there) - place.tasks]

    def _for_place(self, place: Place, now: float) -> Step | None:
        """The step that the place takes now."""
        there = len(self._at.get(place.key, {}))
        at_speed = self._speed(place)
        is_slow = self._is_slow(place)
        # What one core does in the time that the place has.
        in_time = max(0.0, self._end - now) * at_speed
        known = len(self._places) == 1 or (place.key in self._own and not self._strange)
        if there >= place.tasks:
            if not self._ahead or not known or is_slow or there >= _IN_FLIGHT * place.tasks:
                return None
            # A long step that queued here might begin at once elsewhere, and a shorter one would keep it waiting.
            others = self._seconds_until_free(place, now) * at_speed
            after_others = in_time / _MARGIN - others
            if max(others, self._waiting.next_seconds(after_others)) > in_time * _AHEAD_PART:
                return None
            # Memory is free again when the step begins.
            return self._waiting.take(after_others)
        free_bytes = place.memory_bytes - self._memory.get(place.node, 0) if place.memory_bytes else inf
        if free_bytes == place.memory_bytes:
            # A step that needs more than the node has is tried there alone.
            free_bytes = inf
        if not known and len(self._waiting) > _MANY * len(self._places):
            return self._waiting.take(max(in_time * _TRIAL_PART, self._waiting.shortest_seconds), free_bytes)
        margin = _SLOW_MARGIN if is_slow else 1 if at_speed > _FAST_PART * self._fastest else _MARGIN
        return self._waiting.take(in_time / margin * (1 + 1e-9), free_bytes)

    def _is_strange(self) -> bool:
        """Whether a kind of places has done no step yet, or most places have. Those that end first are the shortest."""
        few = 2 * self._every.steps < len(self._places)
        return few or any(place.kind not in self._kinds for place in self._places.values())

    def _is_slow(self, place: Place) -> bool:
        """Whether a place is less than half as fast as its kind on average. What makes it slow may change."""
        kind = self._kinds.get(place.kind, NOTHING)
        return 2 * self._speed(place) * kind.seconds < kind.expected_seconds

    def _speed(self, place: Place) -> float:
        return self._speeds.get(place.key, 1.0)

    def _measured_speed(self, place: Place) -> float:
        return speed(self._own.get(place.key, NOTHING), self._kinds.get(place.kind, NOTHING), self._every)

    def _refresh(self, now: float) -> None:
        self._speeds = {key: self._measured_speed(place) for key, place in self._places.items()}
        self._fastest = max(self._speeds.values())
        work = self._waiting.work_seconds + sum(
            each.work_left(now, self._speed(each.place)) for each in self._running.values()
        )
        places = [(self._speeds[key], place.tasks) for key, place in self._places.items()]
        self._end = now + seconds_left(work, self._waiting.at_least(), places)
        most = _IN_FLIGHT if self._ahead else 1
        self._free = [
            (-self._speeds[key], key)
            for key, place in self._places.items()
            if len(self._at.get(key, {})) < most * place.tasks
        ]
        self._idle.clear()
        heapq.heapify(self._free)
        self._strange = self._is_strange()
        interval = min(_REFRESH_PART * (self._end - now), _MOST_REFRESH_SECONDS)
        self._due = now + max(_REFRESH_SECONDS, interval)
