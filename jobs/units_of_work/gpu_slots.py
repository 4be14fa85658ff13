"""How many units run at a time, and which of them get a share of a GPU. Pure.

An encoder on a GPU takes a few sessions at a time, consumer GPUs eight in all, while a machine may have 64 cores. So
the steps of a job have two kinds of places: `streams_per_gpu` for each GPU, and all others, which leave GPUs alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from ...errors import ToolError
from ...wording import counted

DEFAULT_STREAMS_PER_GPU = 4
# With two units for each place every worker stays busy while the driver publishes. Where GPUs are used, units for the
# CPU do not wait in Ray: it would give them the cores that units for the GPU wait for.
_IN_FLIGHT = 2

Place = Literal["gpu", "cpu"]
NOTHING_FREE: Mapping[str, Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True)
class Free:
    """What no task has of a machine."""

    cpus: float = 0.0
    gpus: float = 0.0
    memory_bytes: float = 0.0


@dataclass(frozen=True)
class Machine:
    """A machine that runs units; `id` is its node's in Ray. `free` is what it had when Ray was asked."""

    id: str
    memory_bytes: int
    has_gpu: bool = False
    free: Free = Free()

    def has(self, place: Place) -> bool:
        return place == "cpu" or self.has_gpu


@dataclass(frozen=True)
class Slots:
    """`at_a_time` units run at a time on the `machines`, `on_gpus` of them with the share `gpu_share` of a GPU."""

    at_a_time: int
    on_gpus: int = 0
    gpu_share: float = 0.0
    machines: tuple[Machine, ...] = ()

    @property
    def on_cpus(self) -> int:
        return self.at_a_time - self.on_gpus

    def memory_for(self, place: Place, avoided: Collection[str] = ()) -> int | None:
        """The memory of the largest machine that has this place and is not among the `avoided`; None where there is
        none."""
        return _largest(self.machines, place, avoided) if avoided else self._memory[place]

    def with_room(self, place: Place, asked_bytes: int, avoided: Collection[str] = ()) -> frozenset[str]:
        """The ids of the machines that could begin a unit at once that asks for so much memory, in this place and not
        on the `avoided` machines."""
        gpus = self.gpu_share if place == "gpu" else 0.0
        return frozenset(
            each.id
            for each in self.machines
            if each.free.cpus >= 1
            and each.free.gpus >= gpus
            and each.free.memory_bytes >= asked_bytes
            and each.id not in avoided
        )

    @cached_property
    def _memory(self) -> Mapping[Place, int | None]:
        # Asked for each attempt that runs, and there may be a thousand machines.
        return {"cpu": _largest(self.machines, "cpu"), "gpu": _largest(self.machines, "gpu")}


def _largest(machines: Iterable[Machine], place: Place, avoided: Collection[str] = ()) -> int | None:
    fitting = (each.memory_bytes for each in machines if each.has(place) and each.id not in avoided)
    return max(fitting, default=None)


def slots_of(resources: Mapping[str, float], workers: int | None, streams_per_gpu: int) -> Slots:
    """The slots of a Ray cluster with these resources. Every unit takes a CPU, also with a GPU: decoded frames are
    encoded there where the GPU has no encoder."""
    cpus = int(resources.get("CPU", 1))
    at_a_time = max(1, min(workers, cpus) if workers else cpus)
    on_gpus = min(int(resources.get("GPU", 0)) * streams_per_gpu, at_a_time)
    return Slots(at_a_time, on_gpus, 1 / streams_per_gpu if on_gpus else 0.0)


def with_machines(
    slots: Slots, machines: Mapping[str, Mapping[str, float]], free: Mapping[str, Mapping[str, float]] = NOTHING_FREE
) -> Slots:
    """The slots with the machines of which these are the resources, by the ids of their nodes, and what is `free` of
    them. One without CPUs runs no unit: a head is often given none."""

    def free_of(node: str) -> Free:
        found = free.get(node, {})
        return Free(found.get("CPU", 0.0), found.get("GPU", 0.0), found.get("memory", 0.0))

    for_units = tuple(
        Machine(node, int(each.get("memory", 0)), each.get("GPU", 0) > 0, free_of(node))
        for node, each in machines.items()
        if each.get("CPU", 0) >= 1
    )
    slots = replace(slots, machines=for_units)
    streams_per_gpu = round(1 / slots.gpu_share) if slots.on_gpus else 0
    # Each unit takes a core of the machine whose GPU it uses.
    places = sum(min(int(each.get("CPU", 0)), int(each.get("GPU", 0)) * streams_per_gpu) for each in machines.values())
    return replace(slots, on_gpus=min(slots.on_gpus, places)) if places else replace(slots, on_gpus=0, gpu_share=0.0)


