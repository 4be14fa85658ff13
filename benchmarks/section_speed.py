"""A long source cut into sections beside the same source encoded whole: python benchmarks/section_speed.py

Both run on a local Ray with as many workers as there are cores, in turn, each time in a new process and into a new
folder. The ratio is how many times as fast sections are; the best would be the number of workers. A third job, of a
second of video, says what the start of Ray and of a worker takes; a second ratio is without it.

ffmpeg decodes, scales and encodes in a thread each. So the source that is encoded whole keeps more than one core busy,
and the best ratio is the number of workers divided by that. A last run of each says how much processor time they take.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import footage
from process_cpu import FFMPEG, cpu_by_kind

from shortgop.jobs.prepare import prepare
from shortgop.jobs.units_of_work.where import Where
from shortgop.prep.profile import Profile
from shortgop.prep.section_plan import SECTION_SECONDS
from shortgop.storage.disk import DiskStorage
from shortgop.wording import counted

# As the length of a section: no source is as long.
_NEVER = 1e9


def child(source: Path, out: Path, section_seconds: float, workers: int) -> list[float]:
    """How many seconds a job takes, and how many shards it makes: one for each section."""
    started = time.perf_counter()
    prepare(
        [str(source)],
        DiskStorage(out),
        Profile(),
        where=Where("ray", workers=workers),
        section_seconds=section_seconds,
    )
    return [time.perf_counter() - started, len(list((out / "shards").iterdir()))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=200, help="of video, 720p")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--section-seconds", type=float, default=SECTION_SECONDS, help="of one core's work")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--child", nargs=3, metavar=("SOURCE", "OUT", "SECTION_SECONDS"))
    options = parser.parse_args()
    if options.child:
        source, out, seconds = options.child
        sys.stdout.write(json.dumps(child(Path(source), Path(out), float(seconds), options.workers)))
        return
    (source,) = footage.make_sources("sections", 1, 720, options.seconds, preset="veryfast")
    (second,) = footage.make_sources("sections", 1, 720, 1, preset="veryfast")
    out = footage.WORK / "sections-out"
    ways = {"start": (second, _NEVER), "whole": (source, _NEVER), "in sections": (source, options.section_seconds)}
    ratios, without_start, whole_seconds = [], [], []

    def argv(name: str) -> list[str]:
        shutil.rmtree(out, ignore_errors=True)
        path, seconds = ways[name]
        arguments = ["--workers", str(options.workers), "--child", str(path), str(out), str(seconds)]
        return [sys.executable, __file__, *arguments]

    for number in range(options.rounds):
        found = {}
        for name in ways:
            done = subprocess.run(argv(name), check=True, stdout=subprocess.PIPE, text=True)
            found[name], shards = json.loads(done.stdout)
            print(f"round {number + 1}, {name}: {found[name]:.1f} s, {counted(shards, 'shard')}", flush=True)
            if name == "in sections" and shards < 2:
                raise SystemExit("the source was not cut: it is short, or its keyframes lie far apart; give --seconds")
        whole_seconds.append(found["whole"] - found["start"])
        ratios.append(found["whole"] / found["in sections"])
        without_start.append((found["whole"] - found["start"]) / (found["in sections"] - found["start"]))
    cpu = {name: cpu_by_kind(argv(name)) for name in ways}
    shutil.rmtree(out, ignore_errors=True)
    for what, each in (("with the start of Ray", ratios), ("without it", without_start)):
        spread = f"{min(each):.2f} to {max(each):.2f}"
        print(f"{options.workers} workers, {what}: sections are {median(each):.2f} times as fast ({spread})")
    for name in ("whole", "in sections"):
        more = {kind: cpu[name][kind] - cpu["start"][kind] for kind in cpu[name]}
        print(f"CPU, {name}: " + ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in more.items()))
    ffmpeg = cpu["whole"][FFMPEG] - cpu["start"][FFMPEG]
    print(f"whole, ffmpeg keeps {ffmpeg / median(whole_seconds):.2f} cores busy")


if __name__ == "__main__":
    main()
