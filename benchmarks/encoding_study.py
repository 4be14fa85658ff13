"""Scenario 6, `make bench-encodings`: what an encoding costs in bytes and quality, and what it gives in speed.

All of the sample footage is prepared with each encoding, read at random by shortgop, request by request with every
encoding in turn, and compared with the pixels that went in. Three tables: what x264's `fastdecode` consists of, what
presets do, and GOPs, B-frames and codecs. In the first two every encoding is measured twice: at CRF 23, and at the CRF
at which it takes as many bytes as the first row.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import encoded
import footage
import torch
from encoded import Encoding, Made, Quality
from results import ALL_PAGE, OURS, RESULTS, described, machine_name, markdown_row, taken_on, write_json, write_page
from rich.console import Console
from scenarios import measured

import shortgop
from shortgop.comparison.accesses import Access, draw
from shortgop.comparison.estimates import Estimate
from shortgop.comparison.machine import this_machine
from shortgop.comparison.peers import load
from shortgop.comparison.tasks import FileSet, our_task, peer_task
from shortgop.comparison.timing import Task

ACCESSES = {"clip": Access(16, 4), "frame": Access(1)}
BASE = Encoding()
# What x264's own `tune fastdecode` sets (x264.c, x264_param_apply_tune). `--fastdecode` takes the first two.
FASTDECODE_PARTS = ("no-deblock=1", "no-cabac=1", "weightp=0", "weightb=0")
PRESETS = ("veryfast", "faster", "slow", "veryslow")
REDUCED_GOPS, ALL_GOPS = (8, 16, 32, 250), (1, 2, 4, 8, 12, 16, 24, 32, 60, 250)

Note = Callable[[str], object]
console = Console(highlight=False)


@dataclass(frozen=True)
class Outcome:
    """An encoding of a table, which is compared with the table's first. Times are milliseconds of a clip and of a
    frame, and how many times as long as BASE that is; None where PyAV was not asked."""

    table: str
    encoding: Encoding
    bytes: int
    equal_bytes: bool
    quality: Quality
    clip: Estimate
    frame: Estimate
    clip_ratio: Estimate
    frame_ratio: Estimate
    clip_pyav: Estimate | None
    frame_pyav: Estimate | None


def parts() -> list[Encoding]:
    """BASE, each part of x264's `tune fastdecode` alone, all but each, all of them, and what `--fastdecode` takes."""
    alone = [Encoding(x264=part) for part in FASTDECODE_PARTS]
    without = [Encoding(x264=":".join(p for p in FASTDECODE_PARTS if p != part)) for part in FASTDECODE_PARTS]
    return [BASE, *alone, *without, Encoding(x264=":".join(FASTDECODE_PARTS)), Encoding(fastdecode=True)]


def presets(names: Sequence[str] = PRESETS) -> list[Encoding]:
    """x264's own preset, which is medium, and others, without and with `fastdecode`."""
    return [Encoding(fastdecode=fast, preset=preset) for fast in (False, True) for preset in ("", *names)]


def grid(gops: Sequence[int], codecs: Sequence[str], b_frames: Sequence[int], fast: Sequence[bool]) -> list[Encoding]:
    """All that make sense: so many B-frames take a longer GOP, and AV1 has at most one unreferenced frame in a row."""
    return [
        Encoding(codec, gop, b, each)
        for codec in codecs
        for gop in gops
        for b in (dict.fromkeys(min(b, 1) for b in b_frames) if codec == "av1" else b_frames)
        if b < gop
        for each in fast
    ]


@dataclass(frozen=True)
class Plan:
    """Encodings by table, BASE first; the tables in `equal` are measured at as many bytes as BASE as well."""

    tables: dict[str, list[Encoding]]
    equal: tuple[str, ...]


PARTS, BY_PRESET, GRID = "What x264's `tune fastdecode` consists of", "Presets", "GOP, B-frames and codec"
TABLES = {"parts": PARTS, "presets": BY_PRESET, "grid": GRID}


def plan(
    *, full: bool, codecs: Sequence[str], gops: Sequence[int] | None = None, b_frames: Sequence[int] = (0, 3)
) -> Plan:
    """The three tables; `codecs`, `gops` and `b_frames` are those of the third."""
    fast = (False, True) if full else (True,)
    gops = gops or (ALL_GOPS if full else REDUCED_GOPS)
    names = PRESETS if full else PRESETS[::2]
    # BASE is in each table, first: the others are compared with it.
    in_grid = dict.fromkeys([BASE, *grid(gops, codecs, b_frames, fast)])
    tables = {PARTS: parts(), BY_PRESET: presets(names), GRID: list(in_grid)}
    return Plan(tables, (PARTS, BY_PRESET))


