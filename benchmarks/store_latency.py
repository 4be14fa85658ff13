"""A loader over a web server that answers late, beside the same loader over the disk.

    python benchmarks/store_latency.py

It needs no S3 server, only nginx. Loaders are timed in turn, round by round, between two batches in the middle of a
pass.
"""

from __future__ import annotations

import argparse
import statistics

import footage
from nginx import late_servers
from stores import epochs_of, loader_of, timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=20, help="Batches that are timed in each round.")
    parser.add_argument("--latency-ms", type=float, nargs="*", default=[1.0, 10.0, 50.0])
    options = parser.parse_args()
    disk = footage.make_dataset(footage.make_sources("stores", 12, 256, 20, preset="veryfast"), "256", name="-stores")
    with late_servers(disk.parent, options.latency_ms) as urls:
        places = {"disk": str(disk), **{f"{latency:g} ms": f"{url}/{disk.name}" for latency, url in urls.items()}}
        loaders = {name: loader_of(place) for name, place in places.items()}
        rates: dict[str, list[float]] = {name: [] for name in loaders}
        for turn in range(options.rounds + 1):
            for name, loader in loaders.items():
                batches = epochs_of(loader)(turn)
                rate = timed(batches, options.batches)
                del batches
                if turn:
                    rates[name].append(rate)
        for name, each in rates.items():
            ratios = [disk_rate / rate for disk_rate, rate in zip(rates["disk"], each, strict=True)]
            print(
                f"{name}: {statistics.median(each):.0f} clips a second, {statistics.median(ratios):.2f} times as long "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )
        for loader in loaders.values():
            loader.close()


if __name__ == "__main__":
    main()
