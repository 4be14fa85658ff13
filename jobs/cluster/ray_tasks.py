"""The attempts that Ray has, and what they ask of its machines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..units_of_work.gpu_slots import Place, Slots, waits_in_vain
from ..units_of_work.steps import NoRoom
from ..units_of_work.task_memory import ALL_BYTES, reserved_bytes
from ..working.second_attempts import Attempt, Attempts, Key, key_of
from ..working.unheard import Unheard, still_unheard
from .cluster_machines import AskSlots, ClusterMachines
from .rooms import Rooms

Submit = Callable[[Attempt, Slots, int, frozenset[str]], Any]
"""Gives Ray an attempt, which asks for so many bytes of memory and not to run on some machines, and returns its
reference."""

# While so many steps wait for room no others are begun: all of a corpus would come to wait on a cluster without any.
_MOST_WITHOUT_ROOM = 1000


@dataclass(frozen=True)
class _Given:
    """An attempt that Ray was given, how many bytes of memory it asked for, and on which machines it does not run.
    `alone`: that is all memory of a machine, and less than it is expected to take."""

    attempt: Attempt
    asked_bytes: int
    avoided: frozenset[str]
    alone: bool


class RayTasks:
    """The attempts that Ray was given, and that run or wait there. `begin` gives it new ones, and `take` takes one that
    has ended. `on_note` is told how many units run at a time, what they wait for, and how many may need more memory
    than any machine has.

    Ray waits without a word for a machine that is large enough, also when all that were are lost. What a task asked for
    cannot be changed, so its attempt is begun anew and asks for what is there. The task itself is left to Ray, because
    ray.cancel is a risk. Should a machine come that is large enough, it finds the unit done, or both do the same, as
    two attempts do.
    """

    def __init__(  # noqa: PLR0917  # what Ray has, and where attempts come from
        self,
        attempts: Attempts,
        encoder: str,
        ask_slots: AskSlots,
        submit: Submit,
        on_note: Callable[[str], object],
        now: float,
    ) -> None:
        """`now` and all other times are in seconds. ToolError if Ray has no machine for the encoder."""
        self.machines = ClusterMachines(encoder, ask_slots, now)
        self._attempts = attempts
        self._encoder = encoder
        self._submit = submit
        self._on_note = on_note
        self._noted = ""
        self._rooms = Rooms()
        # What no machine had room for, each with the time at which it is tried again.
        self._without_room: list[tuple[float, Attempt]] = []
        self._running: dict[Any, _Given] = {}
        self._unheard: dict[Key, Unheard] = {}
        # Ray keeps a queue for each amount of memory. With so many bytes less tasks are in another one.
        self._fewer_bytes = 0
        # Attempts that wait, each with the time at which it is begun.
        self._later: list[tuple[float, Attempt]] = []

    @property
    def references(self) -> list[Any]:
        return list(self._running)

    @property
    def _slots(self) -> Slots:
        return self.machines.slots

    @property
    def cores(self) -> int:
        """How many steps run at a time."""
        return self._slots.at_a_time

    @property
    def waits(self) -> bool:
        """Whether any step waits for room on a machine."""
        return bool(self._without_room)

    def take(self, reference: Any) -> Attempt:
        """Remove and return an attempt."""
        return self._running.pop(reference).attempt

    def lacks_room(self, attempt: Attempt, machine: str, room: NoRoom, now: float) -> None:
        """Take back an attempt for whose copy a machine has no room, and begin it again where and when it may have. For
        some time that machine gets only what fits."""
        self._rooms.lacked(machine, room, now)
        if not self._attempts.handed_back(attempt, machine):
            return
        machines = self.machines.able(attempt)
        if attempt.place == "gpu" and self._encoder == "auto" and not self._rooms.others(attempt, machine, machines):
            attempt = replace(attempt, place="cpu")
            machines = self.machines.able(attempt)
        others_run = bool(self._attempts)
        again, wait_seconds = self._rooms.next_attempt(attempt, machine, machines, others_run=others_run)
        self._without_room.append((now + wait_seconds, again))

    def begin(self, now: float) -> None:
        """Begin all attempts for which there is a place."""
        if self.machines.ask_if_due(now):
            self._rooms.forget(now)
            self._begin_anew()
            self._begin_more()
        may_start = len(self._without_room) < _MOST_WITHOUT_ROOM
        started = self._attempts.start(self._slots, now, new=may_start)
        for attempt in itertools.chain(self._due(now), self._due_for_room(now), started):
            self._give(attempt)
        alone = sum(each.alone for each in self._running.values())
        note = self.machines.note(alone=alone, short=self._rooms.names)
        if note != self._noted:
            self._on_note(note)
            self._noted = note

    def begin_later(self, attempt: Attempt, begin_at: float, others_at: float) -> None:
        """Begin an attempt at this time or soon after it, and those that wait already at `others_at` or later.

        One that runs alone on a machine would begin there as soon as the one before it is killed. The memory of that
        one may not be free yet, and Ray would kill the next one for it.
        """
        self._later = [(max(others_at, at), each) for at, each in self._later]
        self._later.append((begin_at, self._attempts.add(attempt)))

    def _due(self, now: float) -> list[Attempt]:
        """Those that have waited long enough; of those that run alone no more than there are machines."""
        due: list[Attempt] = []
        later: list[tuple[float, Attempt]] = []
        free = len(self._slots.machines) - sum(each.alone for each in self._running.values())
        for begin_at, attempt in self._later:
            is_alone = _needed_bytes(attempt) == ALL_BYTES
            if begin_at > now or (is_alone and free <= 0):
                later.append((begin_at, attempt))
            else:
                due.append(attempt)
                free -= is_alone
        self._later = later
        return due

    def _due_for_room(self, now: float) -> Iterator[Attempt]:
        """Those that have waited long enough for room, as long as there are places for them."""
        waiting, self._without_room = self._without_room, []
        for begin_at, attempt in waiting:
            if begin_at <= now and self._attempts.has_free(attempt.place, self._slots):
                yield self._attempts.add(attempt)
            else:
                self._without_room.append((begin_at, attempt))

    def _begin_anew(self) -> None:
        in_vain = [
            reference
            for reference, each in self._running.items()
            if waits_in_vain(self._slots, each.attempt.place, each.asked_bytes, each.avoided)
        ]
        for reference in in_vain:
            again = self._attempts.again(self.take(reference), self._slots)
            if again is not None:
                self._give(again)

    def _begin_more(self) -> None:
        """Attempt once more what Ray does not begin although a machine has room for it: it may wait for the answer of
        one that has lost its network."""
        given = {id(each.attempt): each for each in self._running.values()}
        rooms: dict[tuple[Place, int, frozenset[str]], frozenset[str]] = {}
        before, self._unheard = self._unheard, {}
        overdue: list[Attempt] = []
        for attempt in self._attempts.unheard():
            task = given.get(id(attempt))
            if task is None:
                # It is to begin later.
                continue
            asked = attempt.place, task.asked_bytes, task.avoided
            if asked not in rooms:
                rooms[asked] = self._slots.with_room(*asked)
            key = key_of(attempt.step)
            found = still_unheard(before.get(key), rooms[asked])
            if found.is_overdue:
                overdue.append(attempt)
            else:
                self._unheard[key] = found
        # Ray asks machines for no more workers for a queue while ten of them, or as many as there are, do not answer.
        self._fewer_bytes += bool(overdue)
        for attempt in overdue:
            self._give(self._attempts.another(attempt, self._slots))

    def _give(self, attempt: Attempt) -> None:
        needed_bytes = _needed_bytes(attempt)
        asked_bytes = reserved_bytes(needed_bytes, self._slots.memory_for(attempt.place))
        avoided = attempt.avoided if attempt.is_last else attempt.avoided | self._rooms.too_small_for(attempt.step)
        if asked_bytes < needed_bytes:
            asked_bytes = self._slots.memory_for(attempt.place, avoided) or asked_bytes
        # Where no other machine is left, the one that is slow may be quicker the next time.
        if avoided and waits_in_vain(self._slots, attempt.place, asked_bytes, avoided):
            avoided = frozenset[str]()
        avoided = avoided | self.machines.left_out
        alone = asked_bytes < needed_bytes
        asked_bytes = max(0, asked_bytes - self._fewer_bytes)
        reference = self._submit(attempt, self._slots, asked_bytes, avoided)
        self._running[reference] = _Given(attempt, asked_bytes, avoided, alone)


def _needed_bytes(attempt: Attempt) -> int:
    return ALL_BYTES if attempt.alone else attempt.step.unit.expected_bytes
