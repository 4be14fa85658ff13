"""Where the units of a job run."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...errors import UsageError
from .cluster_address import cluster_address
from .gpu_slots import DEFAULT_STREAMS_PER_GPU


@dataclass(frozen=True)
class Where:
    """Where units run. UsageError if the values contradict each other.

    `runner` is "ray", or "inline" for one unit after the other in this process. `address` is that of a Ray cluster,
    HOST:PORT or `auto`. Without it $RAY_ADDRESS counts. Without that, or with `local`, a local Ray is started.
    `workers` bounds how many units run at a time. `streams_per_gpu` units at a time use each GPU; all others run on
    the CPU. With 0 none uses a GPU.
    """

    runner: str = "ray"
    address: str | None = None
    workers: int | None = None
    streams_per_gpu: int = DEFAULT_STREAMS_PER_GPU

    def __post_init__(self) -> None:
        if self.runner not in ("ray", "inline"):
            raise UsageError(f"--runner is {self.runner!r}; it takes ray or inline")
        if self.workers is not None and (
            isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 1
        ):
            raise UsageError(f"--workers is {self.workers!r}; it takes a whole number of at least 1")
        if (
            isinstance(self.streams_per_gpu, bool)
            or not isinstance(self.streams_per_gpu, int)
            or self.streams_per_gpu < 0
        ):
            raise UsageError(f"--streams-per-gpu is {self.streams_per_gpu!r}; it takes a whole number of at least 0")
        if self.runner == "inline" and self.address is not None:
            raise UsageError(
                f"--address {self.address} names a Ray cluster, but --runner inline does not use Ray; leave one out"
            )
        if self.runner == "inline" and self.workers not in (None, 1):
            raise UsageError(
                f"--workers is {self.workers}, but --runner inline runs one unit after the other; leave one out"
            )
        if self.address is not None:
            cluster_address(self.address, {})

    @property
    def uses_gpus(self) -> bool:
        return self.streams_per_gpu > 0

    @property
    def cluster(self) -> str | None:
        """The address of the Ray cluster to join, or None. UsageError if $RAY_ADDRESS is not such an address."""
        return cluster_address(self.address, os.environ) if self.runner == "ray" else None
