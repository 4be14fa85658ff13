"""What a dataset of a billion frames costs: python benchmarks/scale.py [--videos 10000000]

Opening (the first time on a host, and then), the memory of a process and of a loader's workers, the lookup of a frame's
bytes, and with --add what publishing 1 % more videos takes. The tables are made up (`scale_data`), so nothing is
decoded. Wall-clock and processor seconds are both given: on a busy machine only processor seconds can be compared.
Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import footage
import numpy as np
import scale_data
from page_cache import full_of_files, seconds_to_write
from process_memory import peak_bytes

import shortgop
import shortgop.readers.open_dataset  # so that opening does not include the import of torch
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.manifests.merging.folding import Folding
from shortgop.manifests.merging.merge import merge_tables
from shortgop.manifests.operations.recovery import repair_snapshot
from shortgop.manifests.shared_memory.host_copies import copies_in
from shortgop.manifests.tables import Manifest
from shortgop.readers.dataset import reader_of
from shortgop.readers.gops import GopStore
from shortgop.readers.plan import VideoGops, plan_frames
from shortgop.storage.disk import DiskStorage

CLIP_FRAMES = 16
WORKERS = 2


def memory() -> dict[str, int]:
    """MiB of this process: written by it alone, and mapped from files that no other process maps now."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return {"own": sizes["Private_Dirty"] // 1024, "files": sizes["Private_Clean"] // 1024}


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    result = work()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    return result, {"wall": wall, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def lookup(opened: shortgop.Dataset, *, batch: int, stride: int, batches: int, seed: int) -> dict[str, float]:
    """Microseconds of processor time a frame, from (video, frames) to the byte ranges to read."""
    reader, rng = reader_of(opened), np.random.default_rng(seed)
    layout, store = VideoGops.of(reader.manifest), GopStore(reader.dataset, reader.manifest)
    took = []
    for _ in range(batches):
        videos = rng.integers(len(opened), size=batch).tolist()
        last = int(6 * scale_data.GOP_FRAMES - stride * CLIP_FRAMES)
        starts = rng.integers(last + 1, size=batch).tolist()
        clips = [range(start, start + CLIP_FRAMES * stride, stride) for start in starts]
        started = time.thread_time()
        plan = plan_frames(layout, zip(videos, clips, strict=True))
        store.reads(plan.gops, max_parts=len(plan.gops))
        took.append(1e6 * (time.thread_time() - started) / (batch * CLIP_FRAMES))
    return {"median": float(np.median(took)), "mean": float(np.mean(took))}


def child(dataset: Path, cache: Path) -> dict[str, Any]:
    """In a new process: open, look up, and start workers."""
    found: dict[str, Any] = {"imported": memory()}
    opened, found["open"] = timed(lambda: shortgop.open(dataset, cache_dir=cache))
    found["opened"] = memory()
    found["lookup"] = {
        f"{batch} clips, stride {stride}": lookup(
            opened, batch=batch, stride=stride, batches=2000 // batch, seed=stride
        )
        for stride in (1, 4)
        for batch in (1, 8, 64)
    }
    ids = [f"{number:09}.mp4" for number in np.random.default_rng(2).integers(len(opened), size=1000).tolist()]
    started = time.thread_time()
    for video_id in ids:
        _ = opened[video_id]
    found["id"] = 1e6 * (time.thread_time() - started) / len(ids)
    found["read"] = memory()
    found["workers"] = {method: workers(opened, method) for method in ("fork", "forkserver", "spawn")}
    return found


def workers(opened: shortgop.Dataset, method: str) -> dict[str, int]:
    """The memory of a worker of a loader after 100 batches of clips, on average."""
    context: Any = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    clips = shortgop.ClipDataset(opened, shortgop.AllClips(CLIP_FRAMES, stride=4))
    started = [context.Process(target=work, args=(clips, queue, seed)) for seed in range(WORKERS)]
    for process in started:
        process.start()
    found = [queue.get() for _ in started]
    for process in started:
        process.join()
    return {name: sum(each[name] for each in found) // WORKERS for name in found[0]}


def work(clips: shortgop.ClipDataset, queue: Any, seed: int) -> None:
    """Look up which clips the draws of batches are, and where their bytes lie."""
    reader, rng = reader_of(clips.source), np.random.default_rng(seed)
    layout, store = VideoGops.of(reader.manifest), GopStore(reader.dataset, reader.manifest)
    for _ in range(100):
        batch = clips.clip_index.clips(rng.integers(len(clips), size=8).tolist())
        plan = plan_frames(layout, [(clip.video, clip.frames.tolist()) for clip in batch])
        store.reads(plan.gops, max_parts=len(plan.gops))
    queue.put(memory())


def added(count: int, *, in_use: bool) -> dict[str, Any]:
    """In a new process: publish 1 % more videos, in parts of 1,000, in a copy of a dataset of `count`. Open it with the
    copies of layers that this host has, and without any."""
    dataset = scale_data.make(footage.WORK / f"scale-{count}-whole", count, timeline=True)
    copy = dataset.with_name(f"{dataset.name}-added")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(dataset, copy, ignore=shutil.ignore_patterns("shards"))
    scale_data.write_more(copy, count)
    snapshot, seconds = timed(lambda: publish(DiskStorage(copy)))
    peak = peak_bytes() >> 20
    with in_memory_of(copy, in_use=in_use):
        _, opening = timed(lambda: open_manifest(DiskStorage(copy), snapshot, copies=copies_in(None)))
    with TemporaryDirectory(dir=footage.WORK) as cache:
        with in_memory_of(copy, in_use=in_use):
            elsewhere = in_process("--child-open", str(copy), str(snapshot), XDG_CACHE_HOME=cache)
        copied = copied_bytes(Path(cache))
    elsewhere["floor"] = plain_write(copied, in_use=in_use)
    written = sum(file.stat().st_size for file in (copy / "manifest").iterdir() if file.stem != "000001")
    shutil.rmtree(copy)
    return {**seconds, "peak": peak, "bytes": written, "open": opening, "elsewhere": elsewhere}


def in_memory_of(*needed: Path, in_use: bool) -> contextlib.AbstractContextManager[None]:
    """What is measured within it runs on a host whose memory is full of files, if it is to be one that is `in_use`."""
    return full_of_files(footage.WORK, *needed) if in_use else contextlib.nullcontext()


def copied_bytes(cache: Path) -> int:
    """The bytes of the copies of tables below a cache folder."""
    return sum(file.stat().st_size for file in cache.rglob("tables") if file.is_file())


def plain_write(num_bytes: int, *, in_use: bool) -> str:
    """What it takes to write as many bytes as a host's copy has."""
    if not num_bytes:
        return "a dataset of this size has no copy"
    with in_memory_of(in_use=in_use):
        seconds = seconds_to_write(num_bytes, footage.WORK)
    return f"{seconds:.2f} s to write the copy's {num_bytes / 1e6:.0f} MB and nothing else"


def folded(parts: int) -> dict[str, Any]:
    """In a new process: merge so many parts of 20 videos, as `publish` does before it adds the current snapshot."""
    before = peak_bytes()
    with contextlib.closing(Folding(lambda: footage.WORK / "scale-timelines")) as fold:

        def merged() -> Manifest:
            for start in range(0, 20 * parts, 20):
                fold.add(
                    scale_data.with_timeline(scale_data.made_up(np.arange(start, start + 20), name=f"v{start:08x}"))
                )
            return merge_tables(*fold.result())[0]

        tables, seconds = timed(merged)
    return {**seconds, "peak": (peak_bytes() - before) >> 20, "videos": len(tables.videos)}


def published(dataset: Path) -> dict[str, Any]:
    """In a new process: publish a dataset's part files."""
    _, seconds = timed(lambda: publish(DiskStorage(dataset)))
    return {**seconds, "peak": peak_bytes() >> 20, "snapshots": len(list((dataset / "manifest").iterdir()))}


def repaired(dataset: Path) -> dict[str, Any]:
    """In a new process: make the lost snapshot of a dataset again of its part files."""
    _, seconds = timed(lambda: repair_snapshot(DiskStorage(dataset)))
    return {**seconds, "peak": peak_bytes() >> 20}


def write_parts(dataset: Path, numbers: range, videos: int) -> None:
    """Write the part files with these numbers, of so many videos each."""
    for number in numbers:
        rows = scale_data.made_up(np.arange(videos * number, videos * (number + 1)), name=f"w{number:08x}")
        write_part(DiskStorage(dataset), f"{number:016x}", scale_data.with_timeline(rows), {})


def with_part_files(parts: int, videos: int) -> dict[str, Any]:
    """Write so many parts of so many videos each, publish them in a new process, and make the lost snapshot again in
    another one."""
    dataset = footage.WORK / f"scale-parts-{parts}-{videos}"
    shutil.rmtree(dataset, ignore_errors=True)
    create(DiskStorage(dataset), {})
    step = -(-parts // (os.cpu_count() or 1))
    with multiprocessing.get_context("spawn").Pool() as writers:
        ranges = [range(start, min(start + step, parts)) for start in range(0, parts, step)]
        writers.starmap(write_parts, [(dataset, numbers, videos) for numbers in ranges])
    done = in_process("--child-publish", str(dataset))
    shutil.rmtree(dataset / "manifest")
    done["repair"] = in_process("--child-repair", str(dataset))
    shutil.rmtree(dataset)
    return done


def in_process(*arguments: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    return dict(json.loads(done.stdout))


def seconds_text(seconds: dict[str, float]) -> str:
    return f"{seconds['wall']:.2f} s, {seconds['cpu']:.2f} s of processor time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=10_000_000, help="0: nothing about reading")
    parser.add_argument("--add", type=int, nargs="*", default=[], help="publish 1 %% more videos to so many")
    parser.add_argument("--parts", type=int, nargs="*", default=[], help="merge so many parts of 20 videos")
    parser.add_argument(
        "--part-files", type=int, nargs="*", default=[], help="publish and repair so many parts from files"
    )
    parser.add_argument("--part-videos", type=int, default=20, help="the videos of each such part")
    parser.add_argument(
        "--in-use", action="store_true", help="open with a memory full of files, as on a host that has been used"
    )
    parser.add_argument("--child", nargs=2, metavar=("DATASET", "CACHE"))
    parser.add_argument("--child-add", type=int)
    parser.add_argument("--child-open", nargs=2, metavar=("DATASET", "SNAPSHOT"))
    parser.add_argument("--child-parts", type=int)
    parser.add_argument("--child-publish", metavar="DATASET")
    parser.add_argument("--child-repair", metavar="DATASET")
    options = parser.parse_args()
    if options.child:
        sys.stdout.write(json.dumps(child(*map(Path, options.child))))
        return
    if options.child_add:
        sys.stdout.write(json.dumps(added(options.child_add, in_use=options.in_use)))
        return
    if options.child_open:
        dataset, snapshot = options.child_open
        _, seconds = timed(lambda: open_manifest(DiskStorage(dataset), snapshot, copies=copies_in(None)))
        sys.stdout.write(json.dumps(seconds))
        return
    if options.child_parts:
        sys.stdout.write(json.dumps(folded(options.child_parts)))
        return
    if options.child_publish:
        sys.stdout.write(json.dumps(published(Path(options.child_publish))))
        return
    if options.child_repair:
        sys.stdout.write(json.dumps(repaired(Path(options.child_repair))))
        return
    if options.videos:
        reading(options.videos, in_use=options.in_use)
    in_use = ["--in-use"] if options.in_use else []
    for count in options.add:
        caches = footage.WORK / "scale-writer"
        shutil.rmtree(caches, ignore_errors=True)
        for what in ("the first writer on the host", "the next", "the next"):
            # Each run merges the layers again; the host copies of the layers stay.
            done = in_process("--child-add", str(count), *in_use, XDG_CACHE_HOME=str(caches))
            print(
                f"publishing {count // 100:,} videos on top of {count:,}, {what}: {seconds_text(done)}, "
                f"{done['peak']} MiB at most, {done['bytes'] / 1e6:.1f} MB written; "
                f"opening that: {seconds_text(done['open'])}; "
                f"on a host without copies of layers: {seconds_text(done['elsewhere'])}; {done['elsewhere']['floor']}",
                flush=True,
            )
        shutil.rmtree(caches, ignore_errors=True)
    for count in options.parts:
        done = in_process("--child-parts", str(count))
        print(f"merging {count:,} parts of {done['videos']:,} videos: {seconds_text(done)}, {done['peak']} MiB at most")
    for count in options.part_files:
        done = with_part_files(count, options.part_videos)
        print(
            f"publishing {count:,} parts of {options.part_videos} videos from their files: {seconds_text(done)}, "
            f"{done['peak']} MiB at most, {done['snapshots']} snapshots; "
            f"making the lost snapshot again: {seconds_text(done['repair'])}, {done['repair']['peak']} MiB at most",
            flush=True,
        )


def reading(videos: int, *, in_use: bool) -> None:
    dataset, cache = footage.WORK / f"scale-{videos}", footage.WORK / "scale-host"
    _, seconds = timed(lambda: scale_data.make(dataset, videos))
    (snapshot,) = (dataset / "manifest").iterdir()
    print(f"{videos:,} videos; the snapshot has {snapshot.stat().st_size / 1e6:.0f} MB ({seconds_text(seconds)})")
    shutil.rmtree(cache, ignore_errors=True)
    for what in ("the first on the host", "the next", "the next"):
        # What is not on the disk yet would count as this process's own memory.
        os.sync()
        with in_memory_of(dataset / "manifest", in_use=in_use):
            found = in_process("--child", str(dataset), str(cache))
        print(f"open, {what}: {seconds_text(found['open'])}")
    print(plain_write(copied_bytes(cache), in_use=in_use))
    print("MiB of memory that no other process has, written / of mapped files:")
    for name in ("imported", "opened", "read"):
        print(f"  main process, {name}: {found[name]['own']} / {found[name]['files']}")
    for method, each in found["workers"].items():
        print(f"  a worker ({method}) after 100 batches: {each['own']} / {each['files']}")
    print("from a frame to its byte range, microseconds of processor time a frame, median / mean:")
    for name, each in found["lookup"].items():
        print(f"  {name}: {each['median']:.2f} / {each['mean']:.2f}")
    print(f"a video by its id: {found['id']:.0f} us")


if __name__ == "__main__":
    main()
