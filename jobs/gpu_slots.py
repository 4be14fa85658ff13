"""How many units run at a time, and which of them get a share of a GPU. Pure.

An encoder on a GPU takes a few sessions at a time, consumer GPUs eight in all, while a machine may have 64 cores. So
the units of a job have two kinds of places: `streams_per_gpu` for each GPU, and all others, which leave GPUs alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import ToolError

DEFAULT_STREAMS_PER_GPU = 4
# With two units for each place every worker stays busy while the driver publishes.
_IN_FLIGHT = 2

Place = Literal["gpu", "cpu"]


@dataclass(frozen=True)
class Slots:
    """`at_a_time` units run at a time, `on_gpus` of them with the share `gpu_share` of a GPU. The largest machine has
    `memory_bytes`."""

    at_a_time: int
    on_gpus: int = 0
    gpu_share: float = 0.0
    memory_bytes: int = 0

    @property
    def on_cpus(self) -> int:
        return self.at_a_time - self.on_gpus


def slots_of(resources: Mapping[str, float], workers: int | None, streams_per_gpu: int) -> Slots:
    """The slots of a Ray cluster with these resources. Every unit takes a CPU, also with a GPU: decoded frames are
    encoded there where the GPU has no encoder."""
    cpus = int(resources.get("CPU", 1))
    at_a_time = max(1, min(workers, cpus) if workers else cpus)
    on_gpus = min(int(resources.get("GPU", 0)) * streams_per_gpu, at_a_time)
    return Slots(at_a_time, on_gpus, 1 / streams_per_gpu if on_gpus else 0.0)


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


def next_place(slots: Slots, in_flight: Mapping[Place, int]) -> Place | None:
    """Where the next unit goes, by how many run or wait in each place; None where enough do. GPUs come first."""
    if in_flight.get("gpu", 0) < slots.on_gpus * _IN_FLIGHT:
        return "gpu"
    return "cpu" if in_flight.get("cpu", 0) < slots.on_cpus * _IN_FLIGHT else None