def waits_in_vain(slots: Slots, place: Place, asked_bytes: int, avoided: Collection[str] = ()) -> bool:
    """Whether no machine but the `avoided` has this place and so much memory any more. Not so if there is no machine at
    all: one that comes may be large enough."""
    if not slots.machines:
        return False
    if place == "gpu" and not slots.on_gpus:
        return True
    largest = slots.memory_for(place, avoided)
    return largest is None or asked_bytes > largest


def without(slots: Slots, left_out: Collection[str]) -> Slots:
    """The slots without machines that cannot encode. How many units run at a time stays as it is: more of them wait."""
    return replace(slots, machines=tuple(each for each in slots.machines if each.id not in left_out))


def note_of(
    slots: Slots, *, alone: int = 0, left_out: int = 0, unfit: Sequence[str] = (), short: Sequence[str] = ()
) -> str:
    """What a job says of its slots. `alone` units ask for all memory of the largest machine, which is less than they
    are expected to take; `left_out` machines lack the encoder; `unfit` says what is wrong with others, and `short`
    names folders in which others have no room."""
    if not slots.machines:
        return "waiting for machines: Ray has none with a CPU for this job"
    on_gpus = f", {slots.on_gpus} of them with a GPU" if slots.on_gpus else ""
    more = f"; {counted(alone, 'unit')} may need more memory than any machine has and will run alone on one"
    lack = f"; {counted(left_out, 'machine')} cannot run the encoder and {'is' if left_out == 1 else 'are'} left out"
    is_or_are = "is" if len(unfit) == 1 else "are"
    wrong = f"; {counted(len(unfit), 'machine')} {is_or_are} left out for some minutes: {unfit[0]}" if unfit else ""
    has_or_have = "has" if len(short) == 1 else "have"
    full = f"; {counted(len(short), 'machine')} {has_or_have} no room for some sources: {short[0]}" if short else ""
    begin = f"encoding, {slots.at_a_time} at a time{on_gpus}"
    return f"{begin}{more if alone else ''}{lack if left_out else ''}{wrong}{full}"


def slots_for(encoder: str, slots: Slots) -> Slots:
    """The slots for a profile that names this encoder: one on a GPU has no place elsewhere, one on the CPU needs no
    GPU. ToolError where there is none."""
    if encoder.startswith("lib"):
        return replace(slots, on_gpus=0, gpu_share=0.0)
    if encoder == "auto":
        return slots
    if not slots.on_gpus:
        raise ToolError(
            f"--encoder {encoder} needs a GPU, and Ray has none for this job; start the nodes that have one with "
            "`ray start --num-gpus`, give --streams-per-gpu 1 or more, or choose --encoder auto"
        )
    return replace(slots, at_a_time=slots.on_gpus)


def free_places(slots: Slots, in_flight: Mapping[Place, int]) -> list[Place]:
    """The places that are free for a step, by how many steps run or wait in each; GPUs come first.

    A step that leaves GPUs alone may run where a GPU has nothing to do: that takes only a core. One such step may
    always run, because others may wait for it while GPUs have much to do.
    """
    free: list[Place] = []
    on_cpus, on_gpus = in_flight.get("cpu", 0), in_flight.get("gpu", 0)
    if on_gpus < slots.on_gpus * _IN_FLIGHT:
        free.append("gpu")
    cores = slots.at_a_time - min(on_gpus, slots.on_gpus)
    if on_cpus < (cores if on_gpus else cores * _IN_FLIGHT) or not on_cpus:
        free.append("cpu")
    return free
