"""Joining a node of Ray as its first driver, also where a worker dies meanwhile.

A node answers its first driver when the workers that it starts for it have registered. If one of them dies before, Ray
2.60 never answers: https://github.com/ray-project/ray/issues/40131. It answers a second driver at once, and workers
that start for tasks of the second one count for the first. So a process waits beside a driver that joins, and becomes
the second driver where there is no answer for a while. A thread could not do that: `ray.init` holds Python's lock while
it waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from ...prep.running.processes import end, start

# A node starts its workers within a few seconds, a busy one within about ten.
PATIENCE_SECONDS = 20.0
# Long enough that all tasks run at the same time: so Ray has to start a worker for each of them.
_TASK_SECONDS = 30.0
# A shell, which waits without taking the time to start another Python.
_WAIT = 'sleep "$1"; shift; exec "$@" > /dev/null 2>&1'


@contextlib.contextmanager
def answered(address: str, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """For a block that joins the cluster at `address` (HOST:PORT) from this machine: where it takes longer than
    `patience_seconds`, there is a second driver until the block ends."""
    command = [sys.executable, "-m", __name__, address, str(os.getpid())]
    process = start(["/bin/sh", "-c", _WAIT, "sh", str(patience_seconds), *command], env=os.environ)
    try:
        yield
    finally:
        end(process)
        process.stdout.close()
        process.stderr.close()


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _second_driver(address: str, first: int) -> None:
    """Join the cluster, and keep a worker busy for each CPU of this node while the process `first` is there."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    node = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    cpus = next((each["Resources"].get("CPU", 0) for each in nodes if each["NodeID"] == node), 0)
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    task: Any = ray.remote(num_cpus=0, max_retries=0)(_sleep).options(scheduling_strategy=here)
    while cpus and os.getppid() == first:
        ray.wait([task.remote(_TASK_SECONDS) for _ in range(int(cpus))], num_returns=int(cpus))


if __name__ == "__main__":
    _second_driver(sys.argv[1], int(sys.argv[2]))