Entry = tuple[str, Encoding, bool]
"""The table, the encoding, and whether it is the one of equal bytes."""


def make_all(chosen: Plan, sources: Sequence[Path], note: Note) -> dict[Entry, Made]:
    """Every encoding, and those of equal bytes; as many at a time as there are cores, since each takes one."""
    target = encoded.make(BASE, sources).bytes
    at_equal_bytes = {encoding for table in chosen.equal for encoding in chosen.tables.get(table, ())} - {BASE}

    def make(encoding: Encoding) -> list[tuple[Encoding, bool, Made]]:
        note(f"6. making {encoding}")
        found = [(encoding, False, encoded.make(encoding, sources))]
        if encoding in at_equal_bytes:
            equal, made = encoded.of_equal_bytes(encoding, sources, target, note)
            found += [(equal, True, made)] if equal != encoding else []
        return found

    # An encoding of two tables is made once.
    wanted = list(dict.fromkeys(encoding for members in chosen.tables.values() for encoding in members))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = dict(zip(wanted, pool.map(make, wanted), strict=True))
    return {
        (table, encoding, equal): each
        for table, members in chosen.tables.items()
        for member in members
        for encoding, equal, each in made[member]
        if not equal or table in chosen.equal
    }


def times(
    made: dict[Entry, Made], access: Access, seconds: float
) -> dict[tuple[str, Encoding], tuple[Estimate, Estimate]]:
    """By reader and encoding: milliseconds, and the ratio to BASE read by shortgop."""
    by_encoding = {encoding: each for (_, encoding, _), each in made.items()}
    read = load(["pyav"])[0]["pyav"]
    tasks: dict[tuple[str, str], Task] = {}
    keys: dict[tuple[str, str], tuple[str, Encoding]] = {}
    # BASE comes first in the plan, so that the others are compared with it.
    asked = draw([len(file) for file in FileSet.of_exported("", by_encoding[BASE].paths).files], access, 1000, seed=6)
    for encoding, each in by_encoding.items():
        opened = shortgop.open(each.dataset)
        tasks[OURS, str(encoding)] = our_task(opened, range(len(opened)), asked)
        keys[OURS, str(encoding)] = (OURS, encoding)
    for table, encoding, _ in made:
        if table == GRID:
            files = FileSet.of_exported("", by_encoding[encoding].paths)
            tasks["pyav", str(encoding)] = peer_task(read, files, asked)
            keys["pyav", str(encoding)] = ("pyav", encoding)
    missing: dict[str, str] = {}
    rows = measured(tasks, missing, requests=len(asked), seconds=seconds)
    if missing:
        sys.exit(f"bench: {missing}")
    return {keys[row.reader, row.files]: (row.milliseconds, row.ratio) for row in rows}


def measure(chosen: Plan, sources: Sequence[Path], seconds: float, note: Note) -> list[Outcome]:
    """Make all encodings, read them in turn, compare their pixels."""
    made = make_all(chosen, sources, note)
    found = {}
    for name, access in ACCESSES.items():
        note(f"6. reading: {name}")
        found[name] = times(made, access, seconds)
    outcomes = []
    for (table, encoding, equal), each in made.items():
        note(f"6. quality of {encoding}")
        ours = {name: found[name][OURS, encoding] for name in ACCESSES}
        pyav = {name: found[name].get(("pyav", encoding), (None, None))[0] for name in ACCESSES}
        outcomes.append(
            Outcome(
                table,
                encoding,
                each.bytes,
                equal,
                encoded.quality(each, sources),
                *(ours["clip"][0], ours["frame"][0], ours["clip"][1], ours["frame"][1]),
                *(pyav["clip"], pyav["frame"]),
            )
        )
    return outcomes


def table_of(outcomes: Sequence[Outcome], name: str) -> str:
    """The table of this name, with bytes and times against those of BASE."""
    members = [outcome for outcome in outcomes if outcome.table == name]
    base = next(each for each in members if each.encoding == BASE)
    with_pyav = any(each.clip_pyav is not None for each in members)
    columns = ["encoding", "bytes", "PSNR Y, dB", "VMAF", "clip", "frame"]
    columns += ["clip with PyAV", "frame with PyAV"] if with_pyav else []
    lines = [f"**{name}**", "", markdown_row(columns), markdown_row(["---"] * len(columns))]
    # What was measured at equal bytes stands below the rest.
    for each in sorted(members, key=lambda each: each.equal_bytes):
        cells = [str(each.encoding), f"{each.bytes / base.bytes:.2f}", f"{each.quality.psnr:.2f}"]
        cells += ["" if math.isnan(each.quality.vmaf) else f"{each.quality.vmaf:.1f}"]
        cells += [_time(each, each.clip, each.clip_ratio), _time(each, each.frame, each.frame_ratio)]
        if with_pyav:
            cells += ["" if value is None else f"{value} ms" for value in (each.clip_pyav, each.frame_pyav)]
        lines.append(markdown_row(cells))
    return "\n".join(lines)


