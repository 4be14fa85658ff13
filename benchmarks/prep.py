"""What `shortgop prep` takes beside the encodes that it runs: by hand, and the job around them.

    python benchmarks/prep.py
    python benchmarks/prep.py --workers 2 --videos 60 --seconds 5
    python benchmarks/prep.py --workers 2 --videos 1 --height 240 --seconds 2600

The command lines are the job's own, written down by `ffmpeg_between.py` in a first run. Then they are run in turn with
the job, each time into a new folder: one after the other beside `--runner inline`, or with --workers as many at a time
as Ray runs. Sources that are expected to take a core two minutes or more, as in the third line, are encoded in
sections, which are then what is run by hand.
The ratio is how much of the job's time the encodes alone take: with the start of the interpreter, and from the end of
its imports on. With Ray, a job of one second of video for each worker, each in a unit of its own, says what the start
of Ray and of its workers takes, and a ratio is without it. Further runs say where the rest goes: one of a job without
Ray under cProfile, and with Ray some more by the CPU seconds of the processes, while all workers encode.
With --keep and --workers all figures go to benchmarks/results, beside those of other sources on the same machine.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import footage
import numpy as np
from encoded import BETWEEN
from process_cpu import Used, used_while_busy
from results import RESULTS, machine_name, markdown_row
from rich.console import Console

from shortgop.comparison.estimates import median
from shortgop.comparison.machine import this_machine
from shortgop.comparison.timing import alternate
from shortgop.jobs.units_of_work.units import MIN_TARGET_BYTES
from shortgop.prep.running.ffmpeg import find_ffmpeg

SIZE = "256"
# Parts of the job by the functions that do them, as FILE:NAME, with all that these call.
PARTS = {
    "finding ffmpeg": ("ffmpeg.py:find_ffmpeg",),
    "trying the encoder": ("capability_trials.py:try_encoder",),
    "trying NVDEC": ("capability_trials.py:try_nvdec",),
    "reading the sources' packets": ("mounts.py:read_in_time",),
    "looking at all sources": ("prepare.py:_look_at",),
    "reading the command line": ("core.py:make_context",),
    "looking at a picture": ("picture_check.py:check_picture",),
    "planning": ("source_times.py:plan_times",),
    "starting ffmpeg": ("subprocess.py:__init__",),
    "waiting for ffmpeg": ("selectors.py:select", "subprocess.py:wait"),
    "looking whether ffmpeg hangs": ("stalls.py:look",),
    "checking GOPs": ("gop_check.py:check_gop",),
    "restamping": ("mp4.py:restamp_fragment",),
    "CRC-32": ("~:<built-in method zlib.crc32>",),
    "writing shards": ("shards.py:append", "shards.py:commit"),
    "rows and parts": ("manifest_rows.py:video_manifest", "merge.py:merge", "parts.py:write_part"),
    "ffmpeg's report of frames": ("frame_report.py:parse_stats",),
    "publishing": ("publish.py:publish",),
    "removing old files": ("tidy.py:tidy",),
    "finding sources": ("source_listing.py:list_first",),
}
console = Console(highlight=False)


def prep_arguments(sources: Sequence[Path | str], out: Path | str, workers: int = 0) -> list[str]:
    """The arguments of `shortgop`: on Ray if there are `workers`."""
    runner = ("--runner", "ray", "--workers", str(workers)) if workers else ("--runner", "inline")
    return ["prep", *map(str, sources), "--out", str(out), "--size", SIZE, *runner, "--encoder", "libx264"]


def child(arguments: Sequence[str], profile: str) -> None:
    """In a new process: import, then the job; print the seconds of the job and of its ffmpegs' CPU."""
    from shortgop.cli import app

    import_all()
    start = time.perf_counter()
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    app(list(arguments), standalone_mode=False)
    profiler.disable()
    elapsed = time.perf_counter() - start
    own, ffmpegs = (cpu_seconds(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    if profile:
        profiler.dump_stats(profile)
    figures = {"job": elapsed, "ffmpeg_cpu": ffmpegs, "cpu": own}
    sys.stderr.write("\n" + json.dumps(figures) + "\n")


def cpu_seconds(who: int) -> float:
    """CPU seconds of this process, or of the child processes that it waited for."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def import_all() -> None:
    """What the command imports when it is called."""
    import av  # noqa: F401

    import shortgop.jobs.prepare
    import shortgop.jobs.working.work  # noqa: F401


def run_child(arguments: Sequence[str], *, profile: str = "", **environment: str) -> dict[str, float]:
    """The figures of a child, and the seconds of its whole process."""
    start = time.perf_counter()
    argv = [sys.executable, __file__, "--child", profile, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | environment)
    elapsed = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(argv)}\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stderr.splitlines()[-1])
    return figures | {"process": elapsed}


def recorded(sources: Sequence[Path], folder: Path) -> list[list[str]]:
    """The job's ffmpeg command lines that encode."""
    record = folder / "commands.jsonl"
    between = {
        "SHORTGOP_FFMPEG": str(BETWEEN),
        "BETWEEN_FFMPEG": find_ffmpeg().path,
        "BETWEEN_RECORD": str(record),
    }
    run_child(prep_arguments(sources, folder / "recorded"), **between)
    commands = [json.loads(line) for line in record.read_text().splitlines()]
    encodes = [argv for argv in commands if argv[-1] == "pipe:1" and "-stats_enc_pre" in argv]
    # More of them where a source is encoded in sections.
    if len(encodes) < len(sources):
        sys.exit(f"bench: {len(encodes)} encodes of {len(sources)} sources were recorded")
    return encodes


def by_hand(encodes: Sequence[Sequence[str]], folder: Path, at_a_time: int) -> None:
    """The same encodes, their output and reports into files."""
    folder.mkdir()
    ffmpeg = find_ffmpeg().path

    def encode(number: int, argv: Sequence[str]) -> None:
        place = argv.index("-stats_enc_pre") + 1
        changed = [*argv[:place], str(folder / f"{number}.stats"), *argv[place + 1 :]]
        with (folder / f"{number}.mp4").open("wb") as out:
            subprocess.run([ffmpeg, *changed], stdout=out, check=True)

    with ThreadPoolExecutor(at_a_time) as pool:
        list(pool.map(encode, range(len(encodes)), encodes))


def padded(path: Path, copy: Path) -> Path:
    """A copy of an MP4 file with so much behind its video that it is a unit of work of its own."""
    box = struct.pack(">I4s", MIN_TARGET_BYTES, b"free")
    copy.write_bytes(path.read_bytes() + box + bytes(MIN_TARGET_BYTES - len(box)))
    return copy


@dataclass(frozen=True)
class OnRay:
    """What was measured of jobs on a local Ray, by round: the seconds of the encodes by hand, of the whole job, and of
    one of a second of video for each worker; the CPU seconds by hand; and those of the job's processes by kind, while
    all workers encode."""

    encodes: int
    by_hand_seconds: list[float]
    job_seconds: list[float]
    start_seconds: list[float]
    by_hand_cpu_seconds: list[float]
    cpu_while_busy: list[Used]

    def text(self) -> str:
        alone, whole, start = map(np.array, (self.by_hand_seconds, self.job_seconds, self.start_seconds))
        return "\n".join(
            [
                f"{self.encodes} encodes by hand: {median(alone)} s",
                f"job: {median(whole)} s, of one second of video for each worker: {median(start)} s",
                f"of the job: {median(alone / whole)}",
                f"of the job without the start of Ray: {median(alone / (whole - start))}",
                f"CPU by hand: {median(np.array(self.by_hand_cpu_seconds))} s",
                *map(_cpu_text, self.cpu_while_busy),
            ]
        )


def _cpu_text(used: Used) -> str:
    kinds = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in used.by_kind.items())
    return f"CPU in {used.seconds:.1f} s of encoding: {kinds}; the share of ffmpeg is {used.ffmpeg_share:.3f}"


def keep(name: str, measured: OnRay) -> None:
    """Write down what was measured, with the machine, beside what is there of other sources."""
    machine = this_machine()
    path = RESULTS / f"{machine_name(machine)}-prep.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(kept | {name: {"machine": asdict(machine)} | asdict(measured)}, indent=1) + "\n")
    console.print(f"kept in {path}")


def measure_on_ray(sources: Sequence[Path], seconds: Sequence[Path], runs: int, workers: int) -> OnRay:
    """Jobs on a local Ray with so many workers. Each of them gets one of `seconds` to start with."""
    with TemporaryDirectory(prefix="shortgop-bench-") as name:
        folder = Path(name)
        encodes = recorded(sources, folder)
        own_units = [padded(path, folder / path.name) for path in seconds]
        figures: dict[str, list[dict[str, float]]] = {"job": [], "start": []}

        def job(what: str, of: Sequence[Path]) -> None:
            dataset = folder / "dataset"
            shutil.rmtree(dataset, ignore_errors=True)
            figures[what].append(run_child(prep_arguments(of, dataset, workers)))
            # Each unit writes a shard of its own. With fewer of them some workers would have nothing to do.
            units = len(list((dataset / "shards").iterdir()))
            if units < workers:
                sys.exit(f"bench: {units} units for {workers} workers")

        hand_cpu: list[float] = []

        def hand(_number: int) -> None:
            shutil.rmtree(folder / "by-hand", ignore_errors=True)
            before = cpu_seconds(resource.RUSAGE_CHILDREN)
            by_hand(encodes, folder / "by-hand", workers)
            hand_cpu.append(cpu_seconds(resource.RUSAGE_CHILDREN) - before)

        tasks = {"job": lambda _: job("job", sources), "by hand": hand, "start": lambda _: job("start", own_units)}
        alone = alternate(tasks, requests=runs).seconds["by hand"]
        # The first ones were not counted.
        job_seconds, start_seconds = ([each["job"] for each in figures[what][1:]] for what in ("job", "start"))
        busy = [cpu_on_ray(sources, workers) for _ in range(runs)]
        return OnRay(len(encodes), alone.tolist(), job_seconds, start_seconds, hand_cpu[1:], busy)


def cpu_on_ray(sources: Sequence[Path], workers: int) -> Used:
    """CPU seconds of a job's processes by what they are, while all workers encode."""
    with TemporaryDirectory(prefix="shortgop-bench-") as name:
        argv = [sys.executable, __file__, "--child", "", *prep_arguments(sources, Path(name) / "dataset", workers)]
        return used_while_busy(argv, workers)


def measure(sources: Sequence[Path], runs: int) -> str:
    """The ratios, and the table of where the rest goes."""
    with TemporaryDirectory(prefix="shortgop-bench-") as name:
        folder = Path(name)
        encodes = recorded(sources, folder)
        figures: list[dict[str, float]] = []

        def job(_number: int) -> None:
            shutil.rmtree(folder / "dataset", ignore_errors=True)
            figures.append(run_child(prep_arguments(sources, folder / "dataset")))

        hand_cpu: list[float] = []

        def hand(_number: int) -> None:
            shutil.rmtree(folder / "by-hand", ignore_errors=True)
            before = cpu_seconds(resource.RUSAGE_CHILDREN)
            by_hand(encodes, folder / "by-hand", at_a_time=1)
            hand_cpu.append(cpu_seconds(resource.RUSAGE_CHILDREN) - before)

        seconds = alternate({"job": job, "by hand": hand}, requests=runs).seconds
        # The first job was not counted.
        counted = {key: np.array([each[key] for each in figures[1:]]) for key in figures[0]}
        alone = seconds["by hand"]
        lines = [
            f"by hand: {median(alone)} s, CPU {median(np.array(hand_cpu[1:]))} s",
            f"of the job's process: {median(alone / counted['process'])}",
            f"of the job without its start: {median(alone / counted['job'])}",
            # Other processes of the machine hardly change this one.
            f"CPU, of the job's process: {median(np.array(hand_cpu[1:]) / (counted['cpu'] + counted['ffmpeg_cpu']))}",
            *(f"{key}: {median(values)} s" for key, values in counted.items()),
        ]
        shutil.rmtree(folder / "dataset")
        profile = folder / "profile"
        profiled = run_child(prep_arguments(sources, folder / "dataset"), profile=str(profile))
        return "\n".join([*lines, "", parts_table(pstats.Stats(str(profile)), profiled["job"])])


def parts_table(stats: pstats.Stats, job_seconds: float) -> str:
    """Seconds of each part under the profiler, which itself slows what is called often."""
    rows = {part: sum(_cumulative(stats, function) for function in functions) for part, functions in PARTS.items()}
    lines = [markdown_row(["part", "s", "of the job"]), markdown_row(["---"] * 3)]
    for part, seconds in sorted(rows.items(), key=lambda row: -row[1]):
        lines.append(markdown_row([part, f"{seconds:.3f}", f"{seconds / job_seconds:.1%}"]))
    return "\n".join(lines)


def _cumulative(stats: pstats.Stats, function: str) -> float:
    """Cumulative seconds of a function, which is named as FILE:NAME."""
    found = 0.0
    for (file, _line, name), (_calls, _primitive, _own, cumulative, _callers) in stats.stats.items():  # type: ignore[attr-defined]
        if f"{Path(file).name}:{name}" == function:
            found += cumulative
    return found


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[3:], sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--height", type=int, default=720)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0, help="run the job on Ray, so many encodes at a time")
    parser.add_argument("--keep", action="store_true", help="write the figures to benchmarks/results")
    options = parser.parse_args()
    sources = footage.make_sources("prep", options.videos, options.height, options.seconds)
    if options.workers:
        # So small that their encodes take next to nothing.
        seconds = footage.make_sources("prep", options.workers, 90, 1)
        measured = measure_on_ray(sources, seconds, options.runs, options.workers)
        text = measured.text()
        if options.keep:
            sizes = f"{options.videos} of {options.seconds} s, {options.height}p"
            keep(f"{sizes}, {options.workers} workers", measured)
    else:
        text = measure(sources, options.runs)
    console.print(text, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
