"""Which machines have no room for the copy of a source in a store, and where and when a step that one of them has
handed back is attempted again. Pure.

The disk of one machine may be full, or several large sources meet on a small one. Neither says anything of a source.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from .second_attempts import Attempt
from .steps import NoRoom
from .task_memory import ALL_BYTES
from .units import Unit

# A machine without room is tried again after so long: other steps may have ended there, and a try takes a moment.
_SHORT_SECONDS = 60.0
# A step that no machine has room for waits so long while others run.
WAIT_SECONDS = 30.0


@dataclass(frozen=True)
class _Short:
    room: NoRoom
    until: float


def copy_bytes(unit: Unit) -> int:
    """The size of the largest copy that a unit may make."""
    return max((item.size_bytes for item in unit.items if item.source.in_store is not None), default=0)


class Rooms:
    """What machines that lacked room had, by the ids of their nodes. Times are in seconds."""

    def __init__(self) -> None:
        self._short: dict[str, _Short] = {}

    def lacked(self, machine: str, room: NoRoom, now: float) -> None:
        self._short[machine] = _Short(room, now + _SHORT_SECONDS)

    def forget(self, now: float) -> None:
        """Forget machines that may have room by now."""
        self._short = {machine: each for machine, each in self._short.items() if each.until > now}

    @property
    def reasons(self) -> list[str]:
        """What to tell a user of each machine that lacks room."""
        return [each.room.why for each in self._short.values()]

    def too_small_for(self, unit: Unit) -> frozenset[str]:
        """The machines that lack room for a unit."""
        needed_bytes = copy_bytes(unit) if self._short else 0
        return frozenset(machine for machine, each in self._short.items() if needed_bytes > each.room.most_bytes)

    def next_attempt(
        self, attempt: Attempt, machine: str, room: NoRoom, machines: Collection[str], *, others_run: bool
    ) -> tuple[Attempt, float]:
        """The attempt that follows one that a machine has handed back, and after how many seconds it begins.

        It is made at once on another one of the `machines`. Where none has room it waits while other steps run, since
        these may give room back. Otherwise it is the last one, made where there is most room, and alone if that may
        help: what does not fit there is a failure of the source.
        """
        tried = attempt.avoided | {machine}
        others = set(machines) - tried - self.too_small_for(attempt.step.unit)
        if others and machine not in attempt.avoided:
            return replace(attempt, avoided=tried), 0.0
        if others_run and room.may_have_later:
            return replace(attempt, avoided=frozenset()), WAIT_SECONDS
        most_bytes = {each: self._most_bytes(each) for each in machines}
        roomiest = max(most_bytes, key=lambda each: most_bytes[each], default=machine)
        step = attempt.step
        if room.may_have_later:
            step = replace(step, unit=replace(step.unit, expected_bytes=ALL_BYTES))
        return replace(attempt, step=step, avoided=frozenset(machines) - {roomiest}, is_last=True), 0.0

    def _most_bytes(self, machine: str) -> float:
        found = self._short.get(machine)
        return float("inf") if found is None else found.room.most_bytes
