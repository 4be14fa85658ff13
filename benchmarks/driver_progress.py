"""What it takes the driver of a job to keep count of its progress: python benchmarks/driver_progress.py

Seconds of this process's CPU: for one report of a unit that runs, for the reports of all of them together, which is
what a driver gets at a time, and for the status that is written every few seconds. All units run at once. Each figure
is the least of a few rounds, since other processes only add to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.status_board import StatusBoard
from shortgop.jobs.progress.tally import Tally, ignore
from shortgop.jobs.sources.look import Expected
from shortgop.jobs.units_of_work.unit_results import UnitProgress
from shortgop.jobs.units_of_work.units import Item, Unit

_UNITS = (1_000, 4_000, 32_000)
_ROUNDS = 5
_NODES = 250


def job_of(num_units: int) -> tuple[Tally, StatusBoard, Sequence[UnitProgress]]:
    """What the driver keeps of a job whose units have all reported once, and their next reports."""
    tally, board = Tally(ignore), StatusBoard([])
    tally.tell(board)
    names = [f"unit {number}" for number in range(num_units)]
    units = [
        Unit(name, (Item(Source(name, f"/v/{name}", name, "{}"), 1, 5_000_000),), expected_seconds=10.0)
        for name in names
    ]
    tally.plan(units, dict.fromkeys(names, Expected(300)))
    for frames in (0, 10):
        reports = [UnitProgress(name, frames, 300, node=f"node {number % _NODES}") for number, name in enumerate(names)]
        tally.on_all_progress(reports)
    return tally, board, reports


def seconds(work: Callable[[], object]) -> float:
    """The least of a few rounds."""

    def one() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(one() for _ in range(_ROUNDS))


def main() -> None:
    print("units that run | one report, us | a report of each, ms | the status, ms")
    for num_units in _UNITS:
        tally, board, reports = job_of(num_units)
        some = reports[:: num_units // 100]

        def report_each() -> None:
            for report in some:  # noqa: B023  # called at once
                tally.on_progress(report)  # noqa: B023

        alone = seconds(report_each) / len(some)
        together = seconds(lambda: tally.on_all_progress(reports))  # noqa: B023
        status = seconds(board.status)
        print(f"{num_units:14,} | {1e6 * alone:14.0f} | {1e3 * together:20.1f} | {1e3 * status:14.1f}", flush=True)


if __name__ == "__main__":
    main()
