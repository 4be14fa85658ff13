"""The machines of Ray that a job may use, while these come and go. Ray is asked for them every few seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...errors import ShortGopError, ToolError
from ...prep.tools.pipelines import NoEncoderError
from ..units_of_work.gpu_slots import Place, Slots, note_of, slots_for, without
from ..working.second_attempts import Attempt
from .asking import NoAnswerError

AskSlots = Callable[[], Slots]

# A machine that lacks a mount, credentials or a tool is tried again after so long: they may have been away for a while.
_LEFT_OUT_SECONDS = 600.0
# How often the job looks for machines that have joined or left.
_ASK_SECONDS = 5.0


class ClusterMachines:
    """`slots` are what the job may use of its machines now, `worked` the ids of those that have done a step."""

    def __init__(self, encoder: str, ask_slots: AskSlots, now: float) -> None:
        """`now` and all other times are in seconds. ToolError if Ray has no machine for the encoder."""
        self.slots = slots_for(encoder, ask_slots())
        self.worked: set[str] = set()
        self._encoder = encoder
        self._ask_slots = ask_slots
        self._asked = now
        # What keeps all units waiting, for a user; "" if nothing does.
        self._missing = ""
        self._seen: set[str] = set()
        # Those that cannot do a step, each with the error and the time at which it may be tried again.
        self._left_out: dict[str, tuple[ShortGopError, float]] = {}

    @property
    def num_lost(self) -> int:
        """How many machines the job had, and has no more."""
        return len(self._seen - {each.id for each in self.slots.machines} - self._left_out.keys())

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset(self._left_out)

    def able(self, attempt: Attempt) -> list[str]:
        """The machines that have the place and the memory for an attempt."""
        place, largest_bytes = attempt.place, self.slots.memory_for(attempt.place) or 0
        needed_bytes = min(attempt.step.unit.expected_bytes, largest_bytes)
        return [each.id for each in self.slots.machines if each.has(place) and each.memory_bytes >= needed_bytes]

    def leave_out(self, machine: str, error: ShortGopError, now: float) -> None:
        """Begin nothing more on a machine that cannot do a step: for good where it lacks the encoder, for some minutes
        where it lacks anything else, which may come back.

        Raises the error where no other machine may have the encoder, or none has done a step: then the job was probably
        given something that no machine has.
        """
        is_lasting = isinstance(error, NoEncoderError)
        self._left_out[machine] = error, math.inf if is_lasting else now + _LEFT_OUT_SECONDS
        self.slots = without(self.slots, self._left_out.keys())
        place: Place = "gpu" if self.slots.on_gpus else "cpu"
        others_may = is_lasting or self.worked - {machine}
        if self.slots.memory_for(place) is None or not others_may:
            raise error

    def ask_if_due(self, now: float) -> bool:
        """Ask Ray for its machines where that was done some time ago. Returns whether it was."""
        if now - self._asked <= _ASK_SECONDS:
            return False
        self._asked = now
        self._left_out = {machine: (error, until) for machine, (error, until) in self._left_out.items() if until > now}
        self._seen.update(each.id for each in self.slots.machines)
        try:
            slots = self._ask_slots()
        except NoAnswerError as error:
            self._missing = f"waiting for the cluster: {error.message}"
            return True
        try:
            self.slots = without(slots_for(self._encoder, slots), self._left_out.keys())
            self._missing = ""
        except ToolError as error:
            # Machines that were lost may come again: without any for the encoder the units wait.
            self._missing = f"waiting for machines: {error.message}"
        return True

    def note(self, *, alone: int, short: Sequence[str]) -> str:
        """What there is to say of the machines. `alone` and `short` are those of `note_of`."""
        unfit = [error.message for error, until in self._left_out.values() if until < math.inf]
        left_out = len(self._left_out) - len(unfit)
        return self._missing or note_of(self.slots, alone=alone, left_out=left_out, unfit=unfit, short=short)
