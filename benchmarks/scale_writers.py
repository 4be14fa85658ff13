"""What writers pay for the size of a dataset: python benchmarks/scale_writers.py [--videos 4000000]

What a job decides about 1 % of new sources before it encodes anything, what it compares at its end, and dropping and
labelling a single video. Then what looks at all videos: summing them up, listing two snapshots, going back to the one
before 1 % more came, and copying to where all videos are already. The tables are made up (`scale_data`), and the
dataset was opened on this host before. Each is done twice, each time in a process of its own: once for its time, and
once under tracemalloc, for the most memory that it allocated, without pages of files. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import footage
import numpy as np
import scale_data
from process_memory import forget_peak, peak_bytes
from scale import timed

from shortgop.jobs.finding.source import Found, Source
from shortgop.jobs.planning.deciding import decide
from shortgop.jobs.planning.how import How
from shortgop.jobs.planning.planning import plan_window, sort_out
from shortgop.jobs.progress.tally import Tally, ignore
from shortgop.jobs.sources.look import Expected, Looked
from shortgop.jobs.sources.source_listing import Listing
from shortgop.jobs.sources.source_table import SourceTable
from shortgop.jobs.units_of_work.units import Item
from shortgop.jobs.units_of_work.where import Where
from shortgop.jobs.units_of_work.windows import WINDOW_SOURCES
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.equal_contents import equal_contents
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.history import history
from shortgop.manifests.operations.rollback import rollback
from shortgop.manifests.operations.summary import summarize
from shortgop.manifests.shared_memory.host_copies import copies_in
from shortgop.prep.options import DEFAULT_POLICY, Options
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage

# Kinds of work on a dataset to which 1 % more videos came in a second snapshot.
WITH_SECOND_SNAPSHOT = ("snapshots", "rollback")


def new_sources(count: int, *, listed: bool) -> list[Found]:
    """Sources that the dataset lacks, of a folder or of a list of paths."""
    names = [f"new/{number:09}.mp4" for number in range(count)]
    return [Found(Source(name, f"/corpus/{name}", name, "{}", is_listed=listed), "there", listed) for name in names]


def job(dataset: Path, count: int, *, listed: bool) -> Callable[[], Any]:
    """What a job of so many new sources decides about them, and the units of all of their windows."""
    out = DiskStorage(dataset)
    _, before = open_current(out, copies=copies_in(None))
    how = How(Options(Profile(), DEFAULT_POLICY), Where(), 0.0, "keep", Tally(ignore))
    table = SourceTable()
    table.add(new_sources(count, listed=listed))
    listing = Listing(table, (), DEFAULT_POLICY, WINDOW_SOURCES, (), (), iter(()))
    listing.complete()

    def work() -> int:
        decided = decide(listing, out, before, how, lambda _out, _manifest: {})
        units = 0
        for due in decided.due or ():
            looked = [Looked(Item(row.source, 1, 1_000_000), Expected()) for row in table.rows(due.window)]
            sorted_out = sort_out([each.item for each in looked], decided.known, "keep", {})
            units += len(plan_window(looked, sorted_out, decided.known, how.options))
        if decided.to_prepare != count or not units:
            raise RuntimeError(f"{decided.to_prepare} of {count} sources are to be prepared")
        return units

    return work


def tables_only(dataset: Path, copy: Path) -> DiskStorage:
    """A copy of a dataset without its shards folder."""
    shutil.rmtree(copy, ignore_errors=True)
    return DiskStorage(shutil.copytree(dataset, copy, ignore=shutil.ignore_patterns("shards")))


def child(what: str, dataset: Path, count: int, *, traced: bool) -> dict[str, Any]:
    """In a new process: one of the kinds of work, and what it took."""
    copy = dataset.with_name(f"{dataset.name}-changed")
    storage, video = tables_only(dataset, copy), f"{100 * count // 2:09}.mp4"
    if what in WITH_SECOND_SNAPSHOT:
        scale_data.write_more(copy, 100 * count)
        publish(storage)
    works: dict[str, Callable[[], Any]] = {
        "opening": lambda: open_current(storage, copies=copies_in(None)),
        "drop": lambda: drop(storage, [video]),
        "annotate": lambda: annotate(storage, {video: {"seen": 1}}),
        "the end of a job": lambda: equal_contents(open_current(storage, copies=copies_in(None))[1]),
        "info": lambda: summarize(DiskStorage(dataset), max_videos=20),
        "snapshots": lambda: history(storage),
        "rollback": lambda: rollback(storage, "000001"),
        "copy": lambda: copy_videos([DiskStorage(dataset)], storage),
    }
    work = works[what] if what in works else job(copy, count, listed=what == "job of a list")
    before = peak_bytes()
    if traced:
        tracemalloc.start()
    forget_peak()
    _, seconds = timed(work)
    allocated = tracemalloc.get_traced_memory()[1] if traced else 0
    shutil.rmtree(copy)
    return {**seconds, "allocated": allocated, "peak": peak_bytes() - before}


def lookups(dataset: Path) -> dict[str, float]:
    """Microseconds of processor time for the row of an id. The dataset has half of the ids."""
    manifest = open_current(DiskStorage(dataset), copies=copies_in(None))[1]
    numbers = np.random.default_rng(3).integers(2 * len(manifest.videos), size=WINDOW_SOURCES).tolist()
    ids = [f"{number:09}.mp4" for number in numbers]
    started = time.thread_time()
    for each in ids:
        manifest.row_of_id.get(each)
    one = time.thread_time() - started
    manifest.row_of_id.of(ids)
    return {"one": 1e6 * one / len(ids), "many": 1e6 * (time.thread_time() - started - one) / len(ids)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=4_000_000)
    parser.add_argument("--child", nargs=3, metavar=("WHAT", "DATASET", "COUNT"))
    parser.add_argument("--traced", action="store_true")
    options = parser.parse_args()
    if options.child:
        what, dataset, count = options.child
        done = child(what, Path(dataset), int(count), traced=options.traced) if what != "lookups" else {}
        sys.stdout.write(json.dumps(done or lookups(Path(dataset))))
        return
    dataset = scale_data.make(footage.WORK / f"scale-{options.videos}-whole", options.videos, timeline=True)
    cache = footage.WORK / "scale-writers"

    def in_process(what: str, *arguments: str) -> dict[str, Any]:
        command = [sys.executable, __file__, "--child", what, str(dataset), str(options.videos // 100), *arguments]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        return dict(json.loads(done.stdout))

    # So that the host has a copy of its tables.
    in_process("opening")
    for what in (
        "opening",
        "job",
        "job of a list",
        "the end of a job",
        "drop",
        "annotate",
        "snapshots",
        "rollback",
        "copy",
    ):
        seconds, memory = in_process(what), in_process(what, "--traced")
        print(
            f"{what}, {options.videos:,} videos: {seconds['wall']:.2f} s, {seconds['cpu']:.2f} s of processor time, "
            f"{memory['allocated'] / 2**20:.0f} MiB allocated at most, {seconds['peak'] / 2**20:.0f} MiB more in "
            "memory with pages of files",
            flush=True,
        )
    found = in_process("lookups")
    print(f"a row by its id: {found['one']:.1f} us; of {WINDOW_SOURCES:,} at once: {found['many']:.1f} us each")
    shutil.rmtree(cache)


if __name__ == "__main__":
    main()
