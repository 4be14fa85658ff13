"""How long jobs take on simulated clusters, by the lower bound: python benchmarks/makespans.py

The cluster, the corpora and the bound are those of `test_schedule_simulation.py`: the scheduler's own code, and a clock
that is a number. It computes, and measures no time: the same arguments give the same figures on any machine. A
line for each number of units for each core: the least and the greatest of the seeds, for units that are made up and
for those that were measured; with --windows, where so many units are planned at a time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parent.parent / "tests" / room) for room in ("jobs", "shared"))

from shortgop.jobs.units_of_work import order
from test_schedule_simulation import makespan

_CORPORA = {"made up": ("clips", "films"), "measured": ("measured clips", "measured films")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=1, help="of each node")
    parser.add_argument("--units", type=int, nargs="+", default=[40, 30, 20, 10], help="for each core")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=0, help="0: all units are known from the beginning on")
    parser.add_argument("--ahead", type=float, default=order.AHEAD_SECONDS, help="seconds of work that wait for a core")
    given = parser.parse_args()
    order.AHEAD_SECONDS = given.ahead
    for units in given.units:
        columns = []
        for name, kinds in _CORPORA.items():
            spans = (
                makespan(kind, seed, given.nodes, cores=given.cores, units_per_core=units, window_units=given.windows)
                for kind in kinds
                for seed in range(given.seeds)
            )
            times = [took / least for took, least in spans]
            columns.append(f"{name} {min(times):.2f} to {max(times):.2f}")
        print(f"{units} units a core: {', '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
