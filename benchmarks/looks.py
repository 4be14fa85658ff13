"""What it takes the driver of a job to look at a source: python benchmarks/looks.py

All sources are links to one short clip, so their bytes are in memory. Those that the dataset has are looked at before
anything is encoded; of new ones the header is read too. With Ray, workers of this machine look at them: what the driver
takes then bounds how many a large cluster looks at in a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

import first_frames
import footage
import numpy as np

from shortgop.comparison.estimates import median
from shortgop.jobs.cluster.ray_connection import connected
from shortgop.jobs.cluster.ray_looks import looks_on_cluster
from shortgop.jobs.finding.source import Source
from shortgop.jobs.sources.look import NOTHING, Looked, There, look_at
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile

_OPTIONS = Options(Profile())
_RAY_WORKERS = 2

Look = Callable[[Sequence[Source], There], Sequence[Looked | None]]


def took(look: Look, sources: Sequence[Source], there: There) -> tuple[float, float]:
    """Seconds by the clock and of this process's CPU."""
    start, cpu = time.monotonic(), time.process_time()
    if None in look(sources, there):
        raise SystemExit("bench: a source could not be read")
    return time.monotonic() - start, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    footage.WORK.mkdir(parents=True, exist_ok=True)
    (clip,) = footage.make_sources("first-frames", 1, 256, 2)
    paths = sorted(map(str, first_frames.made("folder", clip, options.sources).glob("*/*.mp4")))
    sources = [Source(path, path, path, "{}") for path in paths]
    kinds = {"in the dataset": There({source.id: 0 for source in sources}), "new": NOTHING}
    with connected(None, _RAY_WORKERS, 0) as ask_slots, looks_on_cluster(ask_slots) as on_ray:
        looks: Mapping[str, Look] = {
            "the driver": lambda sources, there: look_at(sources, _OPTIONS, there),
            "workers": lambda sources, there: on_ray(sources, _OPTIONS, there, 0),
        }
        seconds: dict[tuple[str, str], list[tuple[float, float]]] = {}
        # The first round starts Ray's workers, and is not counted.
        for number in range(1 + options.runs):
            for who, look in looks.items():
                for kind, there in kinds.items():
                    times = took(look, sources, there)
                    if number:
                        seconds.setdefault((who, kind), []).append(times)
    for (who, kind), measured in seconds.items():
        clock, cpu = np.array(measured).T / len(sources) * 1e6
        print(f"{kind}, by {who}: {median(clock)} us a source, {median(cpu)} us of the driver's CPU")


if __name__ == "__main__":
    main()
