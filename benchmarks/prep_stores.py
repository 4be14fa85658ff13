"""A job from a store into a store beside the same job on a disk: python benchmarks/prep_stores.py

An S3 server on loopback has the sources and gets the dataset, behind nginx, which adds latency to each request: that of
the tests, or with --endpoint another one, with the credentials of the environment (docs/design/storage.md says how to
start Ceph's). Jobs on Ray are run in turn, each into a new place; `on the disk again` is the same job once more, so its
ratio says how much two runs of one job differ. The server runs on the same processors. The ratios are also given
without what a job of one second of video for each worker takes on the disk: the start of Ray.
"""

from __future__ import annotations

import argparse
import shutil
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import footage
import numpy as np
from nginx import LateStore, late_store
from prep import padded, prep_arguments, run_child
from s3_place import means, s3_at

from shortgop.comparison.estimates import median
from shortgop.comparison.timing import alternate
from shortgop.storage.locate import storage_at


def job(sources: str, out: str, workers: int) -> None:
    run_child(prep_arguments([sources], out, workers))


def in_store(store: LateStore, url: str, latency_ms: float, workers: int, requests: list[int], _number: int) -> None:
    store.answer_after(latency_ms / 1000)
    job(f"{url}/in/", f"{url}/{uuid.uuid4().hex}", workers)
    requests.append(store.requests())


def on_disk(sources: Path, scratch: Path, workers: int, _number: int) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    job(str(sources), str(scratch), workers)


def measure(
    sources: Sequence[Path],
    seconds_long: Sequence[Path],
    endpoint: str | None,
    latencies_ms: Sequence[float],
    *,
    runs: int,
    workers: int,
) -> None:
    with (
        s3_at(endpoint) as behind,
        late_store(behind) as store,
        means(store.endpoint) as url,
        TemporaryDirectory(dir=footage.WORK) as name,
    ):
        folder = Path(name)
        near, ready = folder / "in", folder / "ready"
        near.mkdir()
        ready.mkdir()
        for path in sources:
            shutil.copy(path, near)
            storage_at(url).put_new_file(f"in/{path.name}", path)
        for path in seconds_long:
            padded(path, ready / path.name)
        requests: dict[float, list[int]] = {latency: [] for latency in latencies_ms}
        tasks: dict[str, Callable[[int], object]] = {
            "on the disk": partial(on_disk, near, folder / "out", workers),
            "on the disk again": partial(on_disk, near, folder / "out", workers),
            "start": partial(on_disk, ready, folder / "out", workers),
        }
        for latency, counted in requests.items():
            tasks[f"{latency:g} ms"] = partial(in_store, store, url, latency, workers, counted)
        seconds = alternate(tasks, requests=runs).seconds
    disk, start = seconds["on the disk"], seconds["start"]
    print(
        f"{len(sources)} videos, {workers} at a time, on the disk: {median(disk)} s, the start of it {median(start)} s"
    )
    for what, own in seconds.items():
        if what not in ("on the disk", "start"):
            print(f"{what}: {median(own / disk)}, without the start {median((own - start) / (disk - start))}")
    for latency, counted in requests.items():
        print(f"{latency:g} ms: {np.median(counted) / len(sources):.1f} requests a video")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=60)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--height", type=int, default=720)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--latencies", type=float, nargs="+", default=[0.0, 10.0, 50.0], metavar="MS")
    parser.add_argument("--endpoint", help="http://HOST:PORT of an S3 server, in place of that of the tests")
    options = parser.parse_args()
    sources = footage.make_sources("prep", options.videos, options.height, options.seconds)
    # So small that their encodes take next to nothing.
    seconds_long = footage.make_sources("prep", options.workers, 90, 1)
    measure(sources, seconds_long, options.endpoint, options.latencies, runs=options.runs, workers=options.workers)


if __name__ == "__main__":
    main()
