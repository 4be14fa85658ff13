"""What a snapshot's timeline takes, and what opening a snapshot in a store does: python benchmarks/snapshot_bytes.py

The bytes of a frame in the timeline, for sources of constant and of variable rates; their times are made up. With
--store the memory of a process that opens a snapshot without its timeline, from a disk and from an S3 server on
loopback (`scale_data`): that of the tests, or with --endpoint another one, with the credentials of the environment.
With --cold it is opened from a disk, again and again, by a host that has neither a copy nor the file in its memory.
Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import footage
import numpy as np
import scale_data
from page_cache import forget
from s3_place import means, s3_at
from zarr.storage import LocalStore

from shortgop.manifests.dataset_files.layout import ROOT_KEY
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.ragged import Array
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.manifests.zarr_files.zarr_sizes import BLOCK_ROWS
from shortgop.manifests.zarr_files.zarr_write import write_manifest
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at

# Of a frame's number in its video, and something random between 0 and 1 for each frame: how long after the one before.
_Lengths = Callable[[Array, Array], Array]
TIMES: dict[str, _Lengths] = {
    "constant, a whole number of units a frame (30 in 1/15360 s)": lambda number, _: np.full_like(number, 512),
    "constant, rounded (30 in ms)": lambda number, _: number * 100 // 3 - (number - 1) * 100 // 3,
    "variable, in ms: 33 and up to 3 more or less": lambda _, draw: 30 + (7 * draw).astype("<i8"),
    "variable, in 1/90000 s: 3,000 and up to 300 more or less": lambda _, draw: 2_700 + (601 * draw).astype("<i8"),
    "variable, in us: 33,333 and up to 3,333 more or less": lambda _, draw: 30_000 + (6_667 * draw).astype("<i8"),
}


def timeline(num_frames: Array, lengths: _Lengths) -> Array:
    """The times of the frames of videos that have so many, each from a time of its own on."""
    ends = np.cumsum(num_frames)
    starts = np.repeat(ends - num_frames, num_frames)
    number = np.arange(ends[-1]) - starts
    rng = np.random.default_rng(0)
    after = lengths(number, rng.random(len(number)))
    times = np.cumsum(np.where(number == 0, 0, after))
    # Videos have many lengths, or begin at many times: the step from one to the next repeats in none of these.
    begin = rng.integers(1 << 20, size=len(num_frames))
    moved: Array = times - times[starts] + np.repeat(begin, num_frames)
    return moved


def bytes_of_timelines(videos: int) -> None:
    manifest = scale_data.made_up(np.arange(videos))
    num_frames = np.diff(manifest.first_frames)
    print(f"bytes a frame of the timeline, {len(num_frames):,} videos of {num_frames.mean():.0f} frames on average:")
    for name, lengths in TIMES.items():
        pts = timeline(num_frames, lengths)
        blocks = (pts[start : start + BLOCK_ROWS] for start in range(0, len(pts), BLOCK_ROWS))
        with TemporaryDirectory(dir=footage.WORK) as folder:
            write_manifest(LocalStore(folder), manifest, {}, blocks)
            files = [file.stat().st_size for file in Path(folder, "timeline").rglob("*") if file.is_file()]
        print(f"  {sum(files) / len(pts):.4f}  {name}", flush=True)


@contextlib.contextmanager
def most_memory() -> Iterator[list[int]]:
    """In the block, [most bytes of this process's own memory, without pages of files, looked at every few ms]."""
    most, is_over = [0], threading.Event()

    def own() -> int:
        _, resident, shared = Path("/proc/self/statm").read_text().split()[:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")

    def watch() -> None:
        while not is_over.wait(0.002):
            most[0] = max(most[0], own())

    before = own()
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        is_over.set()
        watching.join()
        most[0] = max(most[0] - before, 0)


def child(place: str, copies_in: str | None) -> None:
    """In a new process: open a snapshot, with copies of tables for this host in a folder or without."""
    dataset = storage_at(place)
    read_root(dataset)  # what obstore takes by itself is not counted
    before, started = dataset.counts(), time.perf_counter()
    with most_memory() as most:
        open_current(dataset, copies=None if copies_in is None else HostCopies(Path(copies_in)))
        seconds = time.perf_counter() - started
    requests = dataset.counts().requests - before.requests
    sys.stdout.write(f"{most[0] / 1e6:.0f} MB of its own at most, {requests} requests, {seconds:.1f} s")


@contextlib.contextmanager
def without_copies_of_the_user() -> Iterator[None]:
    """Publishing in the block leaves no copies of tables in the user's cache folder."""
    with TemporaryDirectory(dir=footage.WORK) as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache):
        yield


def with_layer(videos: int) -> Path:
    """A dataset of so many videos, and a layer with 1 % more."""
    whole = scale_data.make(footage.WORK / f"scale-{videos}-whole", videos, timeline=True)
    folder = whole.with_name(f"scale-{videos}-layer")
    shutil.rmtree(folder, ignore_errors=True)
    # Shards are holes, which a copy would fill.
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("shards"))
    scale_data.write_more(folder, videos)
    publish(DiskStorage(folder))
    return folder


def opened(place: str, *options: str) -> str:
    """What opening takes in a new process."""
    command = [sys.executable, __file__, "--child", place, *options]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def opening_cold(folder: Path, times: int) -> None:
    for _ in range(times):
        with TemporaryDirectory(dir=footage.WORK) as copies:
            forget(folder / "manifest")
            print(f"  cold: {opened(str(folder), '--copies', copies)}", flush=True)


def opening(folder: Path, endpoint: str | None) -> None:
    keys = sorted(f"manifest/{file.name}" for file in (folder / "manifest").iterdir())
    with s3_at(endpoint) as server, means(server) as url:
        store = storage_at(url)
        for key in keys:
            store.put_new_file(key, folder / key)
        store.put_new(ROOT_KEY, (folder / ROOT_KEY).read_bytes())
        for where, place in (("a disk", str(folder)), ("S3", url)):
            with TemporaryDirectory(dir=footage.WORK) as copies:
                for what, options in (
                    ("the first time on a host", ["--copies", copies]),
                    ("the next", ["--copies", copies]),
                    ("without a copy", []),
                ):
                    print(f"  from {where}, {what}: {opened(place, *options)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=100_000, help="of the timelines")
    parser.add_argument("--store", type=int, nargs="*", default=[], help="open snapshots of so many videos")
    parser.add_argument("--layer", action="store_true", help="open snapshots with a layer of 1 %% more on top")
    parser.add_argument("--cold", type=int, default=0, metavar="TIMES", help="open so often from a disk, and no store")
    parser.add_argument("--endpoint", help="http://HOST:PORT of an S3 server, in place of that of the tests")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--copies", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.copies)
        return
    footage.WORK.mkdir(exist_ok=True)
    if options.videos:
        bytes_of_timelines(options.videos)
    for videos in options.store:
        with without_copies_of_the_user():
            folder = with_layer(videos) if options.layer else scale_data.make(footage.WORK / f"scale-{videos}", videos)
        sizes = ", ".join(f"{file.stat().st_size / 1e6:.1f} MB" for file in sorted((folder / "manifest").iterdir()))
        print(f"opening {videos:,} videos{' and a layer of 1 %' if options.layer else ''}; snapshots of {sizes}:")
        if options.cold:
            opening_cold(folder, options.cold)
        else:
            opening(folder, options.endpoint)


if __name__ == "__main__":
    main()
