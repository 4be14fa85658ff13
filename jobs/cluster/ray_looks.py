"""Looking at sources on the machines of a cluster, for a driver that has many of them."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...errors import ToolError
from ...prep.options import Options
from ..finding.source import Source
from ..sources.failing import TRIES
from ..sources.look import Looked, There, look_at
from ..sources.where_to_look import LookElsewhere
from ..units_of_work.task_memory import LOOK_BYTES, LOOKS_OF_TASK, reserved_bytes
from ..units_of_work.where import Where
from .cluster_machines import AskSlots
from .ray_connection import LOST, connected
from .ray_entry import answer, call_of, called_here

# About a quarter of a second for one core.
_TASK_SOURCES = 250
# All tasks that a core has look at as many sources as a driver with enough memory does.
_CPU_SHARE = 0.25
# After this time the driver looks at the remaining sources itself.
_PATIENCE_SECONDS = 60.0
# A source that gives no byte for so long is left to the driver, which has more patience.
_STALL_SECONDS = 15
_POLL_SECONDS = 0.2
# What takes so many times as long as others, when so many of them have ended, is done once more on a machine that has
# answered: one with a mount that does not answer would hold up all sources of a window.
_FAR_LONGER, _ENOUGH_ENDED = 2.0, 0.25
_LEAST_SECONDS = 5.0


@contextlib.contextmanager
def looks_on_cluster(ask_slots: AskSlots) -> Iterator[LookElsewhere]:
    """Inside `connected`, with what that yields: yields a function that any thread may call. After the block it looks
    at nothing more, and Ray may be shut down."""
    is_over, busy = threading.Event(), threading.Lock()

    def look(sources: Sequence[Source], options: Options, there: There, num_in_store: int) -> list[Looked | None]:
        parts = [sources[first : first + _TASK_SOURCES] for first in range(0, len(sources), _TASK_SOURCES)]
        with busy:
            try:
                memory = max((each.memory_bytes for each in ask_slots().machines), default=None)
            except ToolError:
                # Ray would wait for its head for ever. The driver looks itself.
                return [None] * len(sources)
            how = _HowToLook(_hurried(options), there, num_in_store)
            found = _looked(parts, how, memory, is_over.is_set)
        return [each for part in found for each in part]

    try:
        yield look
    finally:
        is_over.set()
        with busy:
            pass


@contextlib.contextmanager
def looks_before_encoding(where: Where) -> Iterator[LookElsewhere]:
    """Like `looks_on_cluster`, in a connection of its own to the cluster of a job that has not begun to encode. Where
    no machine answers, which takes a minute, the driver looks at all that follows."""
    answers = True

    def look_while_any_answers(
        sources: Sequence[Source], options: Options, there: There, num_in_store: int
    ) -> Sequence[Looked | None]:
        nonlocal answers
        found = look(sources, options, there, num_in_store) if answers else [None] * len(sources)
        answers = any(found)
        return found

    with (
        connected(where.cluster, where.workers, where.streams_per_gpu) as ask_slots,
        looks_on_cluster(ask_slots) as look,
    ):
        yield look_while_any_answers


def is_late(waited_seconds: float, ended_seconds: Sequence[float], num_parts: int) -> bool:
    """Whether a part that is waited for takes far longer than those of `num_parts` that have ended. Pure."""
    if not ended_seconds or len(ended_seconds) < _ENOUGH_ENDED * num_parts:
        return False
    return waited_seconds > max(_LEAST_SECONDS, _FAR_LONGER * statistics.median(ended_seconds))


def _looked(
    parts: Sequence[Sequence[Source]], how: _HowToLook, memory_bytes: int | None, is_over: Callable[[], bool]
) -> list[list[Looked | None]]:
    """What the machines find of the sources of each part; None for those that no machine has read in time. The largest
    machine has so much memory."""
    tasks = _LookTasks(parts, how, memory_bytes)
    if not is_over():
        tasks.begin()
    while tasks.are_wanted and not is_over() and tasks.waited_seconds < _PATIENCE_SECONDS:
        tasks.take_ended()
        tasks.begin_late_ones_again()
    return tasks.found


@dataclass(frozen=True)
class _HowToLook:
    """What `look_at` is given besides sources."""

    options: Options
    there: There
    num_in_store: int


class _LookTasks:
    """The tasks of Ray that look at parts of some sources. `found` has what is known of each source so far."""

    def __init__(self, parts: Sequence[Sequence[Source]], how: _HowToLook, memory_bytes: int | None) -> None:
        self.found: list[list[Looked | None]] = [[None] * len(part) for part in parts]
        self._parts = parts
        self._how = how
        # A part of a CPU, so that they fit between the units, and a head without CPUs gets none.
        asked_bytes = reserved_bytes(LOOK_BYTES, memory_bytes)
        self._task: Any = ray.remote(num_cpus=_CPU_SHARE, memory=asked_bytes, max_retries=0)(called_here)
        # The number of the part that each task looks at.
        self._running: dict[Any, int] = {}
        self._lost: Counter[int] = Counter()
        self._began = time.monotonic()
        # When tasks have ended, in seconds since then.
        self._ended_seconds: list[float] = []
        # A machine that could read something, and the parts that were given to it, too.
        self._able_machine = ""
        self._given_twice: set[int] = set()

    @property
    def waited_seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def are_wanted(self) -> bool:
        """Whether any task looks at what nobody has seen yet."""
        return any(map(self._is_wanted, self._running.values()))

    def _is_wanted(self, number: int) -> bool:
        return None in self.found[number]

    def begin(self) -> None:
        for number in range(len(self._parts)):
            self._submit(number, "SPREAD")

    def _submit(self, number: int, strategy: str | NodeAffinitySchedulingStrategy) -> None:
        part, how = self._parts[number], self._how
        named = self._task.options(name=f"look at {len(part)} sources", scheduling_strategy=strategy)
        call = call_of(_look, part, how.options, how.there.of(part), how.num_in_store)
        self._running[named.remote(*call)] = number

    def take_ended(self) -> None:
        """Take what tasks have found that end within a moment. Those whose workers were lost are begun again."""
        done, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=_POLL_SECONDS)
        waited_seconds = self.waited_seconds
        for reference in done:
            number = self._running.pop(reference)
            try:
                came = answer(ray.get(reference))
            except LOST:
                self._lost[number] += 1
                if self._lost[number] < TRIES:
                    self._submit(number, "SPREAD")
                continue
            except RayError:
                continue
            looked = came.value or [None] * len(self._parts[number])
            self._able_machine = came.machine if any(looked) else self._able_machine
            self.found[number] = [before or now for before, now in zip(self.found[number], looked, strict=True)]
            self._ended_seconds.append(waited_seconds)

    def begin_late_ones_again(self) -> None:
        """Where tasks take far longer than others, have a machine that answers look at the same, once."""
        if self._able_machine and is_late(self.waited_seconds, self._ended_seconds, len(self._parts)):
            for number in sorted(set(filter(self._is_wanted, self._running.values())) - self._given_twice):
                self._given_twice.add(number)
                self._submit(number, NodeAffinitySchedulingStrategy(self._able_machine, soft=True))


def _hurried(options: Options) -> Options:
    """The options with less patience for a source that gives no byte."""
    policy = options.policy
    stall_seconds = min(policy.max_stall_seconds, Fraction(_STALL_SECONDS))
    return replace(options, policy=replace(policy, max_stall_seconds=stall_seconds))


def _look(sources: Sequence[Source], options: Options, there: There, num_in_store: int) -> list[Looked | None]:
    """What this machine finds."""
    looked = look_at(sources, options, there, num_in_store=num_in_store, threads=LOOKS_OF_TASK)
    # The driver may be able to read what this machine cannot.
    return [each if each.item.size_bytes else None for each in looked]
