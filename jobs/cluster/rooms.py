"""Which machines have no room for the copy of a source in a store, and where and when a step that one of them has
handed back is attempted again. Pure.

The disk of one machine may be full, or several large sources meet on a small one. Neither says anything of a source.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from ..units_of_work.steps import NoRoom, Step, copy_bytes
from ..working.second_attempts import Attempt

# A machine without room is tried again after so long: other steps may have ended there, and a try takes a moment.
_SHORT_SECONDS = 60.0
# A step that no machine has room for waits so long while others run.
WAIT_SECONDS = 30.0


@dataclass(frozen=True)
class _Short:
    room: NoRoom
    until: float


class Rooms:
    """What machines that lacked room had, by the ids of their nodes. Times are in seconds."""

    def __init__(self) -> None:
        self._short: dict[str, _Short] = {}
        # How large their disks are, which does not change.
        self._disk_bytes: dict[str, int] = {}

    def lacked(self, machine: str, room: NoRoom, now: float) -> None:
        self._short[machine] = _Short(room, now + _SHORT_SECONDS)
        self._disk_bytes[machine] = room.disk_bytes

    def forget(self, now: float) -> None:
        """Forget machines that may have room by now."""
        self._short = {machine: each for machine, each in self._short.items() if each.until > now}

    @property
    def names(self) -> list[str]:
        """The folder and the name of each machine that lacks room, for a user."""
        return [f"{each.room.folder} on {each.room.node}" for each in self._short.values()]

    def too_small_for(self, step: Step) -> frozenset[str]:
        """The machines that have no room for a step now."""
        if not self._disk_bytes:
            return frozenset()
        needed_bytes = copy_bytes(step)
        return frozenset(each for each in self._disk_bytes if needed_bytes > self._room_bytes(each))

    def others(self, attempt: Attempt, machine: str, machines: Collection[str]) -> set[str]:
        """Those of the `machines` that may have room for an attempt that a machine has handed back."""
        return set(machines) - attempt.avoided - {machine} - self.too_small_for(attempt.step)

    def next_attempt(
        self, attempt: Attempt, machine: str, machines: Collection[str], *, others_run: bool
    ) -> tuple[Attempt, float]:
        """The attempt that follows one that a machine has handed back, and after how many seconds it begins. The
        `machines` are those that can do it.

        It is made at once on another machine. Where none has room it waits while other steps run, since these may give
        room back, and so it does where there is no machine left. Otherwise it is the last one, made where there is most
        room, and alone if that may help: what does not fit there is a failure of the source.
        """
        # Ray cannot avoid a machine that it was told to avoid, and did not.
        if machine not in attempt.avoided and self.others(attempt, machine, machines):
            return replace(attempt, avoided=attempt.avoided | {machine}), 0.0
        needed_bytes = copy_bytes(attempt.step)
        large_enough = [each for each in machines if self._disk_bytes.get(each, math.inf) >= needed_bytes]
        if not machines or (large_enough and others_run):
            return replace(attempt, avoided=frozenset()), WAIT_SECONDS
        roomiest = max(large_enough or machines, key=self._room_bytes)
        avoided = frozenset(machines) - {roomiest}
        return replace(attempt, avoided=avoided, is_last=True, alone=bool(large_enough)), 0.0

    def _room_bytes(self, machine: str) -> float:
        short = self._short.get(machine)
        return self._disk_bytes.get(machine, math.inf) if short is None else short.room.most_bytes
