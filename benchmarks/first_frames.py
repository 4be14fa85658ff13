"""When a job over a million sources has its first frames, and when it knows them all: python benchmarks/first_frames.py

All sources are one short clip: lists name it a million times by ids of its own, and folders hold links to it, which are
made first and kept. A store, which needs --endpoint, holds 20,000 copies of it; all other objects are empty, and have
names that sort after these. Each job runs in a process of its own, without Ray, and ends when all sources are known.
With --done N it goes on with a dataset that has the first N sources. With --runner ray a Ray is started for each job.
The memory is the most that the driver has had; Ray's own processes have theirs.

--window-sources plans so many sources at a time in turn: 100000 has up to 20,000 in one window, all of which are looked
at before anything is encoded. Then a job ends when all were looked at, unless --until says known.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import footage
import obstore
from obstore.store import S3Store
from process_memory import peak_bytes
from s3_place import means

from shortgop.jobs.finding.sources import found_in
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.units_of_work.windows import WINDOW_SOURCES
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create, read_root, set_id_roots
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.ragged import from_texts
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage

_FOLDERS = 1000
_PART_VIDEOS = 1000
_REAL_OBJECTS = 20_000
_PUTS_AT_A_TIME = 64


class KnownError(Exception):
    """All sources are known, or were looked at."""


LISTS: dict[str, tuple[str, Callable[[Path, int], str]]] = {
    "jsonl": ("", lambda clip, number: json.dumps({"path": str(clip), "id": f"{number:07d}", "n": number / 7})),
    "csv": ("path,id,n\n", lambda clip, number: f"{clip},{number:07d},{number / 7}"),
}


def made(kind: str, clip: Path, count: int) -> Path:
    """A list of so many sources, or folders of so many links."""
    path = footage.WORK / f"first-frames-{count}.{kind}"
    if kind in LISTS:
        header, line = LISTS[kind]
        with path.open("w", encoding="utf-8") as file:
            file.write(header)
            file.writelines(f"{line(clip, number)}\n" for number in range(count))
    elif not path.exists():
        part = path.with_suffix(".part")
        for folder in range(_FOLDERS):
            (part / f"{folder:03d}").mkdir(parents=True)
            for number in range(folder, count, _FOLDERS):
                (part / f"{folder:03d}" / f"{number:07d}.mp4").symlink_to(clip)
        part.rename(path)
    return path


def filled(url: str, clip: Path, count: int) -> str:
    """So many objects below a URL, of which the first ones are the clip."""
    store, data = S3Store.from_url(url), clip.read_bytes()

    async def put(numbers: Iterator[int]) -> None:
        for number in numbers:
            await obstore.put_async(store, f"{number:07d}.mp4", data if number < _REAL_OBJECTS else b"")

    async def put_all() -> None:
        numbers = iter(range(count))
        await asyncio.gather(*(put(numbers) for _ in range(_PUTS_AT_A_TIME)))

    asyncio.run(put_all())
    return f"{url}/"


def begun(source: Path, clip: Path, count: int) -> Path:
    """A dataset of the first sources, which all have the frames of one."""
    out, one = footage.WORK / "first-frames-begun", footage.WORK / "first-frames-one"
    for folder in (out, one):
        shutil.rmtree(folder, ignore_errors=True)
    prepare([str(clip)], DiskStorage(one), Profile(), where=Where(runner="inline"))
    rows = open_manifest(DiskStorage(one), str(read_root(DiskStorage(one)).snapshot), timeline=True)
    create(DiskStorage(out), Profile().to_json())
    set_id_roots(DiskStorage(out), (str(source),) if source.is_dir() else ())
    shutil.copytree(one / "shards", out / "shards", dirs_exist_ok=True)
    found = (each.source for each in islice(found_in([str(source)]), count))
    number = 0
    while some := list(islice(found, _PART_VIDEOS)):
        videos = [
            replace(
                rows.videos,
                id=from_texts([each.id]),
                path=from_texts([each.path]),
                attributes=from_texts([each.attributes]),
            )
            for each in some
        ]
        write_part(DiskStorage(out), f"{number:016x}", merge([replace(rows, videos=each) for each in videos]))
        number += 1
    publish(DiskStorage(out))
    return out


def child(source: str, begun_at: str, runner: str, window_sources: int, until: str) -> str:
    first = known = processor = 0.0
    done = 0
    where = Where(runner=runner)

    def on_update(progress: Progress) -> None:
        nonlocal first, known, processor, done
        if progress.frames_done and not first:
            first, processor = progress.seconds, time.process_time()
        is_looked_at = progress.sources_planned == progress.sources_total
        if first and not progress.lists_more and (until == "known" or is_looked_at):
            known, done = progress.seconds, progress.sources_done
            raise KnownError

    with tempfile.TemporaryDirectory(dir=footage.WORK) as out:
        storage = DiskStorage(Path(out) / "dataset")
        if begun_at:
            shutil.copytree(begun_at, Path(out) / "dataset")
        with contextlib.suppress(KnownError):
            prepare([source], storage, Profile(), where=where, window_sources=window_sources, on_update=on_update)
    return (
        f"first frames after {first:.1f} s ({processor:.1f} s of CPU), all sources {until} after {known:.1f} s "
        f"({done} were done by then), {peak_bytes() / 1e6:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=1_000_000)
    parser.add_argument("--done", type=int, default=0, help="how many of them the dataset has already")
    parser.add_argument("--runner", choices=["inline", "ray"], default="inline")
    parser.add_argument("--kinds", nargs="*", choices=[*LISTS, "folder"], default=[*LISTS, "folder"])
    parser.add_argument("--window-sources", nargs="+", type=int, default=[])
    parser.add_argument("--until", choices=["known", "looked at"], help="when a job ends, of its sources")
    parser.add_argument("--endpoint", help="an S3 server that gets the sources too")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        source, begun_at, runner, size, until = options.child
        print(child(source, begun_at, runner, int(size), until))
        return
    until = options.until or ("looked at" if options.window_sources else "known")
    footage.WORK.mkdir(parents=True, exist_ok=True)
    (clip,) = footage.make_sources("first-frames", 1, 256, 2)

    def measure(kind: str, source: str, begun_at: str = "") -> None:
        for size in [*(options.window_sources or [WINDOW_SOURCES])] * options.rounds:
            print(f"{kind}, {size} at a time: " if options.window_sources else f"{kind}: ", end="", flush=True)
            command = [sys.executable, __file__, "--child", source, begun_at, options.runner, size, until]
            subprocess.run(list(map(str, command)), check=True)

    for kind in options.kinds:
        source = made(kind, clip, options.sources)
        measure(kind, str(source), str(begun(source, clip, options.done)) if options.done else "")
    if options.endpoint:
        with means(options.endpoint) as url:
            measure("store", filled(f"{url}/sources", clip, options.sources))


if __name__ == "__main__":
    main()
