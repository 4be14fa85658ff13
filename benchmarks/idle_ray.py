"""What a Ray takes of a machine that does nothing: python benchmarks/idle_ray.py

The one that a job starts for itself, beside one that looks at itself and for other nodes as often as Ray does by
default, and beside that with an actor. Percent of one core, after some seconds for the start. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import ray

from shortgop.jobs.cluster import ray_connection
from shortgop.jobs.cluster.progress_boards import progress_board
from shortgop.jobs.units_of_work.unit_results import UnitProgress

_START_SECONDS = 10
_WAYS = ("as a job starts it", "with Ray's own intervals", "and with an actor")


def processor_seconds() -> float:
    """Those of this process and of all below it."""
    own, total = psutil.Process(), 0.0
    for each in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            used = each.cpu_times()
            total += used.user + used.system
    return total


def wait() -> None:
    time.sleep(1)


@contextlib.contextmanager
def started(way: str, workers: int) -> Iterator[None]:
    if way != _WAYS[0]:
        ray_connection._RARE_LOOKS.clear()  # noqa: SLF001
    with ray_connection.connected(None, workers, 0), progress_board(shared=way == _WAYS[2]) as board:
        # So that there are as many workers as a job has, and an actor that runs.
        ray.get([ray.remote(num_cpus=1)(wait).remote() for _ in range(workers)])
        board.put(UnitProgress("u", 0, 0))
        time.sleep(_START_SECONDS)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--child", choices=_WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is None:
        for way in _WAYS:
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--child", way], check=True)
        return
    with started(options.child, options.workers):
        before = processor_seconds()
        time.sleep(options.seconds)
        share = (processor_seconds() - before) / options.seconds
    print(f"{options.child}, {options.workers} workers: {share:.1%} of a core")


if __name__ == "__main__":
    main()
