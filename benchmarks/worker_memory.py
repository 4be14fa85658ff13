"""What a DataLoader's worker costs in memory, by number of videos: python benchmarks/worker_memory.py

Private memory is what the worker shares with no other process, in its smaps_rollup, so this runs on Linux alone: what
it wrote (Private_Dirty), and pages of files that no other process maps now (Private_Clean), which the system takes back
when it needs memory. Each worker reads 100 clips first. The same file lists what 10 million videos cost a policy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cold_open import make_repeated
from torch.utils.data import DataLoader, get_worker_info

import shortgop
from shortgop.training.which_clips.clips import placed_index
from shortgop.training.which_clips.video_table import VideoTable

ITEMS, BATCH, WORKERS = 100, 10, 2
MIB = 1 << 20


def private_bytes() -> tuple[int, int]:
    """The memory of this process that no other process has: what it wrote, and pages of files."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines[1:]}
    return sizes["Private_Dirty"], sizes["Private_Clean"]


def with_memory(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Collates a batch in the worker: which worker it is, and its memory at that time."""
    worker = get_worker_info()
    return {"worker": worker.id if worker else -1, "private": private_bytes(), "clips": len(items)}


def measure(dataset: Path, method: str, *, half: bool) -> dict[str, Any]:
    """The private memory of each worker after its items, and of the main process; seconds to the first batch.

    With `half`, `Dataset.where` chooses every other video.
    """
    torch.set_num_threads(1)
    opened = shortgop.open(dataset, size=(64, 64))
    videos = opened[np.arange(len(opened)) % 2 == 0] if half else opened
    clips = shortgop.ClipDataset(videos, shortgop.RandomClips(8))
    sampler = shortgop.ElasticSampler(clips, BATCH)
    loader = DataLoader(
        clips,
        batch_size=BATCH,
        sampler=_First(sampler, ITEMS * WORKERS),
        num_workers=WORKERS,
        multiprocessing_context=method,
        collate_fn=with_memory,
    )
    started = time.perf_counter()
    of_worker: dict[int, tuple[int, int]] = {}
    first = 0.0
    for batch in loader:
        first = first or time.perf_counter() - started
        of_worker[batch["worker"]] = batch["private"]
    return {"workers": list(of_worker.values()), "main": private_bytes(), "first_batch_seconds": first}


class _First:
    """The first draws of a sampler. They repeat where there are fewer clips."""

    def __init__(self, sampler: shortgop.ElasticSampler, count: int) -> None:
        self.sampler, self.count = sampler, count

    def __iter__(self) -> Any:
        return (draw for draw, _ in zip(self.sampler, range(self.count), strict=False))

    def __len__(self) -> int:
        return self.count


def workers_table(counts: list[int], *, half: bool) -> None:
    print(f"Private memory of each of {WORKERS} workers after {ITEMS} clips, MiB: written by it / pages of files")
    print(f"{'start method':>14} {'videos':>10} {'a worker':>15} {'main':>15} {'first batch':>12}")
    for method in ("fork", "forkserver", "spawn"):
        for count in counts:
            argv = [sys.executable, __file__, "--child", str(make_repeated(count)), method, *(["--half"] * half)]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
            workers, main = np.mean(found["workers"], axis=0) / MIB, np.array(found["main"]) / MIB
            seconds = found["first_batch_seconds"]
            print(
                f"{method:>14} {count:>10,} {workers[0]:>7.1f} / {workers[1]:>5.1f} {main[0]:>7.1f} / {main[1]:>5.1f} "
                f"{seconds:>10.2f} s",
                flush=True,
            )


def policy_table(count: int) -> None:
    """What AllClips of so many videos takes: seconds, and bytes per video beside the manifest's columns."""
    rng = np.random.default_rng(0)
    frames = rng.integers(100, 10_000, count)
    rates = np.full(count, 30), np.ones(count, dtype=np.int64)

    def nothing() -> Any:
        raise AssertionError("AllClips without align needs no references")

    videos = VideoTable(None, frames, *rates, name=str, references=nothing)
    print(f"AllClips(16, stride=4) over {count:,} videos")
    before, started = sum(private_bytes()), time.perf_counter()
    clips = placed_index(shortgop.AllClips(16, stride=4), videos, seed=0)
    placed = time.perf_counter()
    clips.clips([0, len(clips) - 1])
    read, after = time.perf_counter(), sum(private_bytes())
    print(
        f"  {len(clips):,} clips; {placed - started:.2f} s to place them, {1e6 * (read - placed):.0f} us for two clips"
    )
    print(f"  {(after - before) / count:.1f} bytes per video")
    started = time.perf_counter()
    _ = clips.fingerprint
    print(f"  fingerprint of a sampler's state: {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, nargs="+", default=[1_000, 1_000_000])
    parser.add_argument("--half", action="store_true", help="of every other video, as Dataset.where chooses them")
    parser.add_argument("--child", nargs=2, metavar=("DATASET", "METHOD"), help="measure one start method")
    arguments = parser.parse_args()
    if arguments.child:
        sys.stdout.write(json.dumps(measure(Path(arguments.child[0]), arguments.child[1], half=arguments.half)))
    else:
        workers_table(arguments.videos, half=arguments.half)
        if not arguments.half:
            policy_table(10_000_000)