def _time(outcome: Outcome, milliseconds: Estimate, ratio: Estimate) -> str:
    return f"**{milliseconds} ms**" if outcome.encoding == BASE else f"{ratio} x"


def write_chart(outcomes: Sequence[Outcome], path: Path) -> None:
    """Bytes against milliseconds, a line along the GOPs for each way to encode."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6), layout="constrained")
    lines: dict[tuple[str, int, bool], list[Outcome]] = {}
    for outcome in sorted((each for each in outcomes if each.table == GRID), key=lambda each: each.encoding):
        encoding = outcome.encoding
        lines.setdefault((encoding.codec, encoding.b_frames, encoding.fastdecode), []).append(outcome)
    all_axes = figure.subplots(1, 2)
    for axis, name in zip(all_axes, ACCESSES, strict=True):
        for (codec, b_frames, fast), members in lines.items():
            read = [getattr(each, name).value for each in members]
            label = f"{codec}, {b_frames} {'unreferenced' if codec == 'av1' else 'B'}{', fastdecode' if fast else ''}"
            axis.plot([each.bytes / 1e6 for each in members], read, marker="o", label=label)
            for each, value in zip(members, read, strict=True):
                axis.annotate(str(each.encoding.gop), (each.bytes / 1e6, value), fontsize=7)
        axis.set(xlabel="MB", ylabel="ms", title=f"{ACCESSES[name]}; the numbers are GOPs", xscale="log", yscale="log")
    all_axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="every GOP and preset: an hour and more")
    parser.add_argument("--codecs", default="h264,hevc,av1", help="of the third table")
    parser.add_argument("--gops", help="of the third table, such as 8,16")
    parser.add_argument("--b-frames", default="0,3", help="of the third table")
    parser.add_argument("--seconds", type=float, default=6, help="of each video")
    parser.add_argument("--reading-seconds", type=float, default=90, help="for clips and for frames each")
    parser.add_argument("--videos", type=int, help="the first so many of the sample footage  [all]")
    parser.add_argument("--only", choices=TABLES, help="one table")
    parser.add_argument("--dry", action="store_true", help="leave docs/benchmarks-all.md and the results alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine, started = this_machine(), time.monotonic()

    def note(text: str) -> None:
        console.print(f"{time.monotonic() - started:6.0f} s  {text}", markup=False)

    gops, b_frames = (
        [int(number) for number in text.split(",")] if text else None for text in (options.gops, options.b_frames)
    )
    chosen = plan(full=options.full, codecs=options.codecs.split(","), gops=gops, b_frames=b_frames or ())
    if options.only:
        table = TABLES[options.only]
        chosen = Plan({table: chosen.tables[table]}, chosen.equal)
    sources = footage.make_samples(options.seconds)[: options.videos]
    outcomes = measure(chosen, sources, options.reading_seconds, note)
    kind = "sample footage" if footage.sample_folder() else "drawn"
    made_of = f"{len(sources)} videos of at most {options.seconds:g} s and 256p, {kind}, {footage.RATE} frames/s"
    taken = f"{described(machine, quick=not options.full)} {made_of}; {taken_on(machine)}."
    texts = {key: table_of(outcomes, name) for key, name in TABLES.items() if name in chosen.tables}
    console.print("\n\n".join([taken, *texts.values()]), markup=False, soft_wrap=True)
    note("done")
    if options.dry:
        sys.stdout.write(json.dumps([asdict(outcome) for outcome in outcomes]) + "\n")
        return
    for key, text in texts.items():
        name = f"{machine_name(machine)}-encodings-{key}"
        of_table = [outcome for outcome in outcomes if outcome.table == TABLES[key]]
        write_json(name, machine, not options.full, {"outcomes": of_table})
        write_page(ALL_PAGE, f"encodings, {key}", f"{taken}\n\n{text}")
        if TABLES[key] == GRID:
            write_chart(of_table, RESULTS / f"{name}.png")


if __name__ == "__main__":
    main()
